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

// order records the admissions to a queue and the rejections by party.
type order struct {
	mu     sync.Mutex
	served []int
	full   map[int]int // rejections
}

// enter starts a caller of the party, who stays inside for a second.
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

// admitted returns the parties in the order of their admissions.
func (o *order) admitted() []int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.served)
}

// TestQueue_PartiesRotate: parties are admitted in rotation, and a full queue takes a place from the party with
// the most.
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
			t.Errorf("rejections by party = %v, want 6 of party 1 and one of each other", got.full)
		}
	})
}

// TestQueue_ZeroValueLocksEachParty: at most one caller of a party is inside, independently of other parties.
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
			t.Errorf("%d admissions, want 5", n)
		}
	})
}

// TestQueue_Timeout: a wait ends after Timeout, even if the context would allow more.
func TestQueue_Timeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &fairqueue.Queue[int]{Timeout: time.Second}
		if err := q.Enter(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := q.Enter(ctx, 1)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second || ctx.Err() != nil {
			t.Errorf("Enter = %v after %s, want %v after a second", err, time.Since(began), context.DeadlineExceeded)
		}
	})
}

// TestQueue_Properties lets callers of arbitrary parties arrive and time out. The bounds hold, an error comes at its
// time, and nothing is left behind.
func TestQueue_Properties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		q := &fairqueue.Queue[int]{
			Size:   rapid.IntRange(0, 3).Draw(r, "size"),
			Share:  rapid.IntRange(0, 3).Draw(r, "share"),
			Places: rapid.IntRange(0, 8).Draw(r, "places"),
		}
		share := q.Share
		if share == 0 {
			share = max(q.Size, 1)
		}
		parties := rapid.SliceOfN(rapid.IntRange(0, 3), 1, 40).Draw(r, "parties")
		timeouts := rapid.SliceOfN(rapid.IntRange(1, 30), len(parties), len(parties)).Draw(r, "timeouts")
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			inside, all := map[int]int{}, 0
			for i, party := range parties {
				go func() {
					timeout := time.Duration(timeouts[i]) * time.Second
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					began := time.Now()
					if err := q.Enter(ctx, party); err != nil {
						late := errors.Is(err, context.DeadlineExceeded)
						if errors.Is(err, fairqueue.ErrFull) == late || late != (time.Since(began) == timeout) {
							t.Errorf("Enter = %v after %s, want ErrFull, or the deadline after %s", err, time.Since(began), timeout)
						}
						return
					}
					mu.Lock()
					inside[party]++
					all++
					if inside[party] > share || q.Size > 0 && all > q.Size {
						t.Errorf("%d of the party and %d in all are inside; size %d, share %d", inside[party], all, q.Size, share)
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
					t.Errorf("%d wait at %d places, %d are inside", waiting, q.Places, in)
				}
			}
			time.Sleep(time.Minute)
			if in, waiting := q.Use(); in+waiting+q.Parties() != 0 {
				t.Errorf("%d are inside, %d wait and %d parties are remembered, want none", in, waiting, q.Parties())
			}
		})
	})
}

// TestQueue_Fairness: a party with two callers is admitted as often as one with forty.
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
			t.Errorf("admissions: %d of the two, %d of the forty, want half of 200 each", few, many)
		}
	})
}

// TestQueue_Concurrent lets goroutines enter, time out and leave at the same moments, for the race detector.
func TestQueue_Concurrent(t *testing.T) {
	t.Parallel()
	q := &fairqueue.Queue[int]{Size: 3, Share: 2, Places: 20}
	var inside, admitted atomic.Int64
	var callers sync.WaitGroup
	for n := range 40 {
		callers.Go(func() {
			for i := range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%4)*100*time.Microsecond)
				if q.Enter(ctx, n%5) == nil {
					admitted.Add(1)
					if inside.Add(1) > 3 {
						t.Error("more than three callers are inside")
					}
					inside.Add(-1)
					q.Leave(n % 5)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	if in, waiting := q.Use(); in+waiting != 0 || admitted.Load() < 100 {
		t.Errorf("%d are inside, %d wait, %d were admitted; want 0, 0 and at least 100", in, waiting, admitted.Load())
	}
}

// TestLine_CallWinsOverCancellation: a caller that is called before it leaves has what it waited for, although its
// context has ended.
func TestLine_CallWinsOverCancellation(t *testing.T) {
	t.Parallel()
	var line fairqueue.Line[string]
	ended, end := context.WithCancel(t.Context())
	end()
	line.Lock()
	called, gone := line.Join("called"), line.Join("gone")
	line.Call(called, nil)
	line.Unlock()
	if err := line.Wait(ended, called, func() { t.Error("left was called") }); err != nil {
		t.Errorf("Wait after Call = %v, want nil", err)
	}
	line.Lock()
	late := line.Join("late")
	waited := make(chan error)
	go func() { waited <- line.Wait(ended, late, func() { t.Error("left was called") }) }()
	time.Sleep(10 * time.Millisecond) // it waits for the lock now
	line.Call(late, nil)
	line.Unlock()
	if err := <-waited; err != nil {
		t.Errorf("Wait, called while leaving = %v, want nil", err)
	}
	left := false
	err := line.Wait(ended, gone, func() { left = true })
	if !errors.Is(err, context.Canceled) || !left || len(line.Waiting()) != 0 {
		t.Errorf("Wait = %v, left %t, %d wait; want %v, true and 0", err, left, len(line.Waiting()), context.Canceled)
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
