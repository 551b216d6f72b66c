package tenants_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// restoredFrom returns what is restored from a tenant of another installation's directory, which stands for a backup.
func restoredFrom(t *testing.T, backup *replica) tenants.Restoration {
	t.Helper()
	was, err := backup.directory.BySlug(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	return tenants.Restoration{From: was}
}

// TestRestore_Other: an organization is not replaced by another one that has its slug or its number in a backup, and
// one that exists is not made anew.
func TestRestore_Other(t *testing.T) {
	t.Parallel()
	backup, one := newFleet(t).start(t, "first"), newFleet(t).start(t, "first")
	pieces := acmeOn(t, backup)
	acmeOn(t, one)
	r := restoredFrom(t, backup)
	if _, err := one.directory.Restore(t.Context(), "acme", r); !errors.Is(err, tenants.ErrOtherOrganization) {
		t.Errorf("in place: got %v, want ErrOtherOrganization", err)
	}
	if _, err := one.directory.Revive(t.Context(), "acme", r); !errors.Is(err, tenants.ErrMoving) {
		t.Errorf("as if it had been erased: got %v, want that it exists", err)
	}
	taken := newFleet(t).start(t, "first")
	if _, err := taken.directory.Create(t.Context(), tenants.NewOrganization{Slug: "birch", Name: "Birch"}); err != nil {
		t.Fatal(err)
	}
	if _, err := taken.directory.Revive(t.Context(), "acme", r); !errors.Is(err, tenants.ErrOtherOrganization) {
		t.Errorf("its number is taken: got %v, want ErrOtherOrganization", err)
	}
	if _, err := taken.directory.Stored(t.Context(), "acme"); !errors.Is(err, tenants.ErrUnknownTenant) {
		t.Errorf("got %v, want no record left", err)
	}
	if _, _, err := one.directory.Remove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if _, err := one.directory.Revive(t.Context(), "acme", r); !errors.Is(err, tenants.ErrOtherOrganization) {
		t.Errorf("another one was erased: got %v, want ErrOtherOrganization", err)
	}
	if got := only(t, pieces[0]); got.Name != "before" {
		t.Errorf("the backup: got %+v, want it as it was", got)
	}
}

// TestRevive_Unknown brings back an organization that the control data do not know, such as those that were put back
// from before it was made. Its number is given to nobody else.
func TestRevive_Unknown(t *testing.T) {
	t.Parallel()
	f, other := newFleet(t), newFleet(t)
	other.keyring = f.keyring
	backup, one := f.start(t, "first"), other.start(t, "first")
	acmeOn(t, backup)
	r := restoredFrom(t, backup)
	if _, err := one.directory.Revive(t.Context(), "acme", r); err != nil {
		t.Fatal(err)
	}
	if got := only(t, one.open(t, "acme")); got.Name != "before" || got.Rev <= 1 {
		t.Errorf("got %+v, want the document of the backup with another revision", got)
	}
	next, err := one.directory.Create(t.Context(), tenants.NewOrganization{Slug: "birch", Name: "Birch"})
	if err != nil || next.Org.OrgID == r.From.Org.OrgID {
		t.Errorf("got %+v %v, want another number", next, err)
	}
}

// TestRestore_Moving: an organization that is being moved, or has an old copy on another backend, is not restored, and
// one that is being restored is not moved. A restoration that is rolled back leaves nothing.
func TestRestore_Moving(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one := f.start(t, "first", "second")
	d := one.directory
	acmeOn(t, one)
	r := restoredFrom(t, one)
	refused := func(what string, err error, says string) {
		t.Helper()
		if !errors.Is(err, tenants.ErrMoving) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want ErrMoving that says %q", what, err, says)
		}
	}
	restore := func() error {
		_, err := d.Restore(t.Context(), "acme", r)
		return err
	}
	if err := d.Hold(t.Context(), "acme", "second"); err != nil { // leaves the move undone
		t.Fatal(err)
	}
	refused("while it is moved", restore(), "complete that, or roll it back first")
	if _, err := d.Move(t.Context(), "acme", "second", nil); err != nil {
		t.Fatal(err)
	}
	refused("with an old copy", restore(), "--finish")
	if err := d.FinishMove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stopped")
	r.Before = func(context.Context, *tenants.Tenant) error { return stop }
	if err := restore(); !errors.Is(err, stop) {
		t.Fatalf("got %v, want it stopped", err)
	}
	_, err := d.Move(t.Context(), "acme", "first", nil)
	refused("a move while it is restored", err, "roll it back first")
	if err := d.RollBackMove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	o, err := d.Stored(t.Context(), "acme")
	if err != nil || o.Move != nil || o.Former != "" || o.Place != "second" {
		t.Errorf("got %+v %v, want it as before", o, err)
	}
	strays, err := d.Strays(t.Context(), "second", map[int64]*tenants.Organization{o.OrgID: o})
	if err != nil || len(strays) > 0 {
		t.Errorf("got %+v %v, want nothing left", strays, err)
	}
	r.Before, r.Check = nil, func(context.Context, *tenants.Tenant) error { return stop }
	if err := restore(); !errors.Is(err, stop) {
		t.Fatalf("got %v, want it stopped before the switch", err)
	}
	if o, err = d.Stored(t.Context(), "acme"); err != nil || o.Place != "second" {
		t.Errorf("got %+v %v, want that nothing was switched", o, err)
	}
	r.Check = nil
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	if o, err = d.Stored(t.Context(), "acme"); err != nil || o.Place != "second.2" || o.Former != "" {
		t.Errorf("got %+v %v, want the second generation, and no former one", o, err)
	}
	if _, err := d.Move(t.Context(), "acme", "first", nil); err != nil {
		t.Errorf("moving what was restored: %v", err)
	}
	if o, err = d.Stored(t.Context(), "acme"); err != nil || o.Place != "first" || o.Former != store.PlaceName("second", 2) {
		t.Errorf("got %+v %v, want it on first, with an old copy", o, err)
	}
	if got := only(t, one.open(t, "acme")); got.Name != "before" {
		t.Errorf("got %+v, want its document", got)
	}
}
