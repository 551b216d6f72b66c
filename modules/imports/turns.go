package imports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"tenantry/internal/fairqueue"
)

const (
	// atWork is how many imports of a process are at work at a time. The others that have begun wait for their turn,
	// which is over after some pieces, each of a few hundred lines.
	atWork = 2
	pieces = 8
	// isLarge is how many bytes make a large file. Two of them may have begun, whatever begins keeps memory; and others
	// of maxBegun bytes, the last quarter of which is kept for files of less than isTiny.
	isLarge  = 16 << 20
	isTiny   = 256 << 10
	maxLarge = 2
	maxBegun = 2 * isLarge
	// leastSize is what a file counts at least.
	leastSize = 64 << 10

	maxTime = time.Hour        // from when its file has arrived to its end
	maxWait = 15 * time.Minute // of that, until it begins
)

// The causes for which an import is ended that took too long.
var (
	errLate   = errors.New("the import took too long")
	errNoTurn = fmt.Errorf("%w: others were under way", errLate)
)

// turns give imports their turns by organization, by what each has had done: whoever had least is next. The zero value
// is ready. Safe for concurrent use.
type turns struct {
	line    fairqueue.Line[*ticket] // its lock guards the rest
	working int
	large   int
	begun   int64                  // bytes, without the large ones
	fair    fairqueue.Turns[int64] // in pieces
}

// ticket is an import that has its turns. Its own goroutine alone calls its methods.
type ticket struct {
	of     *turns
	org    int64
	size   int64
	pieces int // of the turn that it has

	at *fairqueue.Ticket[*ticket] // of its turn, or of the one it waits for

	// Guarded by of.line.
	start   int64
	began   bool
	working bool // it has its turn
}

func (t *turns) ticket(org, size int64) *ticket {
	return &ticket{of: t, org: org, size: max(size, leastSize)}
}

// begin waits for the first turn; leave must follow where that is had. It calls waits once if there is none at once.
// Error: the context's own.
func (k *ticket) begin(ctx context.Context, waits func()) error {
	k.of.line.Lock()
	k.queue()
	k.of.serve()
	k.of.line.Unlock()
	if !k.at.Called() {
		waits()
	}
	return k.wait(ctx)
}

// turn counts a piece of work, and after some of them lets others go first whose turn it is. Error: the context's own;
// leave must follow all the same.
func (k *ticket) turn(ctx context.Context) error {
	if k.pieces++; k.pieces < pieces {
		return ctx.Err()
	}
	k.pieces = 0
	k.of.line.Lock()
	k.rest()
	k.queue()
	k.of.serve()
	k.of.line.Unlock()
	return k.wait(ctx)
}

// leave ends the turn, and gives the room of the import back.
func (k *ticket) leave() {
	k.of.line.Lock()
	defer k.of.line.Unlock()
	k.rest()
	if k.began {
		k.room(-1)
	}
	k.of.serve()
}

// before returns how many others are before it until it begins.
func (k *ticket) before() (n int) {
	k.of.line.Lock()
	defer k.of.line.Unlock()
	if k.began {
		return 0
	}
	for _, t := range k.of.line.Waiting() {
		if other := t.Of; other != k && !other.began && other.start <= k.start {
			n++
		}
	}
	return n
}

func (k *ticket) wait(ctx context.Context) error {
	err := k.of.line.Wait(ctx, k.at, func() { k.of.fair.Cancel(k.org, pieces) })
	return cmp.Or(err, ctx.Err())
}

// rest ends its turn, if it has one. The lock is held.
func (k *ticket) rest() {
	if k.working {
		k.working = false
		k.of.working--
	}
}

// queue puts the import among those that wait. The lock is held.
func (k *ticket) queue() {
	k.start = k.of.fair.Start(k.org, pieces)
	k.at = k.of.line.Join(k)
}

// room takes room for an import that begins, or gives it back. The lock is held.
func (k *ticket) room(change int) {
	if k.size > isLarge {
		k.of.large += change
		return
	}
	k.of.begun += int64(change) * k.size
}

// fits reports whether there is room for it. The lock is held.
func (k *ticket) fits() bool {
	switch {
	case k.began:
		return true
	case k.size > isLarge:
		return k.of.large < maxLarge
	case k.size > isTiny:
		return k.of.begun == 0 || k.of.begun+k.size <= maxBegun*3/4
	}
	return k.of.begun+k.size <= maxBegun
}

// shares reports whether the file is one of those that share room, and may wait for more of it than is free.
func (k *ticket) shares() bool { return k.size > isTiny && k.size <= isLarge }

// firstOfMany returns which of those is to begin first: smaller ones that came later do not go before it for good. The
// lock is held.
func (t *turns) firstOfMany() (first *ticket) {
	for _, at := range t.line.Waiting() {
		if k := at.Of; !k.began && k.shares() && (first == nil || k.start < first.start) {
			first = k
		}
	}
	return first
}

// serve gives turns as long as there are any. The lock is held.
func (t *turns) serve() {
	for t.working < atWork {
		var next *ticket
		parties, first := t.working, t.firstOfMany()
		for _, at := range t.line.Waiting() {
			parties++
			if k := at.Of; (next == nil || k.start < next.start) && k.fits() && (k.began || !k.shares() || k == first) {
				next = k
			}
		}
		if next == nil {
			return
		}
		next.working = true
		if t.working++; !next.began {
			next.began = true
			next.room(1)
		}
		t.fair.Serve(next.start, pieces, parties)
		t.line.Call(next.at, nil)
	}
}
