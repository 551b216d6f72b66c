package passwords

import (
	"context"
	"slices"
	"sync"
)

// queue lets a bounded number of computations run and a bounded number wait, and shares both
// evenly among the parties that ask: whoever floods it waits behind itself.
type queue struct {
	mu      sync.Mutex
	free    int // computations that may begin
	waiting int
	places  int // for those that wait
	lines   []*line
}

// line is what one party has waiting, at least one. The party at the front of the queue's
// lines is served next and then goes to the end.
type line struct {
	party   int64
	waiting []*place
}

// place is one that waits. Its channel takes true when the computation may begin, false
// when the place was given to another party.
type place struct{ turn chan bool }

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
	p, ok := q.join(party)
	q.mu.Unlock()
	if !ok {
		return nil, ErrBusy
	}
	select {
	case begin := <-p.turn:
		if !begin {
			return nil, ErrBusy
		}
		return q.leave, nil
	case <-ctx.Done():
		if !q.remove(party, p) && <-p.turn { // it was called meanwhile
			q.leave()
		}
		return nil, ctx.Err()
	}
}

func (q *queue) find(party int64) int {
	return slices.IndexFunc(q.lines, func(l *line) bool { return l.party == party })
}

// join takes a place. Where there is none left, the longest line gives its last one up, unless
// it would be as long as the party's own then.
func (q *queue) join(party int64) (*place, bool) {
	i := q.find(party)
	if q.waiting == q.places {
		longest := slices.MaxFunc(q.lines, func(a, b *line) int { return len(a.waiting) - len(b.waiting) })
		own := 0
		if i >= 0 {
			own = len(q.lines[i].waiting)
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
		i = len(q.lines)
		q.lines = append(q.lines, &line{party: party})
	}
	p := &place{turn: make(chan bool, 1)}
	q.lines[i].waiting = append(q.lines[i].waiting, p)
	q.waiting++
	return p, true
}

// remove takes somebody out who waits no longer, and reports whether he still waited.
func (q *queue) remove(party int64, p *place) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.find(party)
	if i < 0 {
		return false
	}
	l := q.lines[i]
	at := slices.Index(l.waiting, p)
	if at < 0 {
		return false
	}
	q.waiting--
	if l.waiting = slices.Delete(l.waiting, at, at+1); len(l.waiting) == 0 {
		q.lines = slices.Delete(q.lines, i, i+1)
	}
	return true
}

// leave ends a computation and lets the next begin.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) == 0 {
		q.free++
		return
	}
	l := q.lines[0]
	l.waiting[0].turn <- true
	l.waiting = l.waiting[1:]
	q.waiting--
	q.lines = q.lines[1:]
	if len(l.waiting) > 0 {
		q.lines = append(q.lines, l)
	}
}
