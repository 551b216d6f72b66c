package store

import (
	"context"
	"sync"
	"time"
)

// patience is how long somebody waits for a turn. It is a courtesy that spares tries: what keeps records right is
// their revision, so whoever waits for too long goes on without.
const patience = time.Second

// turns lets those of one process who change the same record do so one after another, where all but one would
// be in vain. The zero value is ready. Safe for concurrent use.
type turns struct {
	mu    sync.Mutex
	taken map[turn]*queue
}

type turn struct {
	org      int64
	kind, id string
}

// queue is of those who want one turn: a token for who has it, and how many there are.
type queue struct {
	token chan struct{}
	n     int
}

// take waits for the turn, or for as long as patience and ctx last. Leave must follow.
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
		enough := time.NewTimer(patience)
		defer enough.Stop()
		select {
		case q.token <- struct{}{}:
			has = true
		case <-enough.C:
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
