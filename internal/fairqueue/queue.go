package fairqueue

import (
	"context"
	"errors"
	"time"
)

// ErrFull is returned where no more may wait.
var ErrFull = errors.New("too many wait already")

// Queue bounds how many are in it at a time, of all parties and of each. The others wait; the parties that wait take
// turns in rotation, so that whoever floods the queue waits behind itself. The zero value is a lock for each party. Its
// fields are set before its first use. Safe for concurrent use.
type Queue[Party comparable] struct {
	// Size is how many are in it at a time; 0: any number.
	Size int
	// Share is how many of one party are; 0: as many as Size, or one where that is 0 too.
	Share int
	// Places is how many may wait; 0: any number. Where all places are taken, the party with the most of them loses its
	// last one to a party that has fewer.
	Places int
	// Patience is how long one waits; 0: until its context ends.
	Patience time.Duration

	line    Line[Party]
	inside  int
	rounds  int64
	parties map[Party]account // without those that have nothing
}

// account is what a party has of a queue.
type account struct {
	inside, waiting int
	turn            int64 // of the parties that wait, the one with the lowest is next
}

// Enter waits for admission; Leave must follow where the error is nil. Errors: ErrFull, also while it waits, the
// context's own, and context.DeadlineExceeded where Patience is over.
func (q *Queue[P]) Enter(ctx context.Context, party P) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	q.line.Lock()
	if q.admits(party) { // then nobody waits who would be admitted
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
	if q.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.Patience)
		defer cancel()
	}
	return q.line.Wait(ctx, t, func() { q.unwait(party) })
}

// Leave gives the place back, which the party whose turn it is gets.
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

// Use returns how many are in the queue, and how many wait.
func (q *Queue[P]) Use() (inside, waiting int) {
	q.line.Lock()
	defer q.line.Unlock()
	return q.inside, len(q.line.waiting)
}

func (q *Queue[P]) admits(party P) bool {
	share := q.Share
	if share == 0 {
		share = max(q.Size, 1)
	}
	return (q.Size == 0 || q.inside < q.Size) && q.parties[party].inside < share
}

// admit lets one in, after which it is the turn of the other parties that wait.
func (q *Queue[P]) admit(party P) {
	q.inside++
	q.rounds++
	a := q.parties[party]
	a.inside, a.turn = a.inside+1, q.rounds
	q.set(party, a)
}

// takePlace takes a place from the party that has the most, unless it would have fewer then than this one.
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

func (q *Queue[P]) unwait(party P) {
	a := q.parties[party]
	a.waiting--
	q.set(party, a)
}

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
