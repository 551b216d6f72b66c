package store

import (
	"context"
	"time"

	"tenantry/backends/driver"
)

// IndexStatus tells an operator about one index of a backend.
type IndexStatus = driver.IndexStatus

// The states of an index.
const (
	IndexReady    = driver.IndexReady
	IndexBuilding = driver.IndexBuilding
	IndexRefused  = driver.IndexRefused
)

// able returns the engine of the backend as one of those abilities that engines may have.
func able[A any](s *Store, backend string) (A, bool) {
	engine, ok := s.backends[backend].(A)
	return engine, ok
}

// Remote reports whether calls of the workspace may wait for another machine. Then it pays
// to make those at the same time that do not need each other's answers. A call within the
// process is over before another goroutine has begun.
func (w *Workspace) Remote() bool { return w.store.Remote(w.backend()) }

// Remote reports whether calls of the backend may wait for another machine; empty is the default one.
func (s *Store) Remote(backend string) bool {
	e, ok := able[driver.Remote](s, BackendName(backend))
	return ok && e.Remote()
}

// Elected returns since when this process has seen the server that keeps the control workspace now; the zero time where
// it is not replaced by an election, or that cannot be seen.
func (s *Store) Elected() time.Time {
	if e, ok := able[driver.Elector](s, s.controlAt); ok {
		return e.Elected()
	}
	return time.Time{}
}

// atomic reports whether a batch is applied whole or not at all.
func (w *Workspace) atomic() bool {
	e, ok := able[driver.Atomic](w.store, w.backend())
	return ok && e.Atomic()
}

// backend returns where the workspace is.
func (w *Workspace) backend() string {
	if w.home != nil {
		return w.home.at.Load().backend()
	}
	return w.store.controlAt
}

// Size returns how much room the organization's documents take, in bytes; 0 where the engine does not tell.
// Error: ErrUnavailable.
func (w *Workspace) Size(ctx context.Context) (int64, error) {
	if e, ok := able[driver.Sizer](w.store, w.backend()); ok {
		return e.Size(ctx, workspaceName(w.org))
	}
	return 0, nil
}

// Indexes tells of the indexes that a backend makes while it answers; there are none where it
// has them from the start. Error: ErrUnavailable.
func (s *Store) Indexes(ctx context.Context, backend string) ([]IndexStatus, error) {
	if e, ok := able[driver.Indexer](s, backend); ok {
		return e.Indexes(ctx)
	}
	return nil, nil
}

// Kept returns how many things are kept in memory for those who have a handle on an organization, by what they are.
func (s *Store) Kept() map[string]int {
	kept := map[string]int{"homes": s.homes.Len(), "opened": s.opened.Len()}
	for name := range s.backends {
		if e, ok := able[driver.Keeper](s, name); ok {
			kept["backend."+name] = e.Kept()
		}
	}
	return kept
}

// Settle leaves nothing of what an organization had deleted in the logs of a backend's files, and reports whether it
// could see to that: false of a server, which keeps its files itself. Error: ErrUnavailable.
func (s *Store) Settle(ctx context.Context, org int64, backend string) (bool, error) {
	return s.settle(ctx, backend, workspaceName(org))
}

// SettleControl does that for the control data.
func (s *Store) SettleControl(ctx context.Context) (bool, error) {
	return s.settle(ctx, s.controlAt, controlName)
}

func (s *Store) settle(ctx context.Context, backend, workspace string) (bool, error) {
	e, ok := able[driver.Checkpointer](s, BackendName(backend))
	if !ok {
		return false, nil
	}
	return true, e.Checkpoint(ctx, workspace)
}

// Lag returns what tells how many bytes the logs of a backend have, and for how long at most something has been in a
// log alone; nil where it has no logs.
func (s *Store) Lag(backend string) func() (bytes int64, age time.Duration) {
	if e, ok := able[driver.Checkpointer](s, backend); ok {
		return e.Lag
	}
	return nil
}

// Refusing returns what tells whether a backend refuses calls at once now, since its server does
// not answer; nil where it never does so.
func (s *Store) Refusing(backend string) func() bool {
	if e, ok := able[driver.Breaker](s, backend); ok {
		return e.Refusing
	}
	return nil
}
