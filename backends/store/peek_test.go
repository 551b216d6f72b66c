package store_test

import (
	"errors"
	"fmt"
	"testing"

	"tenantry/backends/store"
)

type peeked struct {
	store.Meta
	Name    string   `json:"name"`
	Teams   []string `json:"teams,omitempty"`
	Deleted bool     `json:"deleted"`
}

// TestPeekSeesEveryChange: Peek saves the decoding, but always reads the document.
func TestPeekSeesEveryChange(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		kind, err := store.Define[peeked](store.Spec{Name: "peeked", Teams: true, SoftDelete: true})
		if err != nil {
			t.Fatal(err)
		}
		s := store.New(store.Options{Engine: open(t), Tenant: []*store.Spec{kind.Spec()}})
		ctx := t.Context()
		first, err := s.At(ctx, 1, store.Placement{})
		if err != nil {
			t.Fatal(err)
		}
		second, err := s.At(ctx, 2, store.Placement{})
		if err != nil {
			t.Fatal(err)
		}
		rec := &peeked{Name: "one", Teams: []string{"aaaaaaaaaaaaaaaaaaaaaaaa"}}
		if err := kind.In(first).Insert(ctx, rec); err != nil {
			t.Fatal(err)
		}
		other := &peeked{Meta: store.Meta{ID: rec.ID}, Name: "of another organization"}
		if err := kind.In(second).Insert(ctx, other); err != nil {
			t.Fatal(err)
		}
		want := func(ws *store.Workspace, name string) {
			t.Helper()
			for n := range 2 { // decoded, then from the cache
				got, made, err := kind.In(ws).Peek(ctx, rec.ID)
				if err != nil || got.Name != name || got.ID != rec.ID {
					t.Fatalf("Peek = %+v, %v; want %s", got, err, name)
				}
				if found, err := kind.In(ws).Find(ctx, store.Query{Filter: store.Eq("id", rec.ID), Shared: true}); err != nil || len(found) != 1 || found[0].Name != name || len(found[0].Teams) != len(got.Teams) {
					t.Fatalf("Find = %+v, %v; want %s", found, err, name)
				}
				for _, from := range []string{"", "shown to others"} {
					is, err := made.Of(from, func() (any, error) { return fmt.Sprint(from, got.Name, n), nil })
					if err != nil || is != fmt.Sprint(from, name, n) && (is != fmt.Sprint(from, name, 0) || from == "") {
						t.Fatalf("derived from %q: %v, %v", name, is, err)
					}
				}
				if is, _ := made.Of("shown to others", func() (any, error) { return "anew", nil }); is == "anew" {
					t.Fatal("the cached value was computed again")
				}
				if _, err := made.Of("", func() (any, error) { return nil, errors.New("no") }); err == nil {
					t.Fatal("Of returned no error, want that of compute")
				}
			}
		}
		want(first, "one")
		want(second, "of another organization")
		want(first, "one")
		if _, _, err := kind.In(first.Scoped(store.Scope{})).Peek(ctx, rec.ID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("out of scope: %v", err)
		}
		rec.Name = "two"
		if err := kind.In(first).Replace(ctx, rec); err != nil {
			t.Fatal(err)
		}
		want(first, "two")
		for _, deleted := range []bool{true, false} {
			if rec.Deleted = deleted; kind.In(first).Replace(ctx, rec) != nil {
				t.Fatal("Replace failed")
			}
			if _, _, err := kind.In(first).Peek(ctx, rec.ID); errors.Is(err, store.ErrNotFound) != deleted {
				t.Errorf("in the trash %t: %v", deleted, err)
			}
		}
		if err := kind.In(first).Delete(ctx, rec); err != nil {
			t.Fatal(err)
		}
		if _, _, err := kind.In(first).Peek(ctx, rec.ID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("deleted: %v", err)
		}
		again := &peeked{Meta: store.Meta{ID: rec.ID}, Name: "made again at the first revision"}
		if err := kind.In(first).Insert(ctx, again); err != nil {
			t.Fatal(err)
		}
		want(first, again.Name)
		if err := kind.In(first).Delete(ctx, again); err != nil {
			t.Fatal(err)
		}
		third := &peeked{Meta: store.Meta{ID: rec.ID}, Name: "of the same id and revision"}
		if err := kind.In(first).Insert(ctx, third); err != nil {
			t.Fatal(err)
		}
		want(first, third.Name)
		if _, _, err := kind.In(first).Peek(ctx, "no identifier"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("malformed: %v", err)
		}
	})
}
