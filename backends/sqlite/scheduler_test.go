package sqlite

import (
	"context"
	"errors"
	"testing"
	"time"
)

// testScheduler is a scheduler with a clock that tests set.
type testScheduler struct {
	scheduler
	at         time.Time
	contention bool
	paused     []time.Duration
}

func newTestScheduler(processors int) *testScheduler {
	c := &testScheduler{at: time.Unix(1, 0)}
	c.scheduler = scheduler{
		processors: processors,
		contended:  func() bool { return c.contention },
		now:        func() time.Time { return c.at },
		pause:      func(d time.Duration) { c.paused = append(c.paused, d) },
	}
	return c
}

// enqueued returns a turn that may still wait for its processor.
func (c *testScheduler) enqueued(s *space) *turn {
	c.line.Lock()
	defer c.line.Unlock()
	return c.enqueue(s)
}

func isRunning(at *turn) bool { return at.ticket.Called() }

func wantRunning(t *testing.T, what string, of map[string]*turn, want ...string) {
	t.Helper()
	running := map[string]bool{}
	for _, name := range want {
		running[name] = true
	}
	for name, at := range of {
		if isRunning(at) != running[name] {
			t.Errorf("%s: %s is running: %t, want %t", what, name, !running[name], running[name])
		}
	}
}

// TestScheduler_FewestRunningFirst: a processor goes to the workspace with the fewest running queries, not to the query
// that came first.
func TestScheduler_FewestRunningFirst(t *testing.T) {
	t.Parallel()
	c, a, b := newTestScheduler(2), &space{}, &space{}
	of := map[string]*turn{}
	for _, name := range []string{"a1", "a2", "a3"} {
		of[name] = c.enqueued(a)
	}
	of["b1"], of["b2"] = c.enqueued(b), c.enqueued(b)
	wantRunning(t, "the first workspace has all processors", of, "a1", "a2")
	c.release(of["a1"])
	delete(of, "a1")
	wantRunning(t, "the other workspace had none", of, "a2", "b1")
	c.release(of["a2"])
	delete(of, "a2")
	wantRunning(t, "each has one", of, "b1", "a3")
	c.release(of["b1"])
	delete(of, "b1")
	wantRunning(t, "each has one again", of, "a3", "b2")
}

// TestScheduler_AtMostHalfUnderContention: under contention no workspace has more than half of the processors.
func TestScheduler_AtMostHalfUnderContention(t *testing.T) {
	t.Parallel()
	for processors, half := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 8: 4} {
		c, a, b := newTestScheduler(processors), &space{}, &space{}
		c.contention = true
		for range processors {
			c.enqueued(a)
		}
		if len(c.running) != half {
			t.Errorf("one workspace runs on %d of %d processors, want %d", len(c.running), processors, half)
		}
		for range processors {
			c.enqueued(b)
		}
		if b.usage.running != processors-half && processors > 1 {
			t.Errorf("the other workspace runs on %d of %d processors, want %d", b.usage.running, processors, processors-half)
		}
		c.contention = false
		for range processors {
			c.release(c.running[0])
		}
		if len(c.running) != processors {
			t.Errorf("%d of %d processors in use without contention, want all", len(c.running), processors)
		}
	}
}

// TestScheduler_SliceEndsTurn: after its slice a query continues only if it is its turn again.
func TestScheduler_SliceEndsTurn(t *testing.T) {
	t.Parallel()
	c, a, b := newTestScheduler(2), &space{}, &space{}
	first, second, other := c.enqueued(a), c.enqueued(a), c.enqueued(b)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := c.renew(ended, first); !errors.Is(err, context.Canceled) {
		t.Errorf("renew with an ended context = %v, want %v", err, context.Canceled)
	}
	if !isRunning(other) {
		t.Fatal("a query waits for others whose slice is over")
	}
	if len(c.line.Waiting()) != 0 || a.usage.running != 1 {
		t.Errorf("%d waiting, %d running after a cancellation; want 0, 1", len(c.line.Waiting()), a.usage.running)
	}
	third := c.enqueued(a)
	for range 3 { // no matter how often it renews
		c.at = c.at.Add(slice)
		var err error
		if other, err = c.renew(t.Context(), other); err != nil || isRunning(third) {
			t.Fatalf("the only query of a workspace yields, %v", err)
		}
	}
	c.release(second)
	if !isRunning(third) {
		t.Error("the last query still waits")
	}
}

// TestScheduler_LeastUsageFirst: of two workspaces that wait for one processor, the one with the lower usage runs until
// both have the same. Usage decays.
func TestScheduler_LeastUsageFirst(t *testing.T) {
	t.Parallel()
	c, a, b := newTestScheduler(1), &space{}, &space{}
	at := c.enqueued(a)
	c.at = c.at.Add(10 * slice)
	waiting := c.enqueued(b)
	c.line.Lock()
	c.account(at)
	again := c.enqueue(a)
	c.line.Unlock()
	slices := 0
	for ; !isRunning(again); slices++ {
		if !isRunning(waiting) {
			t.Fatal("no query is running")
		}
		c.at = c.at.Add(slice)
		c.line.Lock()
		c.account(waiting)
		waiting = c.enqueue(b)
		c.line.Unlock()
	}
	if slices < 9 || slices > 11 {
		t.Errorf("%d slices until the other runs, want about 10", slices)
	}
	c.at = c.at.Add(time.Hour)
	if left := b.usage.decayed(c.at); left != 0 {
		t.Errorf("usage after an hour = %v, want 0", left)
	}
}

// TestScheduler_CancelledWaitLeavesNoTrace: a query that is cancelled while it waits is removed.
func TestScheduler_CancelledWaitLeavesNoTrace(t *testing.T) {
	t.Parallel()
	c, a, b := newTestScheduler(1), &space{}, &space{}
	at := c.enqueued(a)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := c.acquire(ended, b)
	if waiting := len(c.line.Waiting()); !errors.Is(err, context.Canceled) || waiting != 0 || b.usage.running != 0 {
		t.Errorf("acquire = %v, %d waiting, %d running; want %v, 0, 0", err, waiting, b.usage.running, context.Canceled)
	}
	c.release(at)
	if next := c.enqueued(a); !isRunning(next) {
		t.Error("the processor was not released")
	}
}

// TestScheduler_PausesUnderContention: while long queries have all processors, a query of the workspace with the
// highest usage pauses after each slice.
func TestScheduler_PausesUnderContention(t *testing.T) {
	t.Parallel()
	c, a, b := newTestScheduler(2), &space{}, &space{}
	at, other := c.enqueued(a), c.enqueued(b)
	c.at = c.at.Add(slice)
	renew := func(at *turn) *turn {
		at, err := c.renew(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	at = renew(at)
	if len(c.paused) != 0 {
		t.Error("a pause without contention")
	}
	c.contention = true
	other, at = renew(other), renew(at)
	if len(c.paused) == 0 {
		t.Error("no pause while all processors are in use")
	}
	c.paused, b.usage.spent = nil, a.usage.spent/2
	other = renew(other)
	if len(c.paused) != 0 {
		t.Error("a pause of the workspace with the lower usage")
	}
	c.release(other)
	if at = renew(at); len(c.paused) != 0 {
		t.Error("a pause while a processor is free")
	}
	c.release(at)
}
