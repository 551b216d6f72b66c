package sqlite

import (
	"context"
	"math"
	"slices"
	"time"

	"tenantry/internal/fairqueue"
)

const (
	// slice is how long a long query keeps a processor before it queues again.
	slice = 2 * time.Millisecond
	// pauseLength is how long a query of the workspace with the highest usage leaves its processor idle after each slice
	// while long queries have all processors. Otherwise nothing would check meanwhile whether new requests have arrived.
	pauseLength = time.Millisecond
	// halfLife is the time in which the usage of a workspace decays to half.
	halfLife = time.Second
)

// scheduler shares the processors among the long queries of all files. A free processor goes to the workspace with the
// fewest running queries; among equals, to the one with the lowest recent usage; and within a workspace, to the query
// that came first. Under contention no workspace has more than half of the processors. Safe for concurrent use.
type scheduler struct {
	processors int
	contended  func() bool // whether several workspaces are active
	now        func() time.Time
	pause      func(time.Duration)

	line    fairqueue.Line[*turn] // its lock guards the rest
	running []*turn
}

// turn is a query's use of a processor, or its wait for one. One goroutine uses it at a time.
type turn struct {
	space  *space
	since  time.Time // when it got its processor
	ticket *fairqueue.Ticket[*turn]
}

// usage is a workspace's use of processors. The engine's scheduler guards it.
type usage struct {
	running int
	spent   time.Duration // decayed
	at      time.Time     // when spent had this value
}

// decayed returns the usage as it counts now.
func (u *usage) decayed(now time.Time) time.Duration {
	return time.Duration(float64(u.spent) * math.Exp2(-max(0, now.Sub(u.at)).Seconds()/halfLife.Seconds()))
}

// acquire waits for a processor. Unless it fails, release must follow. Error: the context's own.
func (t *scheduler) acquire(ctx context.Context, s *space) (*turn, error) {
	t.line.Lock()
	at := t.enqueue(s)
	t.line.Unlock()
	return at, t.line.Wait(ctx, at.ticket, func() {})
}

// renew accounts for the ended turn and waits for the next one of this query. After an error the query has no
// processor. Error: the context's own.
func (t *scheduler) renew(ctx context.Context, at *turn) (*turn, error) {
	t.line.Lock()
	t.account(at)
	next := t.enqueue(at.space)
	idle := t.shouldPause(next)
	t.line.Unlock()
	if idle {
		t.pause(pauseLength)
		next.since = t.now()
		return next, nil
	}
	return next, t.line.Wait(ctx, next.ticket, func() {})
}

// release gives the processor back.
func (t *scheduler) release(at *turn) {
	t.line.Lock()
	defer t.line.Unlock()
	t.account(at)
	t.dispatch()
}

// account ends the turn and adds its length to the workspace's usage. t.line is locked.
func (t *scheduler) account(at *turn) {
	i := slices.Index(t.running, at)
	t.running = slices.Delete(t.running, i, i+1)
	now, u := t.now(), &at.space.usage
	u.running--
	u.spent, u.at = u.decayed(now)+now.Sub(at.since), now
}

// enqueue adds a turn for the workspace, and grants it if a processor is free. t.line is locked.
func (t *scheduler) enqueue(s *space) *turn {
	at := &turn{space: s}
	at.ticket = t.line.Join(at)
	t.dispatch()
	return at
}

// dispatch gives free processors to the next waiting queries. t.line is locked.
func (t *scheduler) dispatch() {
	now, most := t.now(), t.processors
	if t.contended() {
		most = (t.processors + 1) / 2
	}
	for len(t.running) < t.processors {
		var next *turn
		for _, ticket := range t.line.Waiting() {
			u := &ticket.Of.space.usage
			if u.running < most && (next == nil || u.less(&next.space.usage, now)) {
				next = ticket.Of
			}
		}
		if next == nil {
			return
		}
		t.running = append(t.running, next)
		next.space.usage.running++
		next.since = now
		t.line.Call(next.ticket, nil)
	}
}

// less reports whether the workspace of u is served before that of the other.
func (u *usage) less(other *usage, now time.Time) bool {
	if u.running != other.running {
		return u.running < other.running
	}
	return u != other && u.decayed(now) < other.decayed(now)
}

// shouldPause reports whether this running query should leave its processor idle for pauseLength. t.line is locked.
func (t *scheduler) shouldPause(at *turn) bool {
	if len(t.running) < t.processors || !slices.Contains(t.running, at) || !t.contended() {
		return false
	}
	now := t.now()
	own := at.space.usage.decayed(now)
	return !slices.ContainsFunc(t.running, func(other *turn) bool { return other.space.usage.decayed(now) > own })
}
