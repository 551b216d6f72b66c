package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"tenantry/backends/driver"
)

// testOwners checks who may open and remove a workspace, and that a workspace of another owner is left untouched.
func testOwners(t *testing.T, e driver.Engine) {
	b := newBench(t, e) // without an owner
	b.insert(record{id: "a", values: map[string]any{"n": int64(1)}})
	name := newName("t")
	open := func(name, owner string, isNew bool) (driver.Workspace, error) {
		return e.Open(b.ctx, driver.Opening{
			Workspace: name, Owner: owner, Collections: []*driver.Collection{b.things, b.plain}, New: isNew,
		})
	}
	t.Cleanup(func() {
		for _, workspace := range []string{b.name, name} {
			if err := e.Remove(b.ctx, workspace, "mine"); err != nil {
				t.Error(err)
			}
		}
	})
	refused := func(what string, err error) {
		t.Helper()
		var foreign *driver.ForeignError
		if !errors.Is(err, driver.ErrForeign) || !errors.Is(err, driver.ErrUnavailable) ||
			!errors.As(err, &foreign) || foreign.Where == "" {
			t.Errorf("%s: %v, want driver.ErrForeign with the place", what, err)
		}
	}
	testResidents(t, b, e, map[string]string{b.name: ""})
	_, err := open(b.name, "mine", true)
	refused("a new workspace in place of documents without an owner", err)
	if _, err := open(b.name, "", false); err != nil {
		t.Errorf("the refused opening set an owner: %v", err)
	}
	for _, isNew := range []bool{false, true} { // documents of an older version belong to the first owner for good
		ws, err := open(b.name, "mine", isNew)
		if err != nil {
			t.Fatalf("opening for the owner: %v", err)
		}
		if n, err := ws.Count(b.ctx, b.things, driver.Predicate{}); n != 1 || err != nil {
			t.Errorf("the owner's documents: %d, %v; want 1", n, err)
		}
	}
	for _, owner := range []string{"", "min", "mine2", "yours"} {
		for _, isNew := range []bool{false, true} {
			_, err := open(b.name, owner, isNew)
			refused("opening for "+owner, err)
		}
		refused("removing for "+owner, e.Remove(b.ctx, b.name, owner))
	}
	if n := b.count(b.things, driver.Predicate{}); n != 1 {
		t.Errorf("%d documents are left after refused calls, want 1", n)
	}
	if _, err := open(name, "mine", true); err != nil {
		t.Errorf("a new workspace: %v", err)
	}
	_, err = open(name, "yours", true)
	refused("opening an empty workspace of another owner", err)
	testResidents(t, b, e, map[string]string{b.name: "mine", name: "mine"})
	if err := e.Remove(b.ctx, name, "mine"); err != nil {
		t.Fatal(err)
	}
	testResidents(t, b, e, map[string]string{b.name: "mine"})
	if _, err := open(name, "yours", true); err != nil {
		t.Errorf("a removed workspace still has an owner: %v", err)
	}
	if err := e.Remove(b.ctx, name, "yours"); err != nil {
		t.Error(err)
	}
	testOneOwner(t, b, e)
}

// testResidents checks that the engine lists these workspaces with their owners.
func testResidents(t *testing.T, b *bench, e driver.Engine, want map[string]string) {
	t.Helper()
	all, err := e.Residents(b.ctx)
	distinct := len(slices.Compact(slices.Clone(all))) == len(all)
	if err != nil || !slices.IsSorted(all) || !distinct || slices.Contains(all, "") {
		t.Errorf("Residents = %q, %v; want distinct names, sorted, none empty", all, err)
	}
	for name, owner := range want {
		if !slices.Contains(all, name) {
			t.Errorf("Residents = %q, want %s among them", all, name)
		}
		if r, err := e.Resident(b.ctx, name); err != nil || r.Workspace != name || r.Owner != owner || r.Where == "" {
			t.Errorf("Resident(%s) = %+v, %v; want the owner %q", name, r, err, owner)
		}
	}
	if r, err := e.Resident(b.ctx, newName("t")); err != nil || r.Owner != "" {
		t.Errorf("Resident of an unknown workspace = %+v, %v; want no owner", r, err)
	}
}

// testOneOwner checks that one of several concurrent claims to a workspace succeeds.
func testOneOwner(t *testing.T, b *bench, e driver.Engine) {
	t.Helper()
	name := newName("t")
	const claims = 8
	errs := make([]error, claims)
	var claiming sync.WaitGroup
	for i := range claims {
		claiming.Go(func() {
			ctx, cancel := context.WithTimeout(b.ctx, callTimeout)
			defer cancel()
			_, errs[i] = e.Open(ctx, driver.Opening{
				Workspace: name, Owner: string(rune('a' + i)), Collections: []*driver.Collection{b.plain}, New: i%2 == 0,
			})
		})
	}
	claiming.Wait()
	winner := ""
	for i, err := range errs {
		switch {
		case err == nil && winner == "":
			winner = string(rune('a' + i))
		case err == nil:
			t.Errorf("%s and %c both own the workspace", winner, 'a'+i)
		case !errors.Is(err, driver.ErrForeign):
			t.Errorf("a late claim: %v, want %v", err, driver.ErrForeign)
		}
	}
	if err := e.Remove(b.ctx, name, winner); err != nil {
		t.Error(err)
	}

	// Replicas that concurrently open a workspace of an older version claim it for the same owner.
	var together sync.WaitGroup
	for i := range claims {
		together.Go(func() {
			_, errs[i] = e.Open(b.ctx, driver.Opening{
				Workspace: name, Owner: "mine", Collections: []*driver.Collection{b.plain},
			})
		})
	}
	together.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Errorf("claims for one owner: %v", err)
	}
	testResidents(t, b, e, map[string]string{name: "mine"})
	if err := e.Remove(b.ctx, name, "mine"); err != nil {
		t.Error(err)
	}
}
