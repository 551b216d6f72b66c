package tenants_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// A chore is one replica's at a time; where that ends without a word, another goes on where it was.
func TestChore_IsOnesAtATime(t *testing.T) {
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
			t.Errorf("%d took it", had.Load())
		}
		return mine
	}
	first := race()
	w.Clock.Advance(2 * time.Minute) // and nothing was heard of it
	second := race()
	if err := w.Directory.ReleaseChore(t.Context(), first); err == nil {
		t.Error("who was too late gave it back all the same")
	}
	second.After = "acme"
	if err := w.Directory.ReleaseChore(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	third := race()
	if third.After != "acme" {
		t.Errorf("the next one begins after %q", third.After)
	}
	third.After, third.Next = "", w.Clock.Now().Add(time.Hour).UnixMilli()
	if err := w.Directory.ReleaseChore(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	if take() != nil {
		t.Error("a round began before its time")
	}
	w.Clock.Advance(time.Hour)
	if race() == nil {
		t.Error("no other round begins")
	}
	control, err := w.Store.Control(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Kinds.Organizations.Chores.In(control).Count(t.Context(), store.Filter{}); err != nil || n != 1 {
		t.Errorf("%d chores, %v", n, err)
	}
}
