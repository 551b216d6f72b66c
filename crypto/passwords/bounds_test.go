package passwords

import (
	"context"
	"errors"
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
				leave, err := h.enter(t.Context())
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
				leave()
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
		leave, err := h.enter(t.Context())
		if err != nil {
			t.Fatalf("after the flood: %v", err)
		}
		leave()
		if taken := h.taken.Load(); taken != 0 || len(h.running) != 0 {
			t.Errorf("%d places and %d slots are still taken", taken, len(h.running))
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
		leave, err := h.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 5 { // each gives its place back
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := h.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			cancel()
		}
		leave()
		if taken := h.taken.Load(); taken != 0 {
			t.Errorf("%d places are still taken", taken)
		}
	})
}
