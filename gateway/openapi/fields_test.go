package openapi

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type Base struct {
	ID   string `json:"id"`
	Name string
	Both int
}

type Other struct {
	Both int
	Deep Base `json:"deep"`
}

type Text string

type outer struct {
	Base
	*Other
	Text
	Name    string `json:"Name"`
	Renamed Base   `json:"base"`
	Skip    int    `json:"-"`
	Dash    int    `json:"-,"` //nolint:staticcheck // the name "-" is what is tested
	private int
	Empty   Base `json:",omitempty"`
	Zero    Base `json:"zero,omitzero"`
	None    *int `json:"none"`
	Maybe   *int `json:"maybe,omitempty"`
}

// TestFieldsAreThoseThatAreWritten compares jsonFields with the output of encoding/json.
func TestFieldsAreThoseThatAreWritten(t *testing.T) {
	t.Parallel()
	n := 1
	for name, test := range map[string]struct {
		value outer
		full  bool
	}{
		"zero": {value: outer{private: 1}},
		"full": {outer{Other: &Other{}, Zero: Base{ID: "a"}, Maybe: &n}, true},
	} {
		text, err := json.Marshal(test.value)
		if err != nil {
			t.Fatal(err)
		}
		var written map[string]any
		if err := json.Unmarshal(text, &written); err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, f := range jsonFields(reflect.TypeFor[outer]()) {
			if test.full || f.required {
				got = append(got, f.name)
			}
		}
		for member := range written {
			want = append(want, member)
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-encoding/json +jsonFields):\n%s", name, diff)
		}
	}
}

type node struct {
	Next     *node  `json:"next"`
	Children []node `json:"children"`
}

type list []list

type table map[string]table

type pair[A, B any] struct {
	A A `json:"a"`
	B B `json:"b"`
}

func TestRecursiveAndGenericTypesBecomeComponents(t *testing.T) {
	t.Parallel()
	type node2 = node
	s := newSchemas()
	for _, typ := range []reflect.Type{
		reflect.TypeFor[node2](), reflect.TypeFor[list](), reflect.TypeFor[table](), reflect.TypeFor[pair[node, json.Number]](),
	} {
		if _, err := s.of(typ); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
	}
	text, err := encode(sorted(s.components))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"OpenapiList":{"type":"array","items":{"$ref":"#/components/schemas/OpenapiList"}},` +
		`"OpenapiNode":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/components/schemas/OpenapiNode"},{"type":"null"}]},` +
		`"children":{"type":"array","items":{"$ref":"#/components/schemas/OpenapiNode"}}},"required":["next","children"],"additionalProperties":false},` +
		`"OpenapiPairOpenapiNodeJsonNumber":{"type":"object","properties":{"a":{"$ref":"#/components/schemas/OpenapiNode"},"b":{"type":"number"}},"required":["a","b"],"additionalProperties":false},` +
		`"OpenapiTable":{"type":"object","additionalProperties":{"$ref":"#/components/schemas/OpenapiTable"}}}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("components (-want +got):\n%s", diff)
	}
}

func TestTypesOfOneNameGetDifferentComponents(t *testing.T) {
	t.Parallel()
	first := func() reflect.Type { type same struct{ A int }; return reflect.TypeFor[same]() }()
	second := func() reflect.Type { type same struct{ B int }; return reflect.TypeFor[same]() }()
	s := newSchemas()
	a, errA := s.of(first)
	b, errB := s.of(second)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if a.get("$ref") == b.get("$ref") || len(s.components) != 2 {
		t.Errorf("both are %v", a)
	}
}
