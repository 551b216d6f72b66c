package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"tenantry/backends/driver"
)

// Change is what a collection would store, and has not yet.
type Change struct {
	ws    *Workspace
	write driver.Write
}

// Inserting returns the change that Insert makes of a new record, which it fills likewise.
func (c Collection[T]) Inserting(rec *T) (Change, error) {
	write, err := c.inserting(rec)
	return Change{c.ws, write}, err
}

// Replacing returns the change that Replace makes of a record, for a workspace that shows it.
func (c Collection[T]) Replacing(rec *T) (Change, error) {
	write, err := c.replacing(rec)
	return Change{c.ws, write}, err
}

// Room returns a *QuotaError where the organization has no room for the new record of the change. Nothing is written.
// Other errors: ErrUnavailable.
func (ch Change) Room(ctx context.Context) error {
	if ch.ws.home == nil {
		return nil
	}
	r, err := ch.ws.home.permit(ctx)
	if err != nil || r.Quota == (Quota{}) {
		return err
	}
	used, err := ch.ws.Used(ctx)
	if err != nil {
		return err
	}
	return r.Quota.Admit(used, Usage{Documents: 1, Bytes: ch.write.Doc.Size()})
}

// Along is what is written with the writes of whoever has its context: a first change with the first of them,
// whatever the workspace, and others with the last one, where the engine has transactions, so that nothing is
// there without the other. Safe for concurrent use.
type Along struct {
	ws    *Workspace
	ready func(context.Context) (bool, error)
	first *Change
	last  []func(context.Context) (Change, error)

	mu           sync.Mutex
	begun, ended atomic.Bool
}

// Along returns what is written along with writes of the workspace. Ready is asked right before each of them,
// once the records are as they are about to be stored, and says whether it is the last one; an error keeps it
// from being made.
func (w *Workspace) Along(ready func(context.Context) (bool, error)) *Along {
	return &Along{ws: w, ready: ready}
}

// First adds a change to the first write: in the same batch, before the others, where it is of the same
// organization, and else right before it. So nothing is written without it. What was read at another revision
// makes that write an ErrConflict.
func (a *Along) First(c Change) { a.first = &c }

// Last adds a change to the last write, which is asked for once that is ready. Where no first change has been
// made by then, the last ones stand for it too.
func (a *Along) Last(change func(context.Context) (Change, error)) { a.last = append(a.last, change) }

// Begun reports whether the first change was made. Where that is not known, because a write failed whose
// outcome nobody can tell, it has not been.
func (a *Along) Begun() bool { return a.begun.Load() }

// Ended reports whether the last ones were made.
func (a *Along) Ended() bool { return a.ended.Load() }

type alongKey struct{}

// With returns the context of those whose writes are meant.
func (a *Along) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, alongKey{}, a)
}

// with makes the writes of a workspace, and what belongs to them.
func (a *Along) with(ctx context.Context, w *Workspace, writes []driver.Write) error {
	a.mu.Lock()
	defer a.mu.Unlock()                                     // who writes at the same time comes after it
	ctx = context.WithValue(ctx, alongKey{}, (*Along)(nil)) // for those who are asked: what they write is not meant
	closing := false
	if !a.Ended() && w.home == a.ws.home && w.atomic() {
		var err error
		if closing, err = a.ready(ctx); err != nil {
			return err
		}
	}
	own := len(writes)
	switch {
	case closing:
		for _, change := range a.last {
			c, err := change(ctx)
			if err == nil && c.ws.home != w.home {
				err = fmt.Errorf("%w: what is stored with the last write is not of the same organization", ErrQuery)
			}
			if err != nil {
				return err
			}
			writes = append(writes[:len(writes):len(writes)], c.write)
		}
	case a.first == nil || a.Begun():
	case a.first.ws.home != w.home:
		if err := a.first.ws.apply(ctx, []driver.Write{a.first.write}); err != nil {
			return err
		}
		a.begun.Store(true)
	default:
		writes = slices.Insert(slices.Clone(writes), 0, a.first.write)
	}
	err := w.apply(ctx, writes)
	var dup *driver.DuplicateError
	var conflict *driver.ConflictError
	switch before := len(writes) - own; {
	case closing: // what is stored along comes after them
	case errors.As(err, &dup):
		dup.Position -= before
	case errors.As(err, &conflict):
		conflict.Position -= before
	}
	if err == nil {
		a.begun.Store(true)
		a.ended.Store(closing || a.Ended())
	}
	return err
}
