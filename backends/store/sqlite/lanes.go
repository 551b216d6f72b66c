package sqlite

import (
	"context"
	"sync"
	"time"
)

const (
	// slowQuestion is how long a question takes that others had better not wait for.
	slowQuestion = 20 * time.Millisecond
	// maxSlow bounds the questions of a database that are known to be slow.
	maxSlow = 1024
)

// lanes share the readers of a database out: questions that were slow the last time have half of them, one
// workspace has all but one, and one document that is looked up by its id or another unique index waits for neither, so that
// who an organization or a key is can be told while others ask for much in the workspace that all share. The zero value knows of none.
type lanes struct {
	slow chan struct{} // one for each slow question that is at work

	mu    sync.RWMutex
	known map[question]bool // that were slow the last time
}

// question tells one kind of question of a workspace from another.
type question struct {
	ws  int64
	sql string
}

// lane returns room for n at a time, and for one at least.
func lane(n int) chan struct{} { return make(chan struct{}, max(1, n)) }

// enter waits for room; leave must follow. Error: the context's own.
func (l *lanes) enter(ctx context.Context, s *space, q question) (leave func(), err error) {
	l.mu.RLock()
	slow := l.known[q]
	l.mu.RUnlock()
	if !slow {
		return func() { <-s.asking }, into(ctx, s.asking)
	}
	// Who waits for room in one lane takes none in the other meanwhile: neighbours are slow too, and others of the workspace quick.
	for lanes := [2]chan struct{}{l.slow, s.asking}; ; lanes[0], lanes[1] = lanes[1], lanes[0] {
		if err := into(ctx, lanes[0]); err != nil {
			return nil, err
		}
		select {
		case lanes[1] <- struct{}{}:
			return func() { <-s.asking; <-l.slow }, nil
		default:
			<-lanes[0]
		}
	}
}

func into(ctx context.Context, lane chan struct{}) error {
	select {
	case lane <- struct{}{}:
		return nil
	default:
	}
	select {
	case lane <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// forget gives the memory back.
func (l *lanes) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = nil
}

// took notes how long a question took.
func (l *lanes) took(q question, took time.Duration) {
	slow := took >= slowQuestion
	l.mu.RLock()
	known := l.known[q]
	l.mu.RUnlock()
	if slow == known {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slow {
		delete(l.known, q)
		return
	}
	if l.known == nil || len(l.known) >= maxSlow {
		l.known = map[question]bool{}
	}
	l.known[q] = true
}
