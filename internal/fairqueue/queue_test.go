package fairqueue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"tenantry/internal/fairqueue"
)

// order is who was admitted to a queue, and who was turned away.
type order struct {
	mu     sync.Mutex
	served []int
	full   map[int]int
}

// enter has one of the party come, who stays for a second.
func (o *order) enter(ctx context.Context, q *fairqueue.Queue[int], party int) {
	go func() {
		err := q.Enter(ctx, party)
		o.mu.Lock()
		if err != nil {
			o.full[party]++
		} else {
			o.served = append(o.served, party)
		}
		o.mu.Unlock()
		if err == nil {
			time.Sleep(time.Second)
			q.Leave(party)
		}
	}()
	synctest.Wait()
}

// admitted returns who was admitted, in that order.
func (o *order) admitted() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.served)
}

// TestQueue_PartiesRotate: parties are admitted in rotation, and a full line takes a place from the party that has most.
func TestQueue_PartiesRotate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, got := &fairqueue.Queue[int]{Size: 1, Places: 6}, &order{full: map[int]int{}}
		for _, party := range []int{1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 2, 3, 1, 2, 3} {
			got.enter(t.Context(), q, party)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if want := []int{1, 1, 2, 3, 1, 2, 3}; !slices.Equal(got.admitted(), want) {
			t.Errorf("admitted in the order %v, want %v", got.admitted(), want)
		}
		if got.full[1] != 6 || got.full[2] != 1 || got.full[3] != 1 {
			t.Errorf("turned away: %v, want 6 of 1 and one each of the others", got.full)
		}
	})
}

// TestQueue_ZeroValueLocksEachParty: one of a party is in it at a time, whatever others do.
func TestQueue_ZeroValueLocksEachParty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, got := &fairqueue.Queue[int]{}, &order{full: map[int]int{}}
		for _, party := range []int{1, 1, 2, 3, 2} {
			got.enter(t.Context(), q, party)
		}
		if want := []int{1, 2, 3}; !slices.Equal(got.admitted(), want) {
			t.Errorf("admitted at once: %v, want %v", got.admitted(), want)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := len(got.admitted()); n != 5 {
			t.Errorf("%d were admitted, want 5", n)
		}
	})
}

// TestQueue_Patience: nobody waits longer, whatever the context allows.
func TestQueue_Patience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &fairqueue.Queue[int]{Patience: time.Second}
		if err := q.Enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := q.Enter(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second || ctx.Err() != nil {
			t.Errorf("after %s: %v, want the end of its patience after a second", time.Since(began), err)
		}
	})
}

// TestQueue_Properties has any parties come and give up: bounds hold, of two parties that wait all the time none is
// admitted twice more often than the other, and nothing is left behind.
func TestQueue_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		q := &fairqueue.Queue[int]{
			Size: rapid.IntRange(0, 3).Draw(r, "size"), Share: rapid.IntRange(0, 3).Draw(r, "share"),
			Places: rapid.IntRange(0, 8).Draw(r, "places"),
		}
		share := q.Share
		if share == 0 {
			share = max(q.Size, 1)
		}
		parties := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 40).Draw(r, "parties")
		patience := rapid.SliceOfN(rapid.IntRange(1, 30), len(parties), len(parties)).Draw(r, "patience")
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			inside, all := map[int]int{}, 0
			for i, party := range parties {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(patience[i])*time.Second)
					defer cancel()
					began := time.Now()
					if err := q.Enter(ctx, party); err != nil {
						late := time.Since(began) == time.Duration(patience[i])*time.Second
						if errors.Is(err, fairqueue.ErrFull) == errors.Is(err, context.DeadlineExceeded) || late != errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("after %s: %v", time.Since(began), err)
						}
						return
					}
					mu.Lock()
					inside[party]++
					all++
					if inside[party] > share || q.Size > 0 && all > q.Size {
						t.Errorf("%d of the party and %d in all are in it; size %d, share %d", inside[party], all, q.Size, share)
					}
					mu.Unlock()
					time.Sleep(700 * time.Millisecond)
					mu.Lock()
					inside[party]--
					all--
					mu.Unlock()
					q.Leave(party)
				}()
				synctest.Wait()
				if in, waiting := q.Use(); q.Places > 0 && waiting > q.Places || waiting > 0 && in == 0 {
					t.Errorf("%d wait at %d places, %d are in it", waiting, q.Places, in)
				}
			}
			time.Sleep(time.Minute)
			if in, waiting := q.Use(); in+waiting+q.Parties() != 0 {
				t.Errorf("%d are left in it, %d wait, and %d parties are remembered", in, waiting, q.Parties())
			}
		})
	})
}

// TestQueue_Fairness: a party of two is admitted as often as one of forty.
func TestQueue_Fairness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &fairqueue.Queue[int]{Size: 2}
		served := [2]int{}
		var mu sync.Mutex
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for n := range 42 {
			party := min(n/40, 1)
			all.Go(func() {
				for q.Enter(ctx, party) == nil {
					time.Sleep(time.Second)
					mu.Lock()
					served[party]++
					mu.Unlock()
					q.Leave(party)
				}
			})
		}
		all.Wait()
		if few, many := served[1], served[0]; few < 95 || many < 95 {
			t.Errorf("%d of two, %d of forty were admitted, want half of 200 each", few, many)
		}
	})
}

// TestQueue_Crowd has goroutines come, give up and leave at the same moments, for the race detector.
func TestQueue_Crowd(t *testing.T) {
	t.Parallel()
	q := &fairqueue.Queue[int]{Size: 3, Share: 2, Places: 20}
	var inside, admitted atomic.Int64
	var crowd sync.WaitGroup
	for n := range 40 {
		crowd.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%4)*100*time.Microsecond)
				if q.Enter(ctx, n%5) == nil {
					admitted.Add(1)
					if inside.Add(1) > 3 {
						t.Error("more than three are in it")
					}
					inside.Add(-1)
					q.Leave(n % 5)
				}
				cancel()
			}
		})
	}
	crowd.Wait()
	if in, waiting := q.Use(); in+waiting != 0 || admitted.Load() < 100 {
		t.Errorf("%d are left in it, %d wait, %d were admitted", in, waiting, admitted.Load())
	}
}

// TestLine_CalledAtTheEnd: who is called before it has left has what it waited for, although its context has ended.
func TestLine_CalledAtTheEnd(t *testing.T) {
	t.Parallel()
	var line fairqueue.Line[string]
	ended, end := context.WithCancel(t.Context())
	end()
	line.Lock()
	called, gone := line.Join("called"), line.Join("gone")
	line.Call(called, nil)
	line.Unlock()
	if err := line.Wait(ended, called, func() { t.Error("it left") }); err != nil {
		t.Errorf("called: %v", err)
	}
	line.Lock()
	late := line.Join("late")
	waited := make(chan error)
	go func() { waited <- line.Wait(ended, late, func() { t.Error("it left") }) }()
	time.Sleep(10 * time.Millisecond) // it waits for the lock now
	line.Call(late, nil)
	line.Unlock()
	if err := <-waited; err != nil {
		t.Errorf("called while it left: %v", err)
	}
	left := false
	if err := line.Wait(ended, gone, func() { left = true }); !errors.Is(err, context.Canceled) || !left || len(line.Waiting()) != 0 {
		t.Errorf("gone: %v, it left: %t, %d wait", err, left, len(line.Waiting()))
	}
}

func BenchmarkQueue(b *testing.B) {
	b.Run("queue", func(b *testing.B) {
		q := &fairqueue.Queue[int]{Size: 4}
		b.ReportAllocs()
		for b.Loop() {
			_ = q.Enter(b.Context(), 1)
			q.Leave(1)
		}
	})
	b.Run("channel", func(b *testing.B) {
		places := make(chan struct{}, 4)
		b.ReportAllocs()
		for b.Loop() {
			places <- struct{}{}
			<-places
		}
	})
}
