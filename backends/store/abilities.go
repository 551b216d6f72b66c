package store

import (
	"context"
	"fmt"
	"time"

	"tenantry/backends/driver"
)

// IndexStatus describes an index of a backend for an operator.
type IndexStatus = driver.IndexStatus

// The states of an index.
const (
	IndexReady    = driver.IndexReady
	IndexBuilding = driver.IndexBuilding
	IndexRefused  = driver.IndexRefused
)

// ability returns the engine of the backend as one of the optional interfaces of package driver, if it implements it.
func ability[A any](s *Store, backend string) (A, bool) {
	engine, ok := s.backends[backend].(A)
	return engine, ok
}

// Remote reports whether calls of the workspace may wait for another machine. Independent calls are then worth making
// concurrently; a call within the process takes less time than starting another goroutine.
func (w *Workspace) Remote() bool { return w.store.Remote(w.backend()) }

// Remote reports whether calls of the backend may wait for another machine; an empty name means the default backend.
func (s *Store) Remote(backend string) bool {
	e, ok := ability[driver.Remote](s, BackendName(backend))
	return ok && e.Remote()
}

// Elected returns the time since which this process has seen the current primary server of the control workspace; the
// zero time if the backend has no elections, or the process cannot observe them.
func (s *Store) Elected() time.Time {
	if e, ok := ability[driver.Elector](s, s.controlAt); ok {
		return e.Elected()
	}
	return time.Time{}
}

// atomic reports whether a batch is applied entirely or not at all.
func (w *Workspace) atomic() bool {
	e, ok := ability[driver.Atomic](w.store, w.backend())
	return ok && e.Atomic()
}

// backend returns the name of the backend that holds the workspace.
func (w *Workspace) backend() string {
	if w.home == nil {
		return w.store.controlAt
	}
	backend, _ := SplitPlace(w.home.at.Load().backend())
	return backend
}

// Size returns how many bytes the organization's documents take on the backend; 0 if the engine does not measure it.
// Error: ErrUnavailable.
func (w *Workspace) Size(ctx context.Context) (int64, error) {
	backend, workspace := placeOf(w.org, w.home.at.Load().backend())
	if e, ok := ability[driver.Sizer](w.store, backend); ok {
		return e.Size(ctx, workspace)
	}
	return 0, nil
}

// Indexes returns the indexes that a backend builds in the background; none if it builds all of them before it answers.
// Error: ErrUnavailable.
func (s *Store) Indexes(ctx context.Context, backend string) ([]IndexStatus, error) {
	if e, ok := ability[driver.Indexer](s, backend); ok {
		return e.Indexes(ctx)
	}
	return nil, nil
}

// Kept returns the number of objects that are cached for organizations in use, by their kind.
func (s *Store) Kept() map[string]int {
	kept := map[string]int{"homes": s.homes.Len(), "opened": s.opened.Len()}
	for name := range s.backends {
		if e, ok := ability[driver.Keeper](s, name); ok {
			kept["backend."+name] = e.Kept()
		}
	}
	return kept
}

// Settle clears deleted data of an organization from the logs of a backend's files. It reports whether the engine can
// do that; a database server cannot, because it manages its own files. Error: ErrUnavailable.
func (s *Store) Settle(ctx context.Context, org int64, backend string) (bool, error) {
	backend, workspace := placeOf(org, backend)
	return s.settle(ctx, backend, workspace)
}

// SettleControl is Settle for the control workspace.
func (s *Store) SettleControl(ctx context.Context) (bool, error) {
	return s.settle(ctx, s.controlAt, controlName)
}

func (s *Store) settle(ctx context.Context, backend, workspace string) (bool, error) {
	e, ok := ability[driver.Checkpointer](s, BackendName(backend))
	if !ok {
		return false, nil
	}
	return true, e.Checkpoint(ctx, workspace)
}

// Lag returns a function that reports the size of a backend's logs, and an upper bound on the age of data that is in a
// log only; nil if the backend has no logs.
func (s *Store) Lag(backend string) func() (bytes int64, age time.Duration) {
	if e, ok := ability[driver.Checkpointer](s, backend); ok {
		return e.Lag
	}
	return nil
}

// Layouts says which databases of a backend have the layout of this version; the others get it when they are first used.
// ok is false if the backend has no such layouts. Errors: ErrUnavailable; that of the context.
func (s *Store) Layouts(ctx context.Context, backend string) (_ driver.Layouts, ok bool, err error) {
	e, ok := ability[driver.Upgrader](s, backend)
	if !ok {
		return driver.Layouts{}, false, nil
	}
	all, err := e.Layouts(ctx, func(workspace string) []*driver.Collection {
		if workspace == controlName {
			return s.control
		}
		return s.tenant
	})
	return all, true, err
}

// Refusing returns a function that reports whether the backend currently refuses calls without trying, because its
// server does not answer; nil if the backend never does that.
func (s *Store) Refusing(backend string) func() bool {
	if e, ok := ability[driver.Breaker](s, backend); ok {
		return e.Refusing
	}
	return nil
}

// Archived is a copy of a file of workspaces.
type Archived = driver.Archived

// CanArchive reports whether the engine of a backend can copy its files.
func (s *Store) CanArchive(backend string) bool {
	_, ok := ability[driver.Archiver](s, BackendName(backend))
	return ok
}

// Archiving says how workspaces are copied.
type Archiving = driver.Archiving

// Archive copies the files of a backend into a folder, as driver.Archiver says. The control workspace is the Last. Error:
// also that the engine cannot.
func (s *Store) Archive(ctx context.Context, backend string, o Archiving) ([]Archived, error) {
	e, ok := ability[driver.Archiver](s, BackendName(backend))
	if !ok {
		return nil, fmt.Errorf("backend %s cannot be copied while it serves", backend)
	}
	if o.Last = ""; BackendName(backend) == s.controlAt {
		o.Last = controlName
	}
	return e.Archive(ctx, o)
}

// The types of the log of pages; see driver.PageLogger.
type (
	// PageLogging says where changes go.
	PageLogging = driver.PageLogging
	// PageCut is what changed in all files up to one moment.
	PageCut = driver.PageCut
	// FileCut is what changed in one file.
	FileCut = driver.FileCut
	// CutKind says what a FileCut is.
	CutKind = driver.CutKind
	// PagePosition is a place in the log of a file.
	PagePosition = driver.PagePosition
)

// The kinds of cuts of a file.
const (
	CutChanged = driver.CutChanged
	CutCreated = driver.CutCreated
	CutGone    = driver.CutGone
	CutBroken  = driver.CutBroken
)

// ErrNotYet: a cut cannot be stored yet; see driver.PageLogging.
var ErrNotYet = driver.ErrNotYet

// PageLogger is an engine that can pass on every change of its files; see driver.PageLogger.
type PageLogger = driver.PageLogger
