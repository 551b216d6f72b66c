package store_test

import (
	"fmt"
	"reflect"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/store"
)

// newerItem is what a later version of the program has made of item: it has fields before, between and after the
// known ones, and values with every character that ends something in JSON.
type newerItem struct {
	First any `json:"first"`
	item
	Text2 string         `json:"text2"`
	List  []any          `json:"list"`
	Deep  map[string]any `json:"deep"`
	Last  any            `json:"näme"`
}

func newerItems() map[string]newerItem {
	const nasty = `a "quoted" \ backslash, {brace} [bracket] ünicode <&>` + "\n\x00"
	return map[string]newerItem{
		"scalars": {First: 1.5, Text2: nasty, Last: true},
		"texts":   {First: nasty, Text2: `\`, Last: `"`},
		"nested": {
			First: map[string]any{"name": nasty, "b": []any{nil, map[string]any{"c": "}"}}},
			List:  []any{"]", []any{}, map[string]any{}, nasty}, Deep: map[string]any{nasty: nasty}, Last: []any{1.0},
		},
		"empty": {List: []any{}, Deep: map[string]any{}},
	}
}

// otherVersion opens the workspace of a fixture in the way of a program with other kinds.
func otherVersion(t *testing.T, engine driver.Engine, kinds ...*store.Spec) *store.Workspace {
	t.Helper()
	ws, err := store.New(store.Options{Engine: engine, Tenant: kinds}).At(t.Context(), 1, store.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	return ws
}

// TestUnknownMembersAreKept: a version that does not know a field keeps what a newer one stored there, when it changes
// the record, except if the record is replaced with a Bare one.
func TestUnknownMembersAreKept(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		t.Helper()
		engine := open(t)
		f := setupOn(t, engine, nil)
		items := define[newerItem](t, itemSpec())
		newer, older := items.In(otherVersion(t, engine, items.Spec(), f.plains.Spec())), f.items.In(f.ws)
		for name, rec := range newerItems() {
			rec.Code, rec.Fields = name, map[string]any{"own": "value"}
			insert(t, newer, &rec)
			was, err := newer.Get(t.Context(), rec.ID)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 3 {
				one, err := older.Get(t.Context(), rec.ID)
				if err == nil {
					one.Name = fmt.Sprint("changed ", n)
					err = older.Replace(t.Context(), one)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			got, err := newer.Get(t.Context(), rec.ID)
			if err != nil || got.Name != "changed 2" {
				t.Fatalf("%s: got %+v, %v", name, got, err)
			}
			was.Name, was.Meta = got.Name, got.Meta
			if !reflect.DeepEqual(got, was) {
				t.Errorf("%s: after changes by an older version: got %+v, want %+v", name, got, was)
			}
			one, err := older.Get(t.Context(), rec.ID)
			if err == nil {
				*one = item{Meta: one.Bare(), Code: one.Code}
				err = older.Replace(t.Context(), one)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err = newer.Get(t.Context(), rec.ID); err != nil || got.Text2 != "" || got.First != nil || got.Last != nil {
				t.Errorf("%s: after a bare replacement: got %+v, %v, want no field of the newer version", name, got, err)
			}
		}
	})
}

// selfEncoded is a record whose type encodes itself, and knows its members alone.
type selfEncoded struct {
	store.Meta
	Name string `json:"name"`
}

func (s *selfEncoded) UnmarshalJSON([]byte) error { s.Name = "read"; return nil }

// TestUnknownMembersOfSelfEncoded: nothing is added to what a type encodes itself.
func TestUnknownMembersOfSelfEncoded(t *testing.T) {
	t.Parallel()
	engine := openSQLite(t)
	f := setupOn(t, engine, nil)
	plains := define[selfEncoded](t, store.Spec{Name: "plains"})
	c := plains.In(otherVersion(t, engine, f.items.Spec(), plains.Spec()))
	insert(t, f.plains.In(f.ws), &plain{Name: "n", Count: 7})
	found, err := c.Find(t.Context(), store.Query{})
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if err := c.Replace(t.Context(), &found[0]); err != nil {
		t.Fatal(err)
	}
	got, err := f.plains.In(f.ws).Get(t.Context(), found[0].ID)
	if err != nil || got.Name != "read" || got.Count != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}
