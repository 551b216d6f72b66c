package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"tenantry/backends/store"
)

func TestPlaceName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		backend    string
		generation int64
		want       string
	}{{"", 0, "default"}, {"eu", 0, "eu"}, {"", 1, "default.1"}, {"eu_2", 12, "eu_2.12"}} {
		got := store.PlaceName(test.backend, test.generation)
		backend, generation := store.SplitPlace(got)
		if got != test.want || backend != store.BackendName(test.backend) || generation != test.generation {
			t.Errorf("PlaceName(%q, %d): got %q, split into %q and %d", test.backend, test.generation, got, backend, generation)
		}
	}
}

// TestFill copies an organization from a backup into a place beside the one in use, which stays as it is. Revisions
// rise, and the copy is found, opened and removed by itself.
func TestFill(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		t.Helper()
		const org, owner, place, n = 2, "an installation/an organization", "default.1", 1100 // pages
		engine := open(t)
		f, backup := setupOn(t, engine, nil), setup(t, openSQLite)
		now, then := organization(t, f, org, owner), organization(t, backup, org, owner)
		list := make([]*item, n)
		for i := range list {
			list[i] = &item{Name: fmt.Sprint("n", i), Code: fmt.Sprintf("c%04d", i)}
		}
		for chunk := range slices.Chunk(list, 100) {
			insert(t, backup.items.In(then), chunk...)
		}
		insert(t, f.items.In(now), &item{Name: "now", Code: "c0001"})
		insert(t, f.plains.In(now), &plain{Name: "goes on"})
		insert(t, backup.plains.In(then), &plain{Name: "does not return"})

		what := store.Restoring{Then: then, Without: []string{"plains"}, Number: 1, Alter: func(kind, _ string, body []byte) ([]byte, error) {
			if kind != "items" {
				return nil, errors.New("another kind than was asked for: " + kind)
			}
			return bytes.Replace(body, []byte(`"name":"n7"`), []byte(`"name":"altered"`), 1), nil
		}}
		differ := func(ws *store.Workspace) (returns, removed, changed int) {
			t.Helper()
			err := f.Compare(t.Context(), ws, what, func(d store.Difference) error {
				switch {
				case d.Was == nil:
					returns++
				case d.Becomes == nil:
					removed++
				default:
					changed++
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return returns, removed, changed
		}
		if returns, removed, changed := differ(now); returns != n || removed != 1 || changed != 0 {
			t.Errorf("got %d, %d and %d documents that return, are removed and changed, want %d, 1 and 0", returns, removed, changed, n)
		}
		if err := f.Prepare(t.Context(), org, owner, place); err != nil {
			t.Fatal(err)
		}
		m, err := f.NewFiller(t.Context(), org, owner, place, what)
		if err != nil {
			t.Fatal(err)
		}
		if sums, err := m.Fill(t.Context()); err != nil || len(sums) != 1 || sums[0].Documents != n {
			t.Fatalf("got %+v %v, want the items", sums, err)
		}
		if got, err := f.items.In(now).Count(t.Context(), store.Filter{}); err != nil || got != 1 {
			t.Errorf("in use: got %d %v, want what it was", got, err)
		}
		g := setupOn(t, engine, nil) // another process
		beside, err := g.At(t.Context(), org, store.Placement{Backend: place, Owner: owner})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			got, err := g.items.In(beside).Get(t.Context(), list[i].ID)
			want := list[i].Name
			if want == "n7" {
				want = "altered"
			}
			if err != nil || got.Name != want || got.Code != list[i].Code || got.Rev <= 1<<20 {
				t.Fatalf("item %d: got %+v %v, want %q with a revision that it never had", i, got, err, want)
			}
		}
		if returns, removed, changed := differ(beside); returns+removed+changed > 0 {
			t.Errorf("got %d, %d and %d differences, want none", returns, removed, changed)
		}
		left, err := f.Residents(t.Context(), store.DefaultBackend, func(of int64, at string) bool { return of != org || at != place })
		if err != nil || len(left) != 1 || left[0].Org != org || left[0].Place != place || left[0].Owner != owner {
			t.Errorf("got %+v %v, want the copy", left, err)
		}
		if err := f.RemoveFrom(t.Context(), org, owner, place); err != nil {
			t.Fatal(err)
		}
		if got, err := f.items.In(now).Count(t.Context(), store.Filter{}); err != nil || got != 1 {
			t.Errorf("after the copy was removed: got %d %v, want what it was", got, err)
		}
	})
}

// TestStageParts makes the people of an organization those of a backup, those of others being left alone, all at once.
func TestStageParts(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		t.Helper()
		f, backup := setup(t, open), setup(t, openSQLite)
		in := func(of *fixture, org int64) store.Collection[member] { return of.members.In(of.control.Partition(org)) }
		stays, changes, gone, added := &member{Email: "stays"}, &member{Email: "was"}, &member{Email: "gone"}, &member{Email: "added"}
		insert(t, in(backup, 2), stays, changes, gone)
		insert(t, in(backup, 22), &member{Email: "of another then"})
		insert(t, in(f, 22), &member{Email: "of another now"})
		insert(t, in(f, 2), &member{Meta: store.Meta{ID: stays.ID}, Email: "stays"}, &member{Meta: store.Meta{ID: changes.ID}, Email: "is"}, added)
		emails := func(org int64) (all []string) {
			t.Helper()
			if err := in(f, org).Each(t.Context(), store.Filter{}, store.Live, func(m *member) error {
				all = append(all, m.Email)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			slices.Sort(all)
			return all
		}
		what := store.Restoring{Then: backup.control.Partition(2), Number: 1}
		for _, test := range []struct {
			keep bool
			want []string
		}{{true, []string{"added", "gone", "stays", "was"}}, {false, []string{"gone", "stays", "was"}}} {
			b := f.control.Batch()
			if err := f.control.Partition(2).StageParts(t.Context(), b, what, test.keep, []string{"members"}, nil); err != nil {
				t.Fatal(err)
			}
			if err := b.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := emails(2); !slices.Equal(got, test.want) {
				t.Errorf("keep %v: got %v, want %v", test.keep, got, test.want)
			}
			if got := emails(22); !slices.Equal(got, []string{"of another now"}) {
				t.Errorf("another organization: got %v", got)
			}
		}
	})
}
