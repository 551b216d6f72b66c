// Package fairqueue lets those wait who want something scarce, and gives them turns by party.
//
// A Line is the waiting itself: its owner says who is next, and whoever gives up leaves it. A Queue is a Line for
// places of which there is a fixed number, with turns in rotation. Turns order work of different cost by what each
// party has had done.
package fairqueue

import (
	"context"
	"slices"
	"sync"
)

// Line holds those who wait for something, in the order in which they came. Its lock guards what its owner gives out
// as well. The zero value is empty. Safe for concurrent use.
type Line[T any] struct {
	sync.Mutex
	waiting []*Ticket[T]
}

// Ticket is a place in a Line. It belongs to one goroutine, besides the owner of the line.
type Ticket[T any] struct {
	Of     T
	called chan struct{}
	err    error // set before called is closed
}

// Join appends to the line. The lock is held; Wait must follow without it.
func (l *Line[T]) Join(of T) *Ticket[T] {
	t := &Ticket[T]{Of: of, called: make(chan struct{})}
	l.waiting = append(l.waiting, t)
	return t
}

// Waiting returns those who wait, for reading while the lock is held and nobody joins, leaves or is called.
func (l *Line[T]) Waiting() []*Ticket[T] { return l.waiting }

// Call takes a ticket out of the line and ends its wait: with nil it has what it waited for. The lock is held.
func (l *Line[T]) Call(t *Ticket[T], err error) {
	l.remove(t)
	t.err = err
	close(t.called)
}

func (l *Line[T]) remove(t *Ticket[T]) bool {
	i := slices.Index(l.waiting, t)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}

// Called reports whether the wait is over, without waiting.
func (t *Ticket[T]) Called() bool {
	select {
	case <-t.called:
		return true
	default:
		return false
	}
}

// Wait returns what the ticket was called with. Where the context ends before, the ticket leaves the line, left is
// called with the lock held, and the error is the context's own; without an error the ticket has what it waited for,
// although the context may have ended.
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
	if !l.remove(t) { // called at this moment
		return t.err
	}
	left()
	return ctx.Err()
}
