package store_test

import (
	"fmt"
	"slices"
	"testing"

	"tenantry/backends/sqlite"
	"tenantry/backends/store"
)

// TestCopyTo copies organizations and control data to another engine, with counters, while unique values change places,
// and removes what was removed meanwhile.
func TestCopyTo(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		t.Helper()
		const owner = "an installation/an organization"
		f := setup(t, open)
		ws := organization(t, f, 2, owner)
		organization(t, f, 3, owner)
		list := make([]*item, 700) // more than a page
		for i := range list {
			list[i] = &item{Name: fmt.Sprint("n", i), Code: fmt.Sprintf("c%03d", i)}
		}
		for chunk := range slices.Chunk(list, 100) {
			insert(t, f.items.In(ws), chunk...)
		}
		insert(t, f.orgs.In(f.control), &org{Slug: "acme"})
		count := func(w *store.Workspace, name string, add int64) int64 {
			t.Helper()
			n, err := w.Counter(t.Context(), name, add, 0)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		count(f.control, "organizations", 7)
		count(f.control.Partition(2), "users", 3)

		to, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = to.Close() })
		calls := 0
		copied, err := f.CopyTo(t.Context(), store.DefaultBackend, to, store.CopyOptions{
			Last: []string{"members"},
			Told: func(workspace string, _ int64) {
				if calls++; workspace != "org-3" || calls > 1000 {
					return
				}
				calls = 1000 // once, when organization 2 has been copied
				if err := f.Remove(t.Context(), 2, owner); err != nil {
					t.Error(err)
				}
			},
		})
		if err != nil || !slices.Equal(copied.Workspaces, []string{"org-3", "control"}) {
			t.Errorf("got %+v %v, want what is left: organization 3 and the control data", copied, err)
		}
		ws = organization(t, f, 2, owner)
		for chunk := range slices.Chunk(list, 100) {
			insert(t, f.items.In(ws), chunk...)
		}
		for round := range 2 { // the second call finds what the first has copied, and what has changed since
			if copied, err = f.CopyTo(t.Context(), store.DefaultBackend, to, store.CopyOptions{}); err != nil ||
				len(copied.Damaged) > 0 || len(copied.Unsettled) > 0 || !slices.Contains(copied.Workspaces, "org-2") {
				t.Fatalf("got %+v %v, want organization 2 copied", copied, err)
			}
			a, b := *list[0], *list[1]
			a.Code, b.Code = b.Code, fmt.Sprint("free", round)
			for _, one := range []*item{&b, &a} { // values of unique fields change places
				if err := f.items.In(ws).Replace(t.Context(), one); err != nil {
					t.Fatal(err)
				}
			}
			*list[0], *list[1] = a, b
		}
		if _, err := f.CopyTo(t.Context(), store.DefaultBackend, to, store.CopyOptions{}); err != nil {
			t.Fatal(err)
		}
		there := setupOn(t, to, nil)
		q := store.Query{Limit: 1000}
		here, err := f.items.In(ws).Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		found, err := there.items.In(organization(t, there, 2, owner)).Find(t.Context(), q)
		if err != nil || len(found) != len(list) || fmt.Sprintf("%+v", found) != fmt.Sprintf("%+v", here) {
			t.Errorf("got %d items and %v, want the %d", len(found), err, len(here))
		}
		if n := count(there.control, "organizations", 0); n != 7 {
			t.Errorf("organizations: got %d, want 7", n)
		}
		if n := count(there.control.Partition(2), "users", 0); n != 3 {
			t.Errorf("users: got %d, want 3", n)
		}
		if n, err := there.orgs.In(there.control).Count(t.Context(), store.Filter{}); err != nil || n != 1 {
			t.Errorf("got %d organizations %v, want 1", n, err)
		}
	})
}

// TestCopyTo_WhileCreated: the copy of the control workspace has what was stored there before an organization stored
// something, although the organization was created while the control workspace was copied.
func TestCopyTo_WhileCreated(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		t.Helper()
		const owner = "an installation/an organization"
		for _, always := range []bool{false, true} {
			f := setup(t, open)
			to, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = to.Close() })
			const before = 9
			number, keyed := int64(before), int64(before)
			keys := &org{Slug: "keys"}
			insert(t, f.orgs.In(f.control), keys)
			told := func(workspace string, _ int64) {
				late := fmt.Sprint("org-", number)
				switch {
				case workspace == "control" && keyed == number && (number == before || always && number < before+3):
					number++
					n, err := f.control.Counter(t.Context(), "organizations", 0, number)
					if err != nil || n != number {
						t.Errorf("got %d %v", n, err)
					}
					insert(t, f.items.In(organization(t, f, number, owner)), &item{Name: "sealed", Code: "c"})
				case workspace == late && keyed < number: // its key is stored, and what is sealed with it
					keyed = number
					keys.Slug = "key-of-" + late
					if err := f.orgs.In(f.control).Replace(t.Context(), keys); err != nil {
						t.Error(err)
					}
					insert(t, f.orgs.In(f.control), &org{Slug: "after-" + late})
					insert(t, f.items.In(organization(t, f, number, owner)), &item{Name: "sealed", Code: "d"})
				}
			}
			copied, err := f.CopyTo(t.Context(), store.DefaultBackend, to, store.CopyOptions{Keys: []store.KeyKind{{Name: "orgs", Known: true}}, Told: told})
			if err != nil {
				t.Fatal(err)
			}
			there := setupOn(t, to, nil)
			found, err := there.orgs.In(there.control).Find(t.Context(), store.Query{})
			has := func(slug string) bool {
				return slices.ContainsFunc(found, func(o org) bool { return o.Slug == fmt.Sprint(slug, number) })
			}
			switch {
			case err != nil || keyed == before:
				t.Errorf("got %v and no key stored meanwhile", err)
			case !has("key-of-org-") || has("after-org-") == always:
				t.Errorf("got %+v, want the key of organization %d, and what was created after the last copy only if there is another", found, number)
			case always:
				if !slices.Contains(copied.Unsettled, fmt.Sprint("org-", number)) {
					t.Errorf("always created: got %+v, want the last one named as unsettled", copied)
				}
			case len(copied.Unsettled) > 0:
				t.Errorf("got %+v, want all settled", copied)
			}
			if n, err := there.control.Counter(t.Context(), "organizations", 0, 0); err != nil || n != number {
				t.Errorf("got %d %v, want the number of the last organization, %d", n, err, number)
			}
		}
	})
}

func organization(t *testing.T, f *fixture, org int64, owner string) *store.Workspace {
	t.Helper()
	ws, err := f.At(t.Context(), org, store.Placement{Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	return ws
}
