// Package fairqueue orders work that waits for a scarce resource, so that no party delays the others.
//
// A Line is a waiting line: its owner chooses who is next, and callers whose context ends leave it. A Queue is a Line
// for a fixed number of places, whose parties take turns in rotation. Turns order work of different cost by how much
// each party has used.
package fairqueue

import (
	"context"
	"slices"
	"sync"
)

// Line holds waiting callers in the order in which they came. Its lock also guards the resource that its owner assigns.
// The zero value is empty. Safe for concurrent use.
type Line[T any] struct {
	sync.Mutex
	waiting []*Ticket[T]
}

// Ticket is a place in a Line. Besides the owner of the line, one goroutine uses it.
type Ticket[T any] struct {
	Of     T
	called chan struct{}
	err    error // set before called is closed
}

// Join appends to the line. The lock is held. The caller must release it and call Wait.
func (l *Line[T]) Join(of T) *Ticket[T] {
	t := &Ticket[T]{Of: of, called: make(chan struct{})}
	l.waiting = append(l.waiting, t)
	return t
}

// Waiting returns the tickets in the line. The lock is held. The slice must not be changed, and is valid until the next
// change of the line.
func (l *Line[T]) Waiting() []*Ticket[T] { return l.waiting }

// Call removes the ticket from the line and ends its wait with err. A nil error grants what it waits for. The lock is
// held.
func (l *Line[T]) Call(t *Ticket[T], err error) {
	l.remove(t)
	t.err = err
	close(t.called)
}

// remove removes the ticket and reports whether it was in the line. The lock is held.
func (l *Line[T]) remove(t *Ticket[T]) bool {
	i := slices.Index(l.waiting, t)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}

// Called reports whether Call has ended the wait.
func (t *Ticket[T]) Called() bool {
	select {
	case <-t.called:
		return true
	default:
		return false
	}
}

// Wait waits for Call and returns its error. If the context ends first, it removes the ticket, calls left with the lock
// held, and returns the context's own error. If Call and the end of the context coincide, Call wins: after a nil error
// the caller has what it waited for, even if its context has ended.
func (l *Line[T]) Wait(ctx context.Context, t *Ticket[T], left func()) error {
	if t.Called() {
		return t.err
	}
	select {
	case <-t.called:
		return t.err
	case <-ctx.Done():
	}
	l.Lock()
	defer l.Unlock()
	if !l.remove(t) { // called at the same moment
		return t.err
	}
	left()
	return ctx.Err()
}
