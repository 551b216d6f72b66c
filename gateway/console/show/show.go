// Package show converts answers of operations into values for pages: numbers with units, times, links, names of
// records, tables, and the fields that organizations define, with their titles.
package show

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// MissingParameter returns the first parameter of the operation's path that path does not have, or "". On a page of
// rows, it is the one that takes the key of a row.
func MissingParameter(row *operation.Row, path map[string]string) string {
	for _, p := range row.Params {
		if _, has := path[p.Name]; p.In == operation.InPath && !has {
			return p.Name
		}
	}
	return ""
}

// webAddress returns the text if it is an address of the web, and "" otherwise.
func webAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return text
}

// Pretty returns a value as indented JSON, and "" for null.
func Pretty(v strictjson.Value) string {
	if v.Is == strictjson.Null {
		return ""
	}
	out, err := json.MarshalIndent(v.Any(), "", "  ")
	if err != nil {
		return ""
	}
	return string(out)
}

// Parse returns a value of the program, such as the example of a row, as a JSON tree.
func Parse(declared any) strictjson.Value {
	raw, err := json.Marshal(declared)
	if err != nil {
		return strictjson.Value{}
	}
	var p strictjson.Parser
	v, _ := p.Parse(string(raw)) // cannot fail: Marshal wrote it
	return v
}

func itoa(n int) string { return strconv.Itoa(n) }

// Count returns a whole number of a record, or 0 if it has none.
func Count(record strictjson.Value, name string) int {
	n, _ := strconv.Atoi(record.Get(name).Text)
	return n
}

// Value is a value as a page shows it: the first of Button, Time, List, Links, Pairs and Text that is set.
type Value struct {
	Text   string
	Time   string // a time in RFC 3339, which Text shows to people
	Href   string
	Class  string
	List   []string
	Pairs  []Pair // the members of an object
	Copy   bool   // a button copies the text
	Button *layout.Button
	Links  []site.Link // to records
	Thumb  *Thumb      // stands before the others
}

// Thumb is a small picture of a record.
type Thumb struct {
	Address string
	Icon    string // in place of a picture, an SVG path in a square of 16 by 16
}

// Pair is a value with its name.
type Pair struct {
	Name  string
	Value Value
}

// maxDepth is how deep nested objects are laid out. Deeper ones are shown as JSON.
const maxDepth = 3

// presentMember returns the member of an object as a page shows it. Members named _at are times in Unix seconds.
func presentMember(name string, v strictjson.Value, depth int) Value {
	seconds, err := strconv.ParseInt(v.Text, 10, 64)
	if err == nil && v.Is == strictjson.Number && seconds > 0 && strings.HasSuffix(name, "_at") {
		text := time.Unix(seconds, 0).UTC().Format(time.RFC3339)
		return Present(strictjson.Value{Is: strictjson.Text, Text: text}, depth)
	}
	return Present(v, depth)
}

// Present returns a value as a page shows it. depth counts the objects around it.
func Present(v strictjson.Value, depth int) Value {
	switch v.Is {
	case strictjson.Null:
		return Value{Text: "–", Class: "none"}
	case strictjson.True:
		return Value{Text: "Yes"}
	case strictjson.False:
		return Value{Text: "No", Class: "none"}
	case strictjson.Number:
		return Value{Text: v.Text, Class: "number"}
	case strictjson.Text:
		if v.Text == "" {
			return Value{Text: "–", Class: "none"}
		}
		if moment, err := time.Parse(time.RFC3339, v.Text); err == nil {
			utc := moment.UTC()
			return Value{Text: utc.Format("2006-01-02 15:04"), Time: utc.Format(time.RFC3339), Class: "moment"}
		}
		return Value{Text: v.Text}
	case strictjson.Array:
		return presentList(v, depth)
	}
	if list := Unnamed(v); list.Is != strictjson.Object {
		return Present(list, depth)
	}
	if depth >= maxDepth || len(v.Members) == 0 {
		text := string(v.Raw())
		if len(v.Members) == 0 {
			return Value{Text: "–", Class: "none"}
		}
		return Value{Text: text}
	}
	s := Value{Class: "pairs"}
	for _, m := range v.Members {
		s.Pairs = append(s.Pairs, Pair{site.Label(m.Name), presentMember(m.Name, m.Value, depth+1)})
	}
	return s
}

// Unnamed returns the list of a labelled list, {label, value} in the API, and any other value as it is.
func Unnamed(v strictjson.Value) strictjson.Value {
	if len(v.Members) == 2 && v.Members[0].Name == "label" && v.Members[1].Name == "value" &&
		v.Members[1].Value.Is == strictjson.Array {
		return v.Members[1].Value
	}
	return v
}

func presentList(v strictjson.Value, depth int) Value {
	if len(v.Items) == 0 {
		return Value{Text: "–", Class: "none"}
	}
	s := Value{}
	for i, item := range v.Items {
		if item.Is == strictjson.Object && depth < maxDepth {
			one := Present(item, depth+1)
			name := "Entry " + itoa(i+1)
			if line := item.Get("line").Text; line != "" {
				name = "Line " + line
			}
			s.Pairs = append(s.Pairs, Pair{Name(item, name), one})
			continue
		}
		s.List = append(s.List, plainText(item))
	}
	return s
}

// plainText returns a value in one line.
func plainText(v strictjson.Value) string {
	if text := v.Get("message").Text; text != "" { // a fault of the input
		return text
	}
	one := Present(v, maxDepth)
	if one.Class == "none" && v.Is != strictjson.False {
		return ""
	}
	if one.List != nil {
		return strings.Join(one.List, ", ")
	}
	return one.Text
}

// Clip shortens a text to fit into a cell.
func Clip(text string) string {
	const most = 160
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// Without returns a copy of an object without the named members.
func Without(object strictjson.Value, names ...string) strictjson.Value {
	object.Members = slices.DeleteFunc(slices.Clone(object.Members), func(m strictjson.Member) bool {
		return slices.Contains(names, m.Name)
	})
	return object
}
