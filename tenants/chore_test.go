package tenants_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// TestChoreIsClaimedByOneReplica checks that one replica at a time has a chore, and that another continues it once the
// claim has expired.
func TestChoreIsClaimedByOneReplica(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	const id = "00000000000000000000000a"
	take := func() *tenants.Chore {
		t.Helper()
		c, err := w.Directory.ClaimChore(t.Context(), id, time.Minute)
		if err != nil {
			t.Error(err)
		}
		return c
	}
	race := func() (mine *tenants.Chore) {
		t.Helper()
		var had atomic.Int32
		var all sync.WaitGroup
		var mu sync.Mutex
		for range 8 {
			all.Go(func() {
				if c := take(); c != nil {
					had.Add(1)
					mu.Lock()
					mine = c
					mu.Unlock()
				}
			})
		}
		if all.Wait(); had.Load() != 1 {
			t.Errorf("%d replicas claimed the chore, want 1", had.Load())
		}
		return mine
	}
	first := race()
	w.Clock.Advance(2 * time.Minute) // the claim expires
	second := race()
	if err := w.Directory.ReleaseChore(t.Context(), first); err == nil {
		t.Error("ReleaseChore succeeded after the claim had expired")
	}
	second.After = "acme"
	if err := w.Directory.ReleaseChore(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	third := race()
	if third.After != "acme" {
		t.Errorf("the next replica continues after %q, want %q", third.After, "acme")
	}
	third.After, third.Next = "", w.Clock.Now().Add(time.Hour).UnixMilli()
	if err := w.Directory.ReleaseChore(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	if take() != nil {
		t.Error("a round began before it was due")
	}
	w.Clock.Advance(time.Hour)
	if race() == nil {
		t.Error("no round began when it was due")
	}
	control, err := w.Store.Control(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Kinds.Organizations.Chores.In(control).Count(t.Context(), store.Filter{}); err != nil || n != 1 {
		t.Errorf("%d chores are stored, %v; want 1", n, err)
	}
}

// TestHoldChore: a chore is held for as long as it takes, given back at the end, and left as soon as another has it.
func TestHoldChore(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	const id, hold = "00000000000000000000000b", 2 * time.Second // a write has a quarter of it
	claim := func() *tenants.Chore {
		t.Helper()
		c, err := w.Directory.ClaimChore(t.Context(), id, hold)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	failed := errors.New("failed")
	control, err := w.Store.Control(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	chores := w.Kinds.Organizations.Chores.In(control)
	renewed := func(ctx context.Context) {
		t.Helper()
		least := w.Clock.Now().Add(hold).UnixMilli()
		for began := time.Now(); ; time.Sleep(hold / 100) {
			c, err := chores.Get(ctx, id)
			if err == nil && c.Until >= least {
				return
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("got %+v %v, want the claim renewed", c, err)
			}
		}
	}
	held, err := w.Directory.HoldChore(t.Context(), id, hold, func(ctx context.Context) error {
		for range 4 { // twice as long as the claim without renewals
			w.Clock.Advance(hold / 2)
			renewed(ctx)
			if claim() != nil {
				t.Error("another replica claimed it meanwhile")
			}
		}
		return failed
	})
	if !held || !errors.Is(err, failed) {
		t.Errorf("got %v %v, want the error of the work", held, err)
	}
	const long = 4 * time.Second
	held, err = w.Directory.HoldChore(t.Context(), id, long, func(ctx context.Context) error {
		for range 3 { // renewals whose answers are lost
			w.Engine.LoseAnswer("chores", 1)
			before := w.Clock.Now().Add(long).UnixMilli()
			fixed := func() bool {
				c, err := chores.Get(ctx, id)
				return err == nil && c.Until > before
			}
			for began := time.Now(); !fixed() && time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
			}
		}
		return ctx.Err()
	})
	if !held || err != nil {
		t.Errorf("with lost answers: got %v %v, want it held to the end", held, err)
	}
	other := claim()
	if other == nil {
		t.Fatal("it was not given back")
	}
	if held, err := w.Directory.HoldChore(t.Context(), id, hold, func(context.Context) error { return failed }); held || err != nil {
		t.Errorf("beside another: got %v %v, want it not held", held, err)
	}
	if err := w.Directory.ReleaseChore(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	held, err = w.Directory.HoldChore(t.Context(), id, hold, func(ctx context.Context) error {
		w.Clock.Advance(time.Hour) // the claim expires
		if claim() == nil {
			t.Error("an expired claim could not be taken over")
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
			t.Error("the work was not ended after another took it over")
		}
		return ctx.Err()
	})
	if !held || !errors.Is(err, store.ErrConflict) {
		t.Errorf("taken over: got %v %v, want ErrConflict", held, err)
	}
}

// TestHoldChore_ClocksDiffer: a replica whose clock is behind does not take a claim that was just made for one from before a
// clock was set back.
func TestHoldChore_ClocksDiffer(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	const id, hold = "00000000000000000000000c", time.Minute
	for _, behind := range []time.Duration{100 * time.Millisecond, 20 * time.Second} {
		other, err := tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{
			Store: w.Store, Kinds: w.Kinds.Organizations, Keyring: w.Keyring,
			Now: func() time.Time { return w.Clock.Now().Add(-behind) },
		})
		if err != nil {
			t.Fatal(err)
		}
		mine, err := w.Directory.ClaimChore(t.Context(), id, hold)
		if err != nil || mine == nil {
			t.Fatalf("got %+v %v, want the chore", mine, err)
		}
		if theirs, err := other.ClaimChore(t.Context(), id, hold); theirs != nil || err != nil {
			t.Errorf("%s behind: got %+v %v, want no claim beside the other", behind, theirs, err)
		}
		if err := w.Directory.ReleaseChore(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHoldChore_Stopped: a process that stops in order gives the chore back.
func TestHoldChore_Stopped(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	const id = "00000000000000000000000d"
	ctx, stop := context.WithCancel(t.Context())
	held, err := w.Directory.HoldChore(ctx, id, time.Minute, func(ctx context.Context) error {
		stop()
		return ctx.Err()
	})
	if !held || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v %v, want the error of the work", held, err)
	}
	if c, err := w.Directory.ClaimChore(t.Context(), id, time.Minute); c == nil || err != nil {
		t.Errorf("got %+v %v, want the chore free", c, err)
	}
}
