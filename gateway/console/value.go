package console

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/internal/strictjson"
)

// shown is a value of an answer as a page shows it.
type shown struct {
	Text  string
	Time  string // the moment, where it is one
	Href  string
	Class string
	List  []string // each as a mark of its own
	Pairs []pair   // of an object
	Copy  bool     // a button copies it
	// Button stands in the place of a value.
	Button *layout.Button
	Links  []site.Link // to records
}

type pair struct {
	Name  string
	Value shown
}

// deepest is how far objects within objects are laid out; what is deeper is shown as JSON.
const deepest = 3

// member returns how a page shows the value that an object has by that name: numbers of moments are seconds.
func member(name string, v strictjson.Value, depth int) shown {
	if seconds, err := strconv.ParseInt(v.Text, 10, 64); err == nil && v.Is == strictjson.Number && seconds > 0 && strings.HasSuffix(name, "_at") {
		return present(strictjson.Value{Is: strictjson.Text, Text: time.Unix(seconds, 0).UTC().Format(time.RFC3339)}, depth)
	}
	return present(v, depth)
}

// present returns how a page shows a value.
func present(v strictjson.Value, depth int) shown {
	switch v.Is {
	case strictjson.Null:
		return shown{Text: "–", Class: "none"}
	case strictjson.True:
		return shown{Text: "Yes"}
	case strictjson.False:
		return shown{Text: "No", Class: "none"}
	case strictjson.Number:
		return shown{Text: v.Text, Class: "number"}
	case strictjson.Text:
		if v.Text == "" {
			return shown{Text: "–", Class: "none"}
		}
		if moment, err := time.Parse(time.RFC3339, v.Text); err == nil {
			return shown{Text: moment.UTC().Format("2006-01-02 15:04"), Time: moment.UTC().Format(time.RFC3339), Class: "moment"}
		}
		return shown{Text: v.Text}
	case strictjson.Array:
		return presentList(v, depth)
	}
	if list := unnamed(v); list.Is != strictjson.Object {
		return present(list, depth)
	}
	if depth >= deepest || len(v.Members) == 0 {
		text := string(v.Raw())
		if len(v.Members) == 0 {
			return shown{Text: "–", Class: "none"}
		}
		return shown{Text: text}
	}
	s := shown{Class: "pairs"}
	for _, m := range v.Members {
		s.Pairs = append(s.Pairs, pair{site.Label(m.Name), member(m.Name, m.Value, depth+1)})
	}
	return s
}

// unnamed returns the value of {label, value}, which is the contract's way to name a list, and any other as it is.
func unnamed(v strictjson.Value) strictjson.Value {
	if len(v.Members) == 2 && v.Members[0].Name == "label" && v.Members[1].Name == "value" && v.Members[1].Value.Is == strictjson.Array {
		return v.Members[1].Value
	}
	return v
}

func presentList(v strictjson.Value, depth int) shown {
	if len(v.Items) == 0 {
		return shown{Text: "–", Class: "none"}
	}
	s := shown{}
	for i, item := range v.Items {
		if item.Is == strictjson.Object && depth < deepest {
			one := present(item, depth+1)
			name := "Entry " + itoa(i+1)
			if line := item.Get("line").Text; line != "" {
				name = "Line " + line
			}
			s.Pairs = append(s.Pairs, pair{nameOf(item, name), one})
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
	one := present(v, deepest)
	if one.Class == "none" && v.Is != strictjson.False {
		return ""
	}
	if one.List != nil {
		return strings.Join(one.List, ", ")
	}
	return one.Text
}

// clip shortens what stands in a cell.
func clip(text string) string {
	const most = 160
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// without returns the members of an object but those.
func without(object strictjson.Value, names ...string) strictjson.Value {
	object.Members = slices.DeleteFunc(slices.Clone(object.Members), func(m strictjson.Member) bool { return slices.Contains(names, m.Name) })
	return object
}
