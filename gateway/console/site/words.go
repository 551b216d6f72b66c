package site

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"tenantry/operation"
)

// Sentence makes one of the words of a fault.
func Sentence(text string) string {
	if text == "" {
		return text
	}
	return strings.TrimSuffix(Capital(text), ".") + "."
}

// Title returns what a form calls a field or parameter of that name. Descriptions are for those who write calls.
func Title(a operation.Ask, name string) string { return cmp.Or(a.Label, Label(name)) }

// Verb returns what a button says that calls the operation.
func Verb(row *operation.Row) string {
	action := row.Name[strings.LastIndexByte(row.Name, '.')+1:]
	if row.Action == operation.DisclosureAction {
		return "Reveal"
	}
	switch action {
	case "update":
		return "Save"
	case "delete":
		if strings.HasPrefix(row.Summary, "Revoke") {
			return "Revoke"
		}
	case "end_others":
		return "Sign out everywhere else"
	}
	return Capital(strings.ReplaceAll(action, "_", " "))
}

// KeyFrom makes a key of a title: Size in cm is size_in_cm.
func KeyFrom(title string) string {
	words := strings.FieldsFunc(strings.ToLower(title), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return strings.Join(words, "_")
}

var firstWord = regexp.MustCompile(`^(List|Get|Change|Update|Create|Delete|Restore) (an? |the |all )?`)

// longTitle is too long for the navigation.
const longTitle = 28

// Capital returns the text with its first letter in upper case.
func Capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// Label writes the name of a field as people do: last_used_at is Last used at, allowed_ips Allowed IPs.
func Label(name string) string {
	if name == "q" {
		return "Search"
	}
	words := strings.Split(name, "_")
	if last := len(words) - 1; last > 0 && slices.Contains([]string{"id", "bytes", "us", "ms"}, words[last]) { // a unit stands with the figure
		words = words[:last]
	}
	if strings.HasSuffix(name, "_ms") {
		words = append(words, "time")
	}
	return Spaced(words)
}

// Spaced writes words in a line, those that are short for others in capitals.
func Spaced(words []string) string {
	for i, word := range words {
		switch word {
		case "id", "ip", "ids", "ips", "pid", "url", "urls", "cdn", "ok", "csv", "json", "ndjson":
			words[i] = strings.ToUpper(strings.TrimSuffix(word, "s")) + strings.TrimPrefix(word, strings.TrimSuffix(word, "s"))
		}
	}
	return Capital(strings.Join(words, " "))
}
