package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"tenantry/backends/store/driver"
)

// Damage is a workspace whose file is missing or cannot be read. Its calls fail with
// ErrUnavailable; those of others do not.
type Damage struct {
	Backend string
	Org     int64 // 0: the control workspace
	File    string
	Reason  string
	// Corrupt: the file is there, and not whole. What is written to it is lost once it is put back.
	Corrupt bool
}

// DamagedError says that an organization's data is missing or cannot be read. It is an ErrUnavailable.
type DamagedError = driver.DamagedError

// damages are the workspaces that are known to be damaged.
type damages struct {
	mu   sync.Mutex
	all  map[place]Damage
	any  atomic.Bool                // there are some
	tell func(d Damage, whole bool) // nil: nobody is told
}

// Damaged returns the workspaces that are known to be damaged, by backend and organization.
func (s *Store) Damaged() []Damage {
	s.damages.mu.Lock()
	defer s.damages.mu.Unlock()
	found := make([]Damage, 0, len(s.damages.all))
	for _, d := range s.damages.all {
		found = append(found, d)
	}
	slices.SortFunc(found, func(a, b Damage) int {
		return strings.Compare(fmt.Sprintf("%s %020d", a.Backend, a.Org), fmt.Sprintf("%s %020d", b.Backend, b.Org))
	})
	return found
}

// damage notes what a call found, and tells of it the first time.
func (s *Store) damage(at place, org int64, err error) {
	var found *driver.DamagedError
	if err == nil || !errors.As(err, &found) {
		return
	}
	d := Damage{Backend: at.backend, Org: org, Reason: found.Reason, Corrupt: found.Err != nil}
	if x, ok := able[driver.Examiner](s, at.backend); ok {
		d.File = x.Place(at.workspace)
	}
	s.damages.mu.Lock()
	_, known := s.damages.all[at]
	s.damages.all[at] = d
	s.damages.any.Store(true)
	s.damages.mu.Unlock()
	if !known && s.damages.tell != nil {
		s.damages.tell(d, false)
	}
}

// writable returns an error where the file of a workspace is known to be damaged, by whomever in it that was found: the
// write would be acknowledged, and lost once the file is put back from a backup. Error: ErrReadOnly.
func (s *Store) writable(at place) error {
	if !s.damages.any.Load() {
		return nil
	}
	x, ok := able[driver.Examiner](s, at.backend)
	if !ok {
		return nil
	}
	file := x.Place(at.workspace)
	s.damages.mu.Lock()
	defer s.damages.mu.Unlock()
	for _, d := range s.damages.all {
		if d.Corrupt && d.Backend == at.backend && d.File == file {
			return fmt.Errorf("%w: %w: the file %s is damaged; put it back from a backup", ErrUnavailable, ErrReadOnly, file)
		}
	}
	return nil
}

// whole forgets the damage of a workspace that has been looked at, and tells of it.
func (s *Store) whole(at place) {
	s.damages.mu.Lock()
	d, known := s.damages.all[at]
	delete(s.damages.all, at)
	s.damages.any.Store(len(s.damages.all) > 0)
	s.damages.mu.Unlock()
	if known && s.damages.tell != nil {
		s.damages.tell(d, true)
	}
}

// Whole forgets a damage that concerns nobody any more, and tells of it.
func (s *Store) Whole(d Damage) { s.whole(place{backend: d.Backend, workspace: workspaceName(d.Org)}) }

// Look notes whether the file of an organization is missing. It costs no more than that.
func (s *Store) Look(org int64, backend string) {
	at := place{backend: BackendName(backend), workspace: workspaceName(org)}
	if x, ok := able[driver.Examiner](s, at.backend); ok {
		s.damage(at, org, x.Missing(at.workspace))
	}
}

// Examine reads everything of an organization that lives at the place, as far as the backend has
// more to look at than its own checks, and counts its documents. Errors: ErrUnavailable, in it
// *driver.DamagedError; the context's own.
func (s *Store) Examine(ctx context.Context, org int64, p Placement) (documents int64, err error) {
	at := place{backend: p.backend(), workspace: workspaceName(org)}
	if x, ok := able[driver.Examiner](s, at.backend); ok {
		if err := x.Examine(ctx, at.workspace, s.writable(at) != nil); err != nil {
			s.damage(at, org, err)
			return 0, err
		}
	}
	w, err := s.At(ctx, org, p)
	if err != nil {
		return 0, err
	}
	if documents, err = w.Documents(ctx); err == nil {
		s.whole(at)
	}
	return documents, err
}

// Documents counts the documents of every kind but those that are the gateway's own.
func (w *Workspace) Documents(ctx context.Context) (documents int64, err error) {
	for _, c := range w.store.tenant {
		n, err := w.countAll(ctx, c, driver.Predicate{})
		if err != nil {
			return documents, fmt.Errorf("counting %s: %w", c.Name, err)
		}
		if !c.Uncounted {
			documents += n
		}
	}
	return documents, nil
}
