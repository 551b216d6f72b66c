package passwords

import (
	"context"
	"slices"
	"sync"
)

// queue bounds how many computations run and how many wait, and shares both evenly among the parties. A party with many
// computations delays only its own.
type queue struct {
	mu       sync.Mutex
	free     int // computations that may begin
	waiting  int // computations that wait, of all parties
	capacity int // for those that wait
	parties  []*partyQueue
}

// partyQueue holds the waiting computations of one party, at least one. The party at the front of queue.parties is
// next, and then moves to the end.
type partyQueue struct {
	party   int64
	waiting []*waiter
}

// waiter is a computation that waits. Its channel receives true when the computation may begin, and false if another
// party took its place.
type waiter struct{ turn chan bool }

// enter waits for a turn. Errors: ErrBusy, that of ctx.
func (q *queue) enter(ctx context.Context, party int64) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	q.mu.Lock()
	if q.free > 0 { // then nobody waits
		q.free--
		q.mu.Unlock()
		return q.leave, nil
	}
	w, ok := q.join(party)
	q.mu.Unlock()
	if !ok {
		return nil, ErrBusy
	}
	select {
	case begin := <-w.turn:
		if !begin {
			return nil, ErrBusy
		}
		return q.leave, nil
	case <-ctx.Done():
		if !q.remove(party, w) && <-w.turn { // its turn came meanwhile
			q.leave()
		}
		return nil, ctx.Err()
	}
}

func (q *queue) find(party int64) int {
	return slices.IndexFunc(q.parties, func(l *partyQueue) bool { return l.party == party })
}

// join adds a waiter. If the queue is full, the party with the most waiters loses its last one, unless the new waiter
// would give its own party as many.
func (q *queue) join(party int64) (*waiter, bool) {
	i := q.find(party)
	if q.waiting == q.capacity {
		longest := slices.MaxFunc(q.parties, func(a, b *partyQueue) int { return len(a.waiting) - len(b.waiting) })
		own := 0
		if i >= 0 {
			own = len(q.parties[i].waiting)
		}
		last := len(longest.waiting) - 1
		if last <= own {
			return nil, false
		}
		longest.waiting[last].turn <- false
		longest.waiting = longest.waiting[:last]
		q.waiting--
	}
	if i < 0 {
		i = len(q.parties)
		q.parties = append(q.parties, &partyQueue{party: party})
	}
	w := &waiter{turn: make(chan bool, 1)}
	q.parties[i].waiting = append(q.parties[i].waiting, w)
	q.waiting++
	return w, true
}

// remove removes a waiter that gives up, and reports whether it was still waiting.
func (q *queue) remove(party int64, w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.find(party)
	if i < 0 {
		return false
	}
	l := q.parties[i]
	at := slices.Index(l.waiting, w)
	if at < 0 {
		return false
	}
	q.waiting--
	if l.waiting = slices.Delete(l.waiting, at, at+1); len(l.waiting) == 0 {
		q.parties = slices.Delete(q.parties, i, i+1)
	}
	return true
}

// leave ends a computation and lets the next one begin.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.parties) == 0 {
		q.free++
		return
	}
	l := q.parties[0]
	l.waiting[0].turn <- true
	l.waiting = l.waiting[1:]
	q.waiting--
	q.parties = q.parties[1:]
	if len(l.waiting) > 0 {
		q.parties = append(q.parties, l)
	}
}
