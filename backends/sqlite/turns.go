package sqlite

import (
	"context"
	"math"
	"slices"
	"time"

	"tenantry/internal/fairqueue"
)

const (
	// slice is how long a long question keeps a processor until it asks for it again.
	slice = 2 * time.Millisecond
	// gap is how long the question of the organization that has used most leaves its processor idle after each slice,
	// while long questions have all processors: until then nobody looks whether a request has arrived.
	gap = time.Millisecond
	// halfLife is the time in which what an organization has used counts half as much.
	halfLife = time.Second
)

// turns shares the machine's processors among the long questions of all files. Whenever one is free, the workspace with
// the fewest running questions is next, of equals the one that has used least lately, of its own the one that came
// first. While several workspaces ask for something, none has more than half of the processors. Safe for concurrent
// use.
type turns struct {
	processors int
	contended  func() bool // whether several workspaces ask for something
	now        func() time.Time
	pause      func(time.Duration)

	line    fairqueue.Line[*turn] // its lock guards the rest
	running []*turn
}

// turn is a question's hold on a processor, or its wait for one. One goroutine uses it at a time.
type turn struct {
	space *space
	since time.Time // when it got its processor, or last asked for it again
	at    *fairqueue.Ticket[*turn]
}

// usage is what a workspace has of the processors. The engine's turns guard it.
type usage struct {
	running int
	used    time.Duration // lately
	at      time.Time     // when that was true
}

// lately returns what counts of it now.
func (u *usage) lately(now time.Time) time.Duration {
	return time.Duration(float64(u.used) * math.Exp2(-max(0, now.Sub(u.at)).Seconds()/halfLife.Seconds()))
}

// enter waits for a processor; leave must follow. Error: the context's own.
func (t *turns) enter(ctx context.Context, s *space) (*turn, error) {
	t.line.Lock()
	at := t.queue(s)
	t.line.Unlock()
	return at, t.line.Wait(ctx, at.at, func() {})
}

// renew accounts for what was used, and goes on when it is this question's turn again. Where that fails it has no
// processor any more. Error: the context's own.
func (t *turns) renew(ctx context.Context, at *turn) (*turn, error) {
	t.line.Lock()
	t.release(at)
	next := t.queue(at.space)
	idle := t.leavesGap(next)
	t.line.Unlock()
	if idle {
		t.pause(gap)
		next.since = t.now()
		return next, nil
	}
	return next, t.line.Wait(ctx, next.at, func() {})
}

// leave gives the processor back.
func (t *turns) leave(at *turn) {
	t.line.Lock()
	defer t.line.Unlock()
	t.release(at)
	t.serve()
}

func (t *turns) release(at *turn) {
	i := slices.Index(t.running, at)
	t.running = slices.Delete(t.running, i, i+1)
	now, u := t.now(), &at.space.usage
	u.running--
	u.used, u.at = u.lately(now)+now.Sub(at.since), now
}

func (t *turns) queue(s *space) *turn {
	at := &turn{space: s}
	at.at = t.line.Join(at)
	t.serve()
	return at
}

// serve lets in whoever is next, while there is a processor.
func (t *turns) serve() {
	now, most := t.now(), t.processors
	if t.contended() {
		most = (t.processors + 1) / 2
	}
	for len(t.running) < t.processors {
		var next *turn
		for _, at := range t.line.Waiting() {
			if u := &at.Of.space.usage; u.running < most && (next == nil || u.less(&next.space.usage, now)) {
				next = at.Of
			}
		}
		if next == nil {
			return
		}
		t.running = append(t.running, next)
		next.space.usage.running++
		next.since = now
		t.line.Call(next.at, nil)
	}
}

func (u *usage) less(other *usage, now time.Time) bool {
	if u.running != other.running {
		return u.running < other.running
	}
	return u != other && u.lately(now) < other.lately(now)
}

// leavesGap reports whether it is this question, which runs, that is to leave its processor to requests for a moment.
func (t *turns) leavesGap(at *turn) bool {
	if len(t.running) < t.processors || !slices.Contains(t.running, at) || !t.contended() {
		return false
	}
	now := t.now()
	own := at.space.usage.lately(now)
	return !slices.ContainsFunc(t.running, func(other *turn) bool { return other.space.usage.lately(now) > own })
}
