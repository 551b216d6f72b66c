package site

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tenantry/operation"
)

// Sentence returns the text of a fault as a sentence, with a capital and a full stop.
func Sentence(text string) string {
	if text == "" {
		return text
	}
	return strings.TrimSuffix(Capitalize(text), ".") + "."
}

// Title returns the title of a field or parameter in a form. Descriptions do not serve: they are for API callers.
func Title(a operation.Ask, name string) string { return cmp.Or(a.Label, Label(name)) }

// Verb returns the text of the button that calls the operation.
func Verb(row *operation.Row) string { return cmp.Or(row.Verb, row.Summary) }

// KeyFrom makes a key from a title: size_in_cm from "Size in cm".
func KeyFrom(title string) string {
	words := strings.FieldsFunc(strings.ToLower(title), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "_")
}

// Capitalize returns the text with its first letter in upper case.
func Capitalize(text string) string {
	if text == "" {
		return text
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// Lower returns the text with its first letter in lower case.
func Lower(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return text
	}
	return string(unicode.ToLower(first)) + text[size:]
}

// Label returns a readable form of a field's name: "Last used at" for last_used_at, "Allowed IPs" for allowed_ips.
func Label(name string) string {
	if name == "q" {
		return "Search"
	}
	words := strings.Split(name, "_")
	last := len(words) - 1
	if last > 0 && slices.Contains([]string{"id", "bytes", "us", "ms"}, words[last]) { // the value shows the unit
		words = words[:last]
	}
	if strings.HasSuffix(name, "_ms") {
		words = append(words, "time")
	}
	return JoinWords(words)
}

// JoinWords joins words with spaces, abbreviations in upper case and the first word capitalized. It changes words.
func JoinWords(words []string) string {
	for i, word := range words {
		switch word {
		case "id", "ip", "ids", "ips", "pid", "url", "urls", "cdn", "ok", "csv", "json", "ndjson":
			words[i] = strings.ToUpper(strings.TrimSuffix(word, "s")) + strings.TrimPrefix(word, strings.TrimSuffix(word, "s"))
		}
	}
	return Capitalize(strings.Join(words, " "))
}
