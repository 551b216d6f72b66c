package record_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/record"
	"tenantry/backends/record/recordtest"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// tool has a field of every type.
type tool struct {
	store.Meta
	Name    string            `json:"name" rule:"required max=10 format=label unique" use:"named"`
	Code    string            `json:"code,omitempty" rule:"max=5 format=key unique within=shelf" use:"identity"`
	Shelf   string            `json:"shelf,omitempty" rule:"format=id ref=shelf" use:"filter"`
	Maker   string            `json:"maker,omitempty" rule:"max=5 ref=maker"`
	Mail    string            `json:"mail,omitempty" rule:"format=email"`
	Weight  int64             `json:"weight" rule:"max=100" use:"filter"`
	Sharp   bool              `json:"sharp"`
	Lent    *bool             `json:"lent,omitempty"`
	Words   []string          `json:"words,omitempty" rule:"max=2 each=3 format=line"`
	Marks   map[string]bool   `json:"marks,omitempty" use:"merge"`
	Parts   map[string]int64  `json:"parts,omitempty" rule:"min=1 max=9" use:"merge"`
	Notes   map[string]any    `json:"notes,omitempty" use:"always"`
	Schema  schema.Fields     `json:"schema,omitempty"`
	Values  map[string]any    `json:"values,omitempty" store:"custom"`
	Teams   []string          `json:"teams,omitempty" rule:"format=id ref=team" use:"scope"`
	Deleted bool              `json:"deleted" use:"scope"`
	Secrets map[string]string `json:"secrets,omitempty" use:"secret"`
	Inner   string            `json:"inner" use:"local"`
}

func define(t testing.TB) *record.Of[tool] {
	t.Helper()
	of, err := record.Define(record.Options[tool]{
		Traits: record.Traits{Name: "tool", DefinedBy: "maker"},
		Spec:   store.Spec{Name: "tools"},
		Preset: func(r *tool) { r.Sharp = true },
		Derive: func(r *tool) { r.Inner = strings.ToLower(r.Name) },
		Check: func(c *record.Checking, r *tool) {
			if r.Name == "hammer" && r.Sharp {
				c.Errs.Add("sharp", fault.Forbidden, "a hammer is blunt")
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return of
}

const (
	shelf = "0000000000000000000000a1"
	team  = "0000000000000000000000b1"
)

func known() *record.Known {
	var k record.Known
	k.Cover("maker")
	k.Admit("team", team)
	k.Admit("maker", "acme")
	return &k
}

func TestRecordsRoundTrip(t *testing.T) {
	t.Parallel()
	of := define(t)
	const text = `{"id":"0000000000000000000000c1","name":"saw","code":"s1","shelf":"` + shelf + `","mail":"a@example.com","weight":7,"sharp":false,` +
		`"lent":true,"words":["a","b"],"marks":{"x":true},"parts":{"y":2},"notes":{"n":1},"schema":{"f":{"title":"F","type":"Text"}},` +
		`"teams":["` + team + `"],"deleted":true,"created_at":"2024-05-17T08:30:00.000Z","updated_at":"2024-05-17T08:30:00.000Z"}`
	rec, errs := recordtest.Read(t, of, record.Checking{Known: known()}, strings.Replace(text, `"schema"`, `"values":{},"schema"`, 1))
	if len(errs) > 0 {
		t.Fatalf("faults %v, want none", errs)
	}
	if rec.Inner != "saw" || rec.UpdatedAt != 1715934600000 {
		t.Errorf("read %+v, want inner saw and updated_at 1715934600000", rec)
	}
	var written []string
	for i := range of.Fields {
		if b := of.Fields[i].Append(nil, rec); len(b) > 0 {
			written = append(written, `"`+of.Fields[i].Name+`":`+string(b))
		}
	}
	if got := "{" + strings.Join(written, ",") + "}"; got != text {
		t.Errorf("written as %s\nwant       %s", got, text)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	of := define(t)
	for text, want := range map[string]string{
		`{}`:                                     "name required",
		`{"name":" "}`:                           "name required",
		`{"name":"x","nome":1}`:                  "nome unknown",
		`{"name":"x","inner":"y"}`:               "inner unknown",
		`{"name":"x","secrets":{}}`:              "secrets unknown",
		`{"name":"12345678901"}`:                 "name length",
		`{"name":7}`:                             "name type",
		`{"name":"x","id":null}`:                 "id format",
		`{"name":"x","shelf":"A"}`:               "shelf format",
		`{"name":"x","shelf":null}`:              "",
		`{"name":"x","code":"a b"}`:              "code format",
		`{"name":"x","mail":"me"}`:               "mail format",
		`{"name":"x","maker":"who"}`:             "maker unknown",
		`{"name":"x","weight":101}`:              "weight range",
		`{"name":"x","weight":-1}`:               "weight range",
		`{"name":"x","weight":1.5}`:              "weight range",
		`{"name":"x","sharp":1}`:                 "sharp type",
		`{"name":"x","lent":null}`:               "lent type",
		`{"name":"x","words":["a","b","c"]}`:     "words length",
		`{"name":"x","words":["four"]}`:          "words length",
		`{"name":"x","words":[""]}`:              "words required",
		`{"name":"x","words":["a","a"]}`:         "words duplicate",
		`{"name":"x","words":["\n"]}`:            "words format",
		`{"name":"x","words":"a"}`:               "words type",
		`{"name":"x","words":[1]}`:               "words type",
		`{"name":"x","marks":{"a":1}}`:           "marks.a type",
		`{"name":"x","marks":[]}`:                "marks type",
		`{"name":"x","parts":{"a":10,"b":0}}`:    "parts.a type, parts.b type",
		`{"name":"x","notes":1}`:                 "notes type",
		`{"name":"x","schema":[]}`:               "schema type",
		`{"name":"x","schema":{"a":{}}}`:         "schema.a.title required, schema.a.type required",
		`{"name":"x","values":{"what":1}}`:       "values.what unknown",
		`{"name":"x","teams":["` + shelf + `"]}`: "teams unknown",
		`{"name":"x","created_at":"today"}`:      "created_at format",
		`{"name":"hammer"}`:                      "sharp forbidden",
		`{"name":"hammer","sharp":2}`:            "sharp type",
		`{"name":"hammer","teams":7}`:            "teams type, sharp forbidden",
	} {
		_, errs := recordtest.Read(t, of, record.Checking{Known: known()}, text)
		var got []string
		for _, e := range errs {
			got = append(got, e.Field+" "+e.Code)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestCopyReplacesOrMerges(t *testing.T) {
	t.Parallel()
	of := define(t)
	to := &tool{Words: []string{"a"}, Marks: map[string]bool{"a": true, "b": true}}
	from := &tool{Words: []string{"b"}, Marks: map[string]bool{"b": false}}
	for i := range of.Fields {
		of.Fields[i].Copy(to, from)
	}
	if !slices.Equal(to.Words, []string{"b"}) || len(to.Marks) != 2 || !to.Marks["a"] || to.Marks["b"] {
		t.Errorf("copied to %+v, want words replaced by b, and marks a true, b false", to)
	}
	if from.Marks["a"] {
		t.Error("the source was changed")
	}
	// With Clear, null removes all members of a merged field.
	var p strictjson.Parser
	for text, left := range map[string]int{`{"marks":{}}`: 2, `{"marks":null}`: 0} {
		v, err := p.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		rec := &tool{Name: "x", Marks: map[string]bool{"a": true, "b": true}}
		if of.Change(&record.Checking{Errs: new(fault.List), Known: new(record.Known), Clear: true}, v, rec); len(rec.Marks) != left {
			t.Errorf("%s leaves %v, want %d marks", text, rec.Marks, left)
		}
	}
}

func TestSpecUniquesAndReferences(t *testing.T) {
	t.Parallel()
	of := define(t)
	spec := of.Spec()
	if !spec.Custom || !spec.Teams || !spec.SoftDelete || !slices.Equal(spec.Fields, []string{"name", "code", "shelf", "weight"}) || len(spec.Indexes) != 3 || len(spec.Access) != 3 {
		t.Errorf("spec %+v, want custom fields, teams, a trash, 4 fields, 3 indexes and 3 access paths", spec)
	}
	if u := of.Uniques; len(u) != 2 || u[0].Identity != record.Named || u[1].Identity != record.Always || u[1].Group(&tool{Shelf: shelf}) != shelf {
		t.Errorf("uniques %+v, want name (Named) and code (Always, within the shelf)", u)
	}
	rec := &tool{Shelf: shelf, Teams: []string{team}, Maker: "acme"}
	var seen []string
	of.Refers(rec, func(field, target string, id *string) {
		seen = append(seen, field+" "+target+" "+*id)
		*id = "other"
	})
	if want := []string{"shelf shelf " + shelf, "teams team " + team}; !slices.Equal(seen, want) || rec.Shelf != "other" || rec.Teams[0] != "other" {
		t.Errorf("Refers visited %q, left %+v; want %q, all replaced by other", seen, rec, want)
	}
}

func TestDefineRefusesInvalidStructs(t *testing.T) {
	t.Parallel()
	type odd struct {
		store.Meta
		F float64 `json:"f"`
	}
	type form struct {
		store.Meta
		F string `json:"f" rule:"format=latin"`
	}
	type twice struct {
		store.Meta
		F string `json:"f"`
		G string `json:"g" as:"f"`
	}
	type kind struct {
		store.Meta
		F string `json:"kind"`
	}
	type due struct {
		store.Meta
		F int64 `json:"f" rule:"format=time" use:"filter"`
	}
	type bare struct {
		F string `json:"f"`
	}
	_, e1 := record.Define(record.Options[odd]{Spec: store.Spec{Name: "a"}})
	_, e2 := record.Define(record.Options[form]{Spec: store.Spec{Name: "a"}})
	_, e3 := record.Define(record.Options[twice]{Spec: store.Spec{Name: "a"}})
	_, e4 := record.Define(record.Options[bare]{Spec: store.Spec{Name: "a"}})
	_, e5 := record.Define(record.Options[kind]{Spec: store.Spec{Name: "a"}})
	_, e6 := record.Define(record.Options[due]{Spec: store.Spec{Name: "a"}})
	many := make([]reflect.StructField, 80)
	many[0] = reflect.StructField{Name: "Meta", Type: reflect.TypeFor[store.Meta](), Anonymous: true}
	for i := 1; i < len(many); i++ {
		many[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: reflect.TypeFor[string](), Tag: reflect.StructTag(fmt.Sprintf(`json:"f%d"`, i))}
	}
	_, e7 := record.Describe(reflect.StructOf(many), record.Traits{Name: "many"}, nil, nil)
	for want, err := range map[string]error{
		"more than 64": e7, "is named kind": e5, `needs the tag store:"time"`: e6, "cannot be read": e1,
		"unknown format latin": e2, "two fields": e3, "no store.Meta": e4,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
