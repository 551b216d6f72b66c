package sqlite

import (
	"context"
	"errors"
	"testing"
	"time"
)

// clocked is a set of turns whose clock stands still unless it is moved.
type clocked struct {
	turns
	at         time.Time
	contention bool
	paused     []time.Duration
}

func newClocked(processors int) *clocked {
	c := &clocked{at: time.Unix(1, 0)}
	c.turns = turns{processors: processors, contended: func() bool { return c.contention }, now: func() time.Time { return c.at },
		pause: func(d time.Duration) { c.paused = append(c.paused, d) }}
	return c
}

// queued is enter for a test that looks on.
func (c *clocked) queued(s *space) *turn {
	c.line.Lock()
	defer c.line.Unlock()
	return c.queue(s)
}

func runs(at *turn) bool { return at.at.Called() }

func wantRunning(t *testing.T, what string, of map[string]*turn, want ...string) {
	t.Helper()
	running := map[string]bool{}
	for _, name := range want {
		running[name] = true
	}
	for name, at := range of {
		if runs(at) != running[name] {
			t.Errorf("%s: %s runs: %t", what, name, !running[name])
		}
	}
}

// TestTurns_LeastFirst: a processor goes to the workspace with the fewest running questions, whoever came first.
func TestTurns_LeastFirst(t *testing.T) {
	t.Parallel()
	c, a, b := newClocked(2), &space{}, &space{}
	of := map[string]*turn{}
	for _, name := range []string{"a1", "a2", "a3"} {
		of[name] = c.queued(a)
	}
	of["b1"], of["b2"] = c.queued(b), c.queued(b)
	wantRunning(t, "one workspace alone has all", of, "a1", "a2")
	c.leave(of["a1"])
	delete(of, "a1")
	wantRunning(t, "the other has none", of, "a2", "b1")
	c.leave(of["a2"])
	delete(of, "a2")
	wantRunning(t, "each has one", of, "b1", "a3")
	c.leave(of["b1"])
	delete(of, "b1")
	wantRunning(t, "each has one again", of, "a3", "b2")
}

// TestTurns_Half: while several workspaces ask for something, even if it takes no turn, none has more than half.
func TestTurns_Half(t *testing.T) {
	t.Parallel()
	for processors, half := range map[int]int{1: 1, 2: 1, 3: 2, 4: 2, 8: 4} {
		c, a, b := newClocked(processors), &space{}, &space{}
		c.contention = true
		for range processors {
			c.queued(a)
		}
		if len(c.running) != half {
			t.Errorf("%d of %d processors", len(c.running), processors)
		}
		for range processors {
			c.queued(b)
		}
		if b.usage.running != processors-half && processors > 1 {
			t.Errorf("the other has %d of %d", b.usage.running, processors)
		}
		c.contention = false
		for range processors {
			c.leave(c.running[0])
		}
		if len(c.running) != processors {
			t.Errorf("%d of %d processors while one asks", len(c.running), processors)
		}
	}
}

// TestTurns_Slices: a question that has its slice goes on only where it is its turn again.
func TestTurns_Slices(t *testing.T) {
	t.Parallel()
	c, a, b := newClocked(2), &space{}, &space{}
	first, second, other := c.queued(a), c.queued(a), c.queued(b)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := c.renew(ended, first); !errors.Is(err, context.Canceled) {
		t.Errorf("the third of two: %v", err)
	}
	if !runs(other) {
		t.Fatal("a question waits for others that have had their slice")
	}
	if len(c.line.Waiting()) != 0 || a.usage.running != 1 {
		t.Errorf("who has gone left %d waiting, %d running", len(c.line.Waiting()), a.usage.running)
	}
	third := c.queued(a)
	for range 3 { // however often it asks
		c.at = c.at.Add(slice)
		var err error
		if other, err = c.renew(t.Context(), other); err != nil || runs(third) {
			t.Fatalf("the only one of its workspace gives way: %v", err)
		}
	}
	c.leave(second)
	if !runs(third) {
		t.Error("the last one waits on")
	}
}

// TestTurns_LessUsed: of two workspaces that wait on one processor, the one that has used less goes on until both have
// used the same; what was used long ago does not count.
func TestTurns_LessUsed(t *testing.T) {
	t.Parallel()
	c, a, b := newClocked(1), &space{}, &space{}
	at := c.queued(a)
	c.at = c.at.Add(10 * slice)
	waiting := c.queued(b)
	c.line.Lock()
	c.release(at)
	again := c.queue(a)
	c.line.Unlock()
	slices := 0
	for ; !runs(again); slices++ {
		if !runs(waiting) {
			t.Fatal("nobody runs")
		}
		c.at = c.at.Add(slice)
		c.line.Lock()
		c.release(waiting)
		waiting = c.queue(b)
		c.line.Unlock()
	}
	if slices < 9 || slices > 11 {
		t.Errorf("%d slices against 10", slices)
	}
	c.at = c.at.Add(time.Hour)
	if left := b.usage.lately(c.at); left != 0 {
		t.Errorf("an hour later %v count", left)
	}
}

// TestTurns_Leaving: who has gone while waiting leaves no trace.
func TestTurns_Leaving(t *testing.T) {
	t.Parallel()
	c, a, b := newClocked(1), &space{}, &space{}
	at := c.queued(a)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := c.enter(ended, b); !errors.Is(err, context.Canceled) || len(c.line.Waiting()) != 0 || b.usage.running != 0 {
		t.Errorf("%v, %d wait", err, len(c.line.Waiting()))
	}
	c.leave(at)
	if next := c.queued(a); !runs(next) {
		t.Error("the processor is lost")
	}
}

// TestTurns_Gap: while long questions have all processors, the one whose workspace has used most leaves gaps to
// requests.
func TestTurns_Gap(t *testing.T) {
	t.Parallel()
	c, a, b := newClocked(2), &space{}, &space{}
	at, other := c.queued(a), c.queued(b)
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
		t.Error("a gap while nobody else asks")
	}
	c.contention = true
	other, at = renew(other), renew(at)
	if len(c.paused) == 0 {
		t.Error("no gap while all processors are taken")
	}
	c.paused, b.usage.used = nil, a.usage.used/2
	other = renew(other)
	if len(c.paused) != 0 {
		t.Error("a gap of the workspace that has used less")
	}
	c.leave(other)
	if at = renew(at); len(c.paused) != 0 {
		t.Error("a gap while a processor is free")
	}
	c.leave(at)
}
