package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"tenantry/backends/store/driver"
)

// Along is a write that is made with the first one that whoever has its context makes, whatever the
// workspace: in the same batch, before the others, where it is an organization's own, and else right
// before it. So nothing is written without it, and with an engine that has transactions nor it
// without the other. Safe for concurrent use.
type Along struct {
	mu    sync.Mutex
	ws    *Workspace
	write driver.Write
	done  atomic.Bool
}

type alongKey struct{}

// Along returns a context whose first write also replaces the record. What was read at another
// revision makes that write an ErrConflict.
func (c Collection[T]) Along(ctx context.Context, rec *T) (context.Context, *Along, error) {
	write, err := c.write(driver.Replace, rec)
	a := &Along{ws: c.ws, write: write}
	return context.WithValue(ctx, alongKey{}, a), a, err
}

// Done reports whether it was made. Where that is not known, because a write failed whose outcome
// nobody can tell, it has not been.
func (a *Along) Done() bool { return a.done.Load() }

// with makes the writes of a workspace, and itself before.
func (a *Along) with(ctx context.Context, w *Workspace, writes []driver.Write) error {
	a.mu.Lock()
	defer a.mu.Unlock() // who writes at the same time comes after it
	switch {
	case a.Done():
	case w.home == a.ws.home:
		err := w.apply(ctx, append([]driver.Write{a.write}, writes...))
		var dup *driver.DuplicateError
		if errors.As(err, &dup) {
			dup.Position--
		}
		a.done.Store(err == nil)
		return err
	default:
		if err := a.ws.apply(ctx, []driver.Write{a.write}); err != nil {
			return err
		}
		a.done.Store(true)
	}
	return w.apply(ctx, writes)
}
