package sqlite

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slowQuestion is how long a question takes that others had better not wait for, and stillSlow one that was
	// slow before: most of the time of the first may have been others'.
	slowQuestion = 20 * time.Millisecond
	stillSlow    = slowQuestion / 4
	// maxSlow bounds the questions of a database that are known to be slow.
	maxSlow = 1024
	// crowdTurns within crowdFor, and for as long after them, several workspaces ask for something. One by itself has
	// turns with the control workspace, but few.
	crowdTurns = 8
	crowdFor   = time.Second
)

// lanes share the readers of a database out: questions that were slow the last time have half of them, and of all
// databases together all processors but one while several workspaces ask, so that quick ones are answered between them; one
// workspace has all but one, and one document that is looked up by its id or another unique index waits for neither, so that
// who an organization or a key is can be told while others ask for much in the workspace that all share.
type lanes struct {
	slow       chan struct{} // one for each slow question that is at work
	processors chan struct{} // the same of all databases
	crowd      *crowd

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

// processors returns room for what may keep all processors busy but one.
func processors() chan struct{} { return lane(runtime.GOMAXPROCS(0) - 1) }

// enter waits for room; leave must follow. Error: the context's own.
func (l *lanes) enter(ctx context.Context, s *space, q question) (leave func(), err error) {
	l.mu.RLock()
	slow := l.known[q]
	l.mu.RUnlock()
	if !slow {
		return func() { <-s.asking }, into(ctx, s.asking)
	}
	// Who waits for room in one lane takes none in the others meanwhile: neighbours are slow too, and others of the workspace quick.
	all := []chan struct{}{l.slow, s.asking}
	if l.crowd.there() {
		all = append(all, l.processors)
	}
	for {
		if err := into(ctx, all[0]); err != nil {
			return nil, err
		}
		n := 1
		for n < len(all) && enters(all[n]) {
			n++
		}
		if n == len(all) {
			return func() { leaves(all) }, nil
		}
		leaves(all[:n])
		all[0], all[n] = all[n], all[0]
	}
}

// crowd tells whether several workspaces ask for something at the moment. The zero value knows of none.
type crowd struct {
	last  atomic.Pointer[space]
	turns atomic.Int64
	at    atomic.Int64 // when the last crowdTurns were over, Unix nanoseconds
	seen  atomic.Int64 // and when the last of those that came within crowdFor were
}

// note says that a workspace asks for something, or writes.
func (c *crowd) note(s *space) {
	if c.last.Load() == s {
		return
	}
	c.last.Store(s)
	if c.turns.Add(1)%crowdTurns != 0 {
		return
	}
	if now := time.Now().UnixNano(); now-c.at.Swap(now) < int64(crowdFor) {
		c.seen.Store(now)
	}
}

func (c *crowd) there() bool { return time.Now().UnixNano()-c.seen.Load() < int64(crowdFor) }

// enters takes a place if there is one.
func enters(lane chan struct{}) bool {
	select {
	case lane <- struct{}{}:
		return true
	default:
		return false
	}
}

func leaves(lanes []chan struct{}) {
	for _, lane := range lanes {
		<-lane
	}
}

func into(ctx context.Context, lane chan struct{}) error {
	if enters(lane) {
		return nil
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
	l.mu.RLock()
	known := l.known[q]
	l.mu.RUnlock()
	slow := took >= slowQuestion || known && took >= stillSlow
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
