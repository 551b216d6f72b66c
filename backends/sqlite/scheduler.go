package sqlite

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
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

	mu      sync.Mutex
	running []*turn
	waiting []*turn // in the order they came
}

// turn is a query's use of a processor, or its wait for one. One goroutine uses it at a time.
type turn struct {
	space *space
	since time.Time     // when it got its processor
	ready chan struct{} // closed once it has its processor
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
	t.mu.Lock()
	at := t.enqueue(s)
	t.mu.Unlock()
	return at, t.await(ctx, at)
}

// renew accounts for the ended turn and waits for the next one of this query. After an error the query has no
// processor. Error: the context's own.
func (t *scheduler) renew(ctx context.Context, at *turn) (*turn, error) {
	t.mu.Lock()
	t.account(at)
	next := t.enqueue(at.space)
	idle := t.shouldPause(next)
	t.mu.Unlock()
	if idle {
		t.pause(pauseLength)
		next.since = t.now()
		return next, nil
	}
	return next, t.await(ctx, next)
}

// release gives the processor back.
func (t *scheduler) release(at *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account(at)
	t.dispatch()
}

// account ends the turn and adds its length to the workspace's usage. t.mu is held.
func (t *scheduler) account(at *turn) {
	i := slices.Index(t.running, at)
	t.running = slices.Delete(t.running, i, i+1)
	now, u := t.now(), &at.space.usage
	u.running--
	u.spent, u.at = u.decayed(now)+now.Sub(at.since), now
}

// enqueue adds a turn for the workspace, and grants it if a processor is free. t.mu is held.
func (t *scheduler) enqueue(s *space) *turn {
	at := &turn{space: s, ready: make(chan struct{})}
	t.waiting = append(t.waiting, at)
	t.dispatch()
	return at
}

// dispatch gives free processors to the next waiting queries. t.mu is held.
func (t *scheduler) dispatch() {
	now, most := t.now(), t.processors
	if t.contended() {
		most = (t.processors + 1) / 2
	}
	for len(t.running) < t.processors {
		next := -1
		for i, at := range t.waiting {
			if at.space.usage.running < most && (next < 0 || at.space.usage.less(&t.waiting[next].space.usage, now)) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		at := t.waiting[next]
		t.waiting = slices.Delete(t.waiting, next, next+1)
		t.running = append(t.running, at)
		at.space.usage.running++
		at.since = now
		close(at.ready)
	}
}

// less reports whether the workspace of u is served before that of the other.
func (u *usage) less(other *usage, now time.Time) bool {
	if u.running != other.running {
		return u.running < other.running
	}
	return u != other && u.decayed(now) < other.decayed(now)
}

// shouldPause reports whether this running query should leave its processor idle for pauseLength. t.mu is held.
func (t *scheduler) shouldPause(at *turn) bool {
	if len(t.running) < t.processors || !slices.Contains(t.running, at) || !t.contended() {
		return false
	}
	now := t.now()
	own := at.space.usage.decayed(now)
	return !slices.ContainsFunc(t.running, func(other *turn) bool { return other.space.usage.decayed(now) > own })
}

// await waits for the turn. If the context ends first, it removes the query from the queue.
func (t *scheduler) await(ctx context.Context, at *turn) error {
	select {
	case <-at.ready:
		return nil
	default:
	}
	select {
	case <-at.ready:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, at); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else { // the turn came at the same moment
		t.account(at)
		t.dispatch()
	}
	return ctx.Err()
}
