package passwords

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The bounds are tested without Argon2, on a clock that the test drives.
func TestFloodIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, err := New(Options{Concurrency: 2, Waiting: 3})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		running, mostRunning, served, busy := 0, 0, 0, 0
		for range 20 {
			go func() {
				err := h.enter(t.Context(), 1)
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, ErrBusy) {
					busy++
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				running++
				mostRunning = max(mostRunning, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				running--
				served++
				h.queue.Leave(1)
			}()
			synctest.Wait() // each has its answer or a place before the next asks
		}
		// Three rounds of two, two and one, with the clock between them.
		for range 4 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		mu.Lock()
		if busy != 15 || served != 5 || mostRunning != 2 {
			t.Errorf("%d turned away, %d served, at most %d at a time; want 15, 5 and 2", busy, served, mostRunning)
		}
		mu.Unlock()
		if err := h.enter(t.Context(), 1); err != nil {
			t.Fatalf("after the flood: %v", err)
		}
		h.queue.Leave(1)
		if running, waiting := h.queue.Use(); running+waiting != 0 {
			t.Errorf("%d run and %d wait", running, waiting)
		}
	})
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, err := New(Options{Concurrency: 1, Waiting: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for range 5 { // each gives its place back
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := h.enter(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			cancel()
		}
		h.queue.Leave(1)
		if running, waiting := h.queue.Use(); running+waiting != 0 {
			t.Errorf("%d run and %d wait", running, waiting)
		}
	})
}

// TestFloodOfOnePartyDelaysNoOther checks that another party waits for one computation at most, gets a place in a full
// queue, and keeps it, and that each party gets the same share.
func TestFloodOfOnePartyDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, err := New(Options{Concurrency: 1, Waiting: 6})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var served []int64
		busy := map[int64]int{}
		ask := func(party int64) {
			go func() {
				err := h.enter(t.Context(), party)
				mu.Lock()
				if err != nil {
					busy[party]++
					mu.Unlock()
					return
				}
				served = append(served, party)
				mu.Unlock()
				time.Sleep(time.Second)
				h.queue.Leave(party)
			}()
			synctest.Wait()
		}
		for range 50 {
			ask(1)
		}
		for range 2 {
			ask(2)
			ask(3)
		}
		for range 50 { // who has as many places as the others takes none of theirs
			ask(1)
			ask(3)
		}
		for range 10 {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if want := []int64{1, 1, 2, 3, 1, 2, 3}; !slices.Equal(served, want) || busy[1] != 97 || busy[2] != 0 || busy[3] != 50 {
			t.Errorf("served in the order %v, want %v; turned away: %v", served, want, busy)
		}
	})
}
