package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/store"
)

// TestAlong: the first change comes with the first write, and the last ones with the last where the engine has
// transactions; what is refused is named by its place among those who wrote it.
func TestAlong(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		e := open(t)
		transacts, is := e.(driver.Atomic)
		whole := is && transacts.Atomic()
		f := setupOn(t, e, nil)
		c := f.plains.In(f.ws)
		there := &plain{Name: "there"}
		insert(t, c, there)
		stale := *there
		if err := c.Replace(t.Context(), there); err != nil {
			t.Fatal(err)
		}
		ready := false
		along := f.ws.Along(func(context.Context) (bool, error) { return ready, nil })
		first, err := c.Inserting(&plain{Name: "first"})
		if err != nil {
			t.Fatal(err)
		}
		along.First(first)
		along.Last(func(context.Context) (store.Change, error) { return c.Inserting(&plain{Name: "last"}) })
		ctx := along.With(t.Context())
		for range 2 { // also as the last one
			var dup *store.DuplicateError
			var conflict *store.ConflictError
			if err := c.Insert(ctx, &plain{Name: "none"}, &plain{Meta: store.Meta{ID: there.ID}}); !errors.As(err, &dup) || dup.Position != 1 {
				t.Errorf("an identifier that is there: %v", err)
			}
			if err := c.Replace(ctx, ptr(*there), ptr(stale)); !errors.As(err, &conflict) || conflict.Position != 1 {
				t.Errorf("a record that was changed: %v", err)
			}
			ready = true
		}
		if along.Begun() || along.Ended() {
			t.Error("something was stored with what was refused")
		}
		ready = false
		insert := func(name string) {
			t.Helper()
			if err := c.Insert(ctx, &plain{Name: name}); err != nil {
				t.Error(err)
			}
		}
		insert("one")
		if !along.Begun() || along.Ended() {
			t.Errorf("after one of several: %t, %t", along.Begun(), along.Ended())
		}
		ready = true
		insert("two")
		insert("three")
		want := []string{"first", "last", "one", "there", "three", "two"}
		if !whole {
			want = slices.Delete(want, 1, 2)
		}
		all, err := c.Find(t.Context(), store.Query{Sort: []store.Order{store.Asc("name")}})
		var got []string
		for _, rec := range all {
			got = append(got, rec.Name)
		}
		if err != nil || along.Ended() != whole || !slices.Equal(got, want) {
			t.Errorf("%q, %v, ended %t; want %q", got, err, along.Ended(), want)
		}
	})
}

// TestAlongStaysAtHome: neither a write nor a last change of another organization is taken for one of this.
func TestAlongStaysAtHome(t *testing.T) {
	t.Parallel()
	f := setup(t, openSQLite)
	other, err := f.At(t.Context(), 2, store.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	own, foreign := f.plains.In(f.ws), f.plains.In(other)
	along := f.ws.Along(func(context.Context) (bool, error) { return true, nil })
	along.Last(func(context.Context) (store.Change, error) { return foreign.Inserting(&plain{Name: "last"}) })
	ctx := along.With(t.Context())
	wantErr(t, "a last change of another organization", own.Insert(ctx, &plain{Name: "own"}), store.ErrQuery)
	if err := foreign.Insert(ctx, &plain{Name: "foreign"}); err != nil || along.Ended() {
		t.Errorf("a write of another organization: %v, ended %t", err, along.Ended())
	}
	for org, in := range map[int]store.Collection[plain]{0: own, 1: foreign} {
		if n, err := in.Count(t.Context(), store.Filter{}); n != int64(org) || err != nil {
			t.Errorf("%d records, %v; want %d", n, err, org)
		}
	}
}
