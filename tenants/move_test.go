package tenants_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

func put(ctx context.Context, w *tenantstest.World, t *tenants.Tenant, name string) error {
	return w.Kinds.Things.In(t.Workspace()).Insert(ctx, &tenantstest.Thing{Name: name})
}

// brief are leases short enough for the tests of this file to wait for.
var brief = store.Leases{Fresh: 100 * time.Millisecond, Settled: time.Second, Copying: 500 * time.Millisecond, Hold: 2 * time.Second}

// TestForgottenHoldEnds checks that the replicas that wait end a hold whose mover has stopped, and that the move can be
// resumed later.
func TestForgottenHoldEnds(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Local: true, Leases: brief})
	acme := w.Tenant(t, "acme")
	began := time.Now()
	if err := w.Directory.Hold(t.Context(), "acme", tenantstest.OtherBackend); err != nil {
		t.Fatal(err)
	}
	time.Sleep(600 * time.Millisecond) // placements read before the hold are no longer fresh
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := put(soon, w, acme, "early"); !errors.Is(err, store.ErrUnavailable) && time.Since(began) < brief.Hold {
		t.Errorf("a write while held: %v", err)
	}
	for err := put(t.Context(), w, acme, "late"); err != nil; err = put(t.Context(), w, acme, "late") {
		if !errors.Is(err, store.ErrUnavailable) || time.Since(began) > 15*brief.Hold {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
	}
	if report, err := w.Directory.Move(t.Context(), "acme", tenantstest.OtherBackend, nil); err != nil || report.Sums[0].Documents != 1 {
		t.Errorf("the move: %+v, %v", report, err)
	}
	names := map[string]bool{}
	err := w.Kinds.Things.In(acme.Workspace()).Each(t.Context(), store.Filter{}, store.Live, func(r *tenantstest.Thing) error {
		names[r.Name] = true
		return nil
	})
	if err != nil || len(names) != 1 || !names["late"] {
		t.Errorf("after the move: %v, %v", names, err)
	}
}

// TestOneMoverAtATime checks that a call which resumes a move takes it over.
func TestOneMoverAtATime(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Local: true, Leases: brief})
	acme := w.Tenant(t, "acme")
	for range 20 {
		if err := put(t.Context(), w, acme, "x"); err != nil {
			t.Fatal(err)
		}
	}
	first := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		once := false
		_, err := w.Directory.Move(t.Context(), "acme", tenantstest.OtherBackend, func(tenants.MoveProgress) {
			if !once {
				once = true
				close(begun)
			}
		})
		first <- err
	}()
	<-begun
	if _, err := w.Directory.Move(t.Context(), "acme", tenantstest.OtherBackend, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-first; !errors.Is(err, tenants.ErrMoving) {
		t.Errorf("the first mover: %v", err)
	}
	if n, err := w.Kinds.Things.In(acme.Workspace()).Count(t.Context(), store.Filter{}); n != 20 || err != nil {
		t.Errorf("%d things, %v", n, err)
	}
}

func TestRemovingAnOrganizationEndsItsMove(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Local: true, Leases: brief})
	acme := w.Tenant(t, "acme")
	if err := put(t.Context(), w, acme, "x"); err != nil {
		t.Fatal(err)
	}
	if err := w.Directory.Hold(t.Context(), "acme", tenantstest.OtherBackend); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Directory.Remove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), w, acme, "y"); err == nil {
		t.Error("a handle on a removed organization still writes")
	}
}

// away marks an engine as one that other machines use too.
type away struct{ driver.Engine }

func (away) Remote() bool { return true }

// TestDeletionWaitsForOtherMachines checks that erasing waits until the leases of writers on other machines have ended.
func TestDeletionWaitsForOtherMachines(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.first.Engine = away{f.first.Engine}
	kinds := tenants.NewKinds()
	s := store.New(store.Options{
		Backends: map[string]driver.Engine{"control": f.control, "first": f.first.Engine}, ControlBackend: "control", Control: kinds.Specs(), Leases: quick,
	})
	d, err := tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{Store: s, Kinds: kinds, Keyring: f.keyring, NewBackend: "first"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, _, err := d.Remove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < quick.Settled {
		t.Errorf("Remove took %s, want at least the lease of %s", took, quick.Settled)
	}
}
