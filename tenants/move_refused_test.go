package tenants_test

import (
	"errors"
	"strings"
	"testing"

	"tenantry/tenants"
)

// TestRefusedMoves checks that moves which cannot begin, and ends of moves that do not exist, are refused before
// anything is changed.
func TestRefusedMoves(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one := f.start(t, "first", "second")
	d := one.directory
	acmeOn(t, one)
	move := func(to string) error {
		_, err := d.Move(t.Context(), "acme", to, nil)
		return err
	}
	refused := func(what string, err error, says string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", what, err, says)
		}
	}
	refused("to no backend", move(""), "there is no backend")
	refused("to one that is not configured", move("third"), "there is no backend")
	refused("to where it lives", move("first"), "lives on first already")
	if err := d.RollBackMove(t.Context(), "acme"); !errors.Is(err, tenants.ErrNotMoving) {
		t.Errorf("RollBackMove without a move = %v, want ErrNotMoving", err)
	}
	if err := d.FinishMove(t.Context(), "acme"); err != nil {
		t.Errorf("FinishMove without an old copy = %v, want no error", err)
	}
	if err := d.Hold(t.Context(), "acme", "second"); err != nil { // leaves the move undone
		t.Fatal(err)
	}
	refused("elsewhere meanwhile", move("control"), "resume that, or roll it back first")
	if err := d.FinishMove(t.Context(), "acme"); !errors.Is(err, tenants.ErrMoving) {
		t.Errorf("finishing meanwhile: %v", err)
	}
	if err := move("second"); err != nil {
		t.Fatal(err)
	}
	refused("further, with the old copy there", move("control"), "an old copy is still on first")
	if got := only(t, one.open(t, "acme")); got.Name != "before" {
		t.Errorf(`got %+v, want got.Name = "before"`, got)
	}
	if _, _, err := d.Remove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"moving": move("first"), "rolling back": d.RollBackMove(t.Context(), "acme"), "finishing": d.FinishMove(t.Context(), "acme")} {
		if !errors.Is(err, tenants.ErrUnknownTenant) {
			t.Errorf("%s what was removed: %v", what, err)
		}
	}
}
