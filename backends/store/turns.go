package store

import (
	"context"
	"sync"
	"time"
)

// turnTimeout bounds the wait for a turn. Turns only avoid conflicts; correctness comes from the revision of the
// record, so a writer whose wait ends proceeds without a turn.
const turnTimeout = time.Second

// turns makes the writers of one process change the same record one after another, because all but one of several
// concurrent changes would fail. The zero value is ready to use. Safe for concurrent use.
type turns struct {
	mu    sync.Mutex
	taken map[turn]*queue
}

type turn struct {
	org      int64
	kind, id string
}

// queue holds the writers of one record.
type queue struct {
	token chan struct{} // full while a writer has the turn
	n     int           // writers that have the turn or wait for it; guarded by turns.mu
}

// take waits for the turn until it is free, turnTimeout has passed or ctx ends. The caller must call leave.
func (t *turns) take(ctx context.Context, key turn) (leave func()) {
	t.mu.Lock()
	q := t.taken[key]
	if q == nil {
		if t.taken == nil {
			t.taken = map[turn]*queue{}
		}
		q = &queue{token: make(chan struct{}, 1)}
		t.taken[key] = q
	}
	q.n++
	t.mu.Unlock()

	has := false
	select {
	case q.token <- struct{}{}:
		has = true
	default:
		timeout := time.NewTimer(turnTimeout)
		defer timeout.Stop()
		select {
		case q.token <- struct{}{}:
			has = true
		case <-timeout.C:
		case <-ctx.Done():
		}
	}
	return func() {
		if has {
			<-q.token
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if q.n--; q.n == 0 {
			delete(t.taken, key)
		}
	}
}
