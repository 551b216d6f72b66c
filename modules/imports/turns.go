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
	// maxWorking is how many imports of a process work at a time. The others that have begun wait for their turn. A
	// turn ends after some pieces, each of a few hundred lines.
	maxWorking = 2
	pieces     = 8
	// isLarge is the size of a large file in bytes. Imports that have begun hold memory, so maxLarge large ones may
	// have begun, and others of maxBegun bytes together. The last quarter of these is reserved for files of at most
	// isTiny bytes.
	isLarge  = 16 << 20
	isTiny   = 256 << 10
	maxLarge = 2
	maxBegun = 2 * isLarge
	// leastSize is the smallest size that a file counts as.
	leastSize = 64 << 10

	maxTime = time.Hour        // from the arrival of the file to the end of the import
	maxWait = 15 * time.Minute // of that, until the import begins
)

// Causes for ending an import that takes too long.
var (
	errLate   = errors.New("the import took too long")
	errNoTurn = fmt.Errorf("%w: others were running", errLate)
)

// turns gives imports turns by organization: the organization with the least work done is next. The zero value is
// ready. Safe for concurrent use.
type turns struct {
	line    fairqueue.Line[*ticket] // its lock guards the rest
	working int
	large   int
	begun   int64                  // bytes of the files that are not large
	fair    fairqueue.Turns[int64] // in pieces
}

// ticket is the place of an import in turns. Only the goroutine of the import calls its methods.
type ticket struct {
	of     *turns
	org    int64
	size   int64
	pieces int // done in the current turn

	at *fairqueue.Ticket[*ticket] // of its turn, or of the turn that it waits for

	// Guarded by of.line.
	start   int64
	began   bool
	working bool // its turn has begun
}

func (t *turns) ticket(org, size int64) *ticket {
	return &ticket{of: t, org: org, size: max(size, leastSize)}
}

// begin waits for the first turn. It calls waits once if it has to wait. If it succeeds, leave must be called. Error:
// that of the context.
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

// turn counts a piece of work, and lets other imports go first after some pieces. leave must be called even if it
// fails. Error: that of the context.
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

// leave ends the turn and frees the room of the import.
func (k *ticket) leave() {
	k.of.line.Lock()
	defer k.of.line.Unlock()
	k.rest()
	if k.began {
		k.room(-1)
	}
	k.of.serve()
}

// before returns how many other imports will begin first.
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

// queue adds the import to those that wait. The caller holds the lock.
func (k *ticket) queue() {
	k.start = k.of.fair.Start(k.org, pieces)
	k.at = k.of.line.Join(k)
}

// room takes room for an import that begins, or frees it. The caller holds the lock.
func (k *ticket) room(change int) {
	if k.size > isLarge {
		k.of.large += change
		return
	}
	k.of.begun += int64(change) * k.size
}

// fits reports whether there is room for the import. The caller holds the lock.
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

// shares reports whether the file is one of those that share maxBegun and may have to wait for more than is free.
func (k *ticket) shares() bool { return k.size > isTiny && k.size <= isLarge }

// firstSharing returns the import that has waited longest of those that share room, so that smaller ones cannot
// overtake it forever. The caller holds the lock.
func (t *turns) firstSharing() (first *ticket) {
	for _, at := range t.line.Waiting() {
		if k := at.Of; !k.began && k.shares() && (first == nil || k.start < first.start) {
			first = k
		}
	}
	return first
}

// serve starts turns while there are free ones. The caller holds the lock.
func (t *turns) serve() {
	for t.working < maxWorking {
		var next *ticket
		parties, first := t.working, t.firstSharing()
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
