package fairqueue

import (
	"context"
	"errors"
	"time"
)

// ErrFull is returned if all places for waiting are taken.
var ErrFull = errors.New("too many are waiting already")

// Queue bounds how many callers are inside at a time, in all and by party. The others wait, and their parties take
// turns in rotation, so a party that floods the queue delays only itself. The zero value is one lock for each party.
// The fields must be set before the first use. Safe for concurrent use.
type Queue[Party comparable] struct {
	// Size is the maximum number of callers inside; 0 for any number.
	Size int
	// Share is the maximum number of callers of one party inside; 0 for Size, or for 1 if Size is 0 too.
	Share int
	// Places is the maximum number of waiting callers; 0 for any number. If all places are taken, the party with the most
	// of them loses its last one to a party that has fewer.
	Places int
	// Timeout bounds the wait; 0 if only the context does.
	Timeout time.Duration

	line    Line[Party]
	inside  int
	rounds  int64
	parties map[Party]account // those with callers inside or waiting
}

// account counts the callers of a party.
type account struct {
	inside, waiting int
	turn            int64 // the waiting party with the lowest turn is next
}

// Enter waits for admission. Unless it fails, Leave must follow. Errors: ErrFull, which may also end a wait, the
// context's own, and context.DeadlineExceeded after Timeout.
func (q *Queue[P]) Enter(ctx context.Context, party P) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q.line.Lock()
	if q.admits(party) { // then no waiting caller could be admitted
		q.admit(party)
		q.line.Unlock()
		return nil
	}
	if q.Places > 0 && len(q.line.waiting) >= q.Places && !q.takePlace(party) {
		q.line.Unlock()
		return ErrFull
	}
	a := q.parties[party]
	if a.waiting == 0 {
		q.rounds++
		a.turn = q.rounds
	}
	a.waiting++
	q.set(party, a)
	t := q.line.Join(party)
	q.line.Unlock()
	if q.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.Timeout)
		defer cancel()
	}
	return q.line.Wait(ctx, t, func() { q.unwait(party) })
}

// Leave gives the place back, and admits a caller of the waiting party whose turn it is.
func (q *Queue[P]) Leave(party P) {
	q.line.Lock()
	defer q.line.Unlock()
	q.inside--
	a := q.parties[party]
	a.inside--
	q.set(party, a)

	var next *Ticket[P]
	for _, t := range q.line.waiting {
		if q.admits(t.Of) && (next == nil || q.parties[t.Of].turn < q.parties[next.Of].turn) {
			next = t
		}
	}
	if next == nil {
		return
	}
	q.unwait(next.Of)
	q.admit(next.Of)
	q.line.Call(next, nil)
}

// Use returns how many callers are inside and how many wait.
func (q *Queue[P]) Use() (inside, waiting int) {
	q.line.Lock()
	defer q.line.Unlock()
	return q.inside, len(q.line.waiting)
}

// admits reports whether the bounds allow one more caller of the party. The lock is held.
func (q *Queue[P]) admits(party P) bool {
	share := q.Share
	if share == 0 {
		share = max(q.Size, 1)
	}
	return (q.Size == 0 || q.inside < q.Size) && q.parties[party].inside < share
}

// admit counts a caller as inside. The other waiting parties have their turns first then. The lock is held.
func (q *Queue[P]) admit(party P) {
	q.inside++
	q.rounds++
	a := q.parties[party]
	a.inside, a.turn = a.inside+1, q.rounds
	q.set(party, a)
}

// takePlace takes a waiting place from the party that has the most, and reports whether it did. It does not if that
// party would be left with no more than this one has. The lock is held.
func (q *Queue[P]) takePlace(party P) bool {
	longest := party
	for p, a := range q.parties {
		if a.waiting > q.parties[longest].waiting {
			longest = p
		}
	}
	if q.parties[longest].waiting-1 <= q.parties[party].waiting {
		return false
	}
	for i := len(q.line.waiting) - 1; i >= 0; i-- {
		if t := q.line.waiting[i]; t.Of == longest {
			q.unwait(longest)
			q.line.Call(t, ErrFull)
			break
		}
	}
	return true
}

// unwait counts one waiting caller less. The lock is held.
func (q *Queue[P]) unwait(party P) {
	a := q.parties[party]
	a.waiting--
	q.set(party, a)
}

// set stores the account, or drops an empty one. The lock is held.
func (q *Queue[P]) set(party P, a account) {
	if a.inside+a.waiting == 0 {
		delete(q.parties, party)
		return
	}
	if q.parties == nil {
		q.parties = map[P]account{}
	}
	q.parties[party] = a
}
