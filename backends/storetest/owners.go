package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"tenantry/backends/driver"
)

// testOwners holds an engine to who may open a workspace, and to leaving alone what is
// somebody else's.
func testOwners(t *testing.T, e driver.Engine) {
	b := newBench(t, e) // has no owner
	b.insert(record{id: "a", values: map[string]any{"n": int64(1)}})
	name := newName("t")
	open := func(name, owner string, isNew bool) (driver.Workspace, error) {
		return e.Open(b.ctx, driver.Opening{Workspace: name, Owner: owner, Collections: []*driver.Collection{b.things, b.plain}, New: isNew})
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
		if !errors.Is(err, driver.ErrForeign) || !errors.Is(err, driver.ErrUnavailable) || !errors.As(err, &foreign) || foreign.Where == "" {
			t.Errorf("%s: %v, want driver.ErrForeign with the place", what, err)
		}
	}
	testResidents(t, b, e, map[string]string{b.name: ""})
	_, err := open(b.name, "mine", true)
	refused("documents without an owner under a new workspace", err)
	if _, err := open(b.name, "", false); err != nil {
		t.Errorf("it has an owner by now: %v", err)
	}
	for _, isNew := range []bool{false, true} { // what an older version wrote becomes its owner's, for good
		ws, err := open(b.name, "mine", isNew)
		if err != nil {
			t.Fatalf("the owner's own: %v", err)
		}
		if n, err := ws.Count(b.ctx, b.things, driver.Predicate{}); n != 1 || err != nil {
			t.Errorf("the owner's documents: %d, %v", n, err)
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
		t.Errorf("%d documents are left after what was refused, want 1", n)
	}
	if _, err := open(name, "mine", true); err != nil {
		t.Errorf("a new workspace: %v", err)
	}
	_, err = open(name, "yours", true)
	refused("a new one without documents, which has an owner", err)
	testResidents(t, b, e, map[string]string{b.name: "mine", name: "mine"})
	if err := e.Remove(b.ctx, name, "mine"); err != nil {
		t.Fatal(err)
	}
	testResidents(t, b, e, map[string]string{b.name: "mine"})
	if _, err := open(name, "yours", true); err != nil {
		t.Errorf("what was removed still has an owner: %v", err)
	}
	if err := e.Remove(b.ctx, name, "yours"); err != nil {
		t.Error(err)
	}
	testOneOwner(t, b, e)
}

func testResidents(t *testing.T, b *bench, e driver.Engine, want map[string]string) {
	t.Helper()
	all, err := e.Residents(b.ctx)
	if err != nil || !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) || slices.Contains(all, "") {
		t.Errorf("%q, %v", all, err)
	}
	for name, owner := range want {
		if !slices.Contains(all, name) {
			t.Errorf("workspace %s is not among %q", name, all)
		}
		if r, err := e.Resident(b.ctx, name); err != nil || r.Workspace != name || r.Owner != owner || r.Where == "" {
			t.Errorf("%+v, %v, want the owner %q", r, err, owner)
		}
	}
	if r, err := e.Resident(b.ctx, newName("t")); err != nil || r.Owner != "" {
		t.Errorf("a workspace that is not there: %+v, %v", r, err)
	}
}

// testOneOwner lets many claim the same workspace at once.
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
			_, errs[i] = e.Open(ctx, driver.Opening{Workspace: name, Owner: string(rune('a' + i)), Collections: []*driver.Collection{b.plain}, New: i%2 == 0})
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
			t.Errorf("a claim that came too late: %v", err)
		}
	}
	if err := e.Remove(b.ctx, name, winner); err != nil {
		t.Error(err)
	}

	// Replicas that open at once what an older version wrote claim it for the same owner.
	var together sync.WaitGroup
	for i := range claims {
		together.Go(func() {
			_, errs[i] = e.Open(b.ctx, driver.Opening{Workspace: name, Owner: "mine", Collections: []*driver.Collection{b.plain}})
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
