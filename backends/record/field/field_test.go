package field_test

import (
	"reflect"
	"strings"
	"testing"

	"tenantry/backends/record/field"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

type part struct {
	N int `json:"n"`
}

type input struct {
	Text   string              `json:"text" rule:"required min=2 max=4"`
	Line   string              `json:"line" rule:"min=1 max=3"`
	Mode   string              `json:"mode" rule:"enum=on|off"`
	Open   *bool               `json:"open"`
	Words  *[]string           `json:"words" rule:"min=1 max=2 each=3"`
	Count  int8                `json:"count"`
	Least  int64               `json:"least" rule:"min=1"`
	Groups map[string][]string `json:"groups" rule:"max=2 enum=a|b"`
	Part   part                `json:"part"`
	Parts  []part              `json:"parts"`
}

// TestRead: what each type of field accepts, and its messages for invalid values.
func TestRead(t *testing.T) {
	t.Parallel()
	fields, err := field.Of(reflect.TypeFor[input]())
	if err != nil {
		t.Fatal(err)
	}
	yes := true
	good := input{Text: "äöü", Mode: "on", Open: &yes, Words: &[]string{"x"}, Count: 7, Least: 2, Groups: map[string][]string{"a": {"x", "y"}}, Part: part{1}, Parts: []part{{2}}}
	for _, c := range []struct {
		given string
		want  *input
		says  string
	}{
		{`{"text":"äöü","mode":"on","open":true,"words":["x"],"count":7,"least":2,"groups":{"a":["x","y"]},"part":{"n":1},"parts":[{"n":2}]}`, &good, ""},
		{`{}`, nil, "text is required"},
		{`{"text":" "}`, nil, "text must not be empty"},
		{`{"text":"x"}`, nil, "text must have 2 to 4 characters"},
		{`{"text":"xxxxx"}`, nil, "text must have 2 to 4 characters"},
		{`{"text":"xx","line":"\n"}`, nil, "line must not be empty"},
		{`{"text":"xx","line":"xxxx"}`, nil, "line must have at most 3 characters"},
		{`{"text":"xx","mode":"ON","open":null,"count":300,"least":0}`, nil,
			"mode must be on or off; open must be true or false; count must be a whole number, at least 0; least must be a whole number, at least 1"},
		{`{"text":"xx","mode":"","count":1.5,"least":1e3}`, nil,
			"mode must be on or off; count must be a whole number, at least 0; least must be a whole number, at least 1"},
		{`{"text":"xx","words":[]}`, nil, "words must have 1 to 2 elements"},
		{`{"text":"xx","words":["long"]}`, nil, "each element of words must have at most 3 characters"},
		{`{"text":"xx","words":["a","a"]}`, nil, "words names the same element twice"},
		{`{"text":"xx","words":[1]}`, nil, "words must be a list of strings"},
		{`{"text":"xx","groups":{"a":["x","y","z"],"c":[]}}`, nil, "groups.a must have at most 2 elements; groups.c is not known; there are: [a b]"},
		{`{"text":"xx","part":{"m":1},"parts":null}`, nil, "part must be an object; parts must be a list"},
		{`{"text":"xx","part":[]}`, nil, "part must be an object"},
	} {
		var p strictjson.Parser
		v, err := p.Parse(c.given)
		if err != nil {
			t.Fatal(err)
		}
		var errs fault.List
		var in input
		for i := range fields {
			given := v.Get(fields[i].Name)
			here := strings.Contains(c.given, `"`+fields[i].Name+`"`)
			if here {
				fields[i].Read(given, &in, &errs)
			}
			fields[i].Demand(here, &in, &errs)
		}
		said := ""
		if err := errs.Err(); err != nil {
			said = err.Error()
		}
		if said != c.says || c.want != nil && !reflect.DeepEqual(&in, c.want) {
			t.Errorf("%s: read %+v\nmessages %s\nwant     %s", c.given, in, said, c.says)
		}
	}
}
