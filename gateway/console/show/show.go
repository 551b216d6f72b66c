// Package show turns what operations answer into what pages show: values with their units, times and links, records by
// their names, lists as tables, fields that organizations define under their titles.
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

// Lacking returns the parameter of the operation's path that names one of the rows of a page.
func Lacking(row *operation.Row, path map[string]string) string {
	for _, p := range row.Params {
		if _, has := path[p.Name]; p.In == operation.InPath && !has {
			return p.Name
		}
	}
	return ""
}

// webAddress returns the text where it is the address of a page, else nothing.
func webAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return text
}

// Pretty writes a value as indented JSON, null as nothing.
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

// Parse reads what the program declares as JSON.
func Parse(declared any) strictjson.Value {
	raw, err := json.Marshal(declared)
	if err != nil {
		return strictjson.Value{}
	}
	var p strictjson.Parser
	v, _ := p.Parse(string(raw)) // the program wrote it
	return v
}

func itoa(n int) string { return strconv.Itoa(n) }

// Count returns a figure of a record; 0 where it has none.
func Count(record strictjson.Value, name string) int {
	n, _ := strconv.Atoi(record.Get(name).Text)
	return n
}

// Value is a value of an answer as a page shows it.
type Value struct {
	Text  string
	Time  string // the moment, where it is one
	Href  string
	Class string
	List  []string // each as a mark of its own
	Pairs []Pair   // of an object
	Copy  bool     // a button copies it
	// Button stands in the place of a value.
	Button *layout.Button
	Links  []site.Link // to records
}

// Pair is a value under its name.
type Pair struct {
	Name  string
	Value Value
}

// deepest is how far objects within objects are laid out; what is deeper is shown as JSON.
const deepest = 3

// member returns how a page shows the value that an object has by that name: numbers of moments are seconds.
func member(name string, v strictjson.Value, depth int) Value {
	if seconds, err := strconv.ParseInt(v.Text, 10, 64); err == nil && v.Is == strictjson.Number && seconds > 0 && strings.HasSuffix(name, "_at") {
		return Present(strictjson.Value{Is: strictjson.Text, Text: time.Unix(seconds, 0).UTC().Format(time.RFC3339)}, depth)
	}
	return Present(v, depth)
}

// Present returns how a page shows a value.
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
			return Value{Text: moment.UTC().Format("2006-01-02 15:04"), Time: moment.UTC().Format(time.RFC3339), Class: "moment"}
		}
		return Value{Text: v.Text}
	case strictjson.Array:
		return presentList(v, depth)
	}
	if list := Unnamed(v); list.Is != strictjson.Object {
		return Present(list, depth)
	}
	if depth >= deepest || len(v.Members) == 0 {
		text := string(v.Raw())
		if len(v.Members) == 0 {
			return Value{Text: "–", Class: "none"}
		}
		return Value{Text: text}
	}
	s := Value{Class: "pairs"}
	for _, m := range v.Members {
		s.Pairs = append(s.Pairs, Pair{site.Label(m.Name), member(m.Name, m.Value, depth+1)})
	}
	return s
}

// Unnamed returns the value of {label, value}, which is the contract's way to name a list, and any other as it is.
func Unnamed(v strictjson.Value) strictjson.Value {
	if len(v.Members) == 2 && v.Members[0].Name == "label" && v.Members[1].Name == "value" && v.Members[1].Value.Is == strictjson.Array {
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
		if item.Is == strictjson.Object && depth < deepest {
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

// plainText writes a value in one line.
func plainText(v strictjson.Value) string {
	if text := v.Get("message").Text; text != "" { // a fault
		return text
	}
	one := Present(v, deepest)
	if one.Class == "none" && v.Is != strictjson.False {
		return ""
	}
	if one.List != nil {
		return strings.Join(one.List, ", ")
	}
	return one.Text
}

// Clip shortens what stands in a cell.
func Clip(text string) string {
	const most = 160
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// Without returns the members of an object but those.
func Without(object strictjson.Value, names ...string) strictjson.Value {
	object.Members = slices.DeleteFunc(slices.Clone(object.Members), func(m strictjson.Member) bool { return slices.Contains(names, m.Name) })
	return object
}
