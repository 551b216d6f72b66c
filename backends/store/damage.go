package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"tenantry/backends/driver"
)

// Damage is a workspace whose file is missing or cannot be read. Its calls fail with
// ErrUnavailable; those of others do not.
type Damage struct {
	Backend string
	Org     int64 // 0: the control workspace
	File    string
	Reason  string
	// Corrupt: the file is there, and not whole. What is written to it is lost once it is put back. So it is held
	// against the file, whatever becomes of the organization and the process, until the file has been examined and is
	// whole.
	Corrupt bool
}

// held reports whether the damage is that of a file.
func (d *Damage) held() bool { return d.Corrupt && d.File != "" }

// DamagedError says that an organization's data is missing or cannot be read. It is an ErrUnavailable.
type DamagedError = driver.DamagedError

// damages are the workspaces that are known to be damaged.
type damages struct {
	mu   sync.Mutex
	all  map[place]Damage
	any  atomic.Bool                // there are some
	tell func(d Damage, whole bool) // nil: nobody is told
}

// Damaged returns the workspaces that are known to be damaged, by backend and organization. Those whose files were
// found so by another process are there from the beginning.
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
	x, ok := able[driver.Examiner](s, at.backend)
	if ok {
		d.File = x.Place(at.workspace)
	}
	s.damages.mu.Lock()
	before, known := s.damages.all[at]
	if !known || !before.Corrupt || d.Corrupt { // a file that is missing by now was damaged, and may come back so
		s.damages.all[at] = d
	}
	s.damages.any.Store(true)
	s.damages.mu.Unlock()
	if ok && d.held() {
		if err := x.Mark(driver.Mark{File: d.File, Workspace: at.workspace, Reason: d.Reason, Found: s.now().UTC()}); err != nil {
			d.Reason += "; a restart forgets it: " + err.Error()
		}
	}
	if !known && s.damages.tell != nil {
		s.damages.tell(d, false)
	}
}

// remember notes the files that were marked as damaged before the process began. Nobody is told: see Damaged.
func (s *Store) remember() {
	for _, backend := range s.Backends() {
		x, ok := able[driver.Examiner](s, backend)
		if !ok {
			continue
		}
		marks, err := x.Marks()
		if err != nil {
			continue // then nothing can be opened there either
		}
		for _, m := range marks {
			d := Damage{Backend: backend, Org: orgOf(m.Workspace), File: m.File, Reason: m.Reason, Corrupt: true}
			s.damages.all[place{backend: backend, workspace: cmp.Or(m.Workspace, m.File)}] = d
			s.damages.any.Store(true)
		}
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

// lift forgets the damages that fit, and tells of them.
func (s *Store) lift(fits func(at place, d Damage) bool) {
	var lifted []Damage
	s.damages.mu.Lock()
	maps.DeleteFunc(s.damages.all, func(at place, d Damage) bool {
		if fits(at, d) {
			lifted = append(lifted, d)
			return true
		}
		return false
	})
	s.damages.any.Store(len(s.damages.all) > 0)
	s.damages.mu.Unlock()
	for _, d := range lifted {
		if s.damages.tell != nil {
			s.damages.tell(d, true)
		}
	}
}

// whole forgets the damage of a workspace that has been looked at, or is gone, unless it is that of a file.
func (s *Store) whole(at place) {
	s.lift(func(of place, d Damage) bool { return of == at && !d.held() })
}

// examine reads a file whole, and forgets its damage where there is none any more.
func (s *Store) examine(ctx context.Context, x driver.Examiner, backend, file string, anew bool) error {
	if err := x.Examine(ctx, file, anew); err != nil {
		return err
	}
	s.lift(func(_ place, d Damage) bool { return d.held() && d.Backend == backend && d.File == file })
	return nil
}

// Reexamine looks at a damage that was found before, whether or not its organization is still there: what is a file's
// is over once the file is whole, anything else concerns nobody any more. Errors: those of Examine.
func (s *Store) Reexamine(ctx context.Context, d Damage) error {
	if x, ok := able[driver.Examiner](s, d.Backend); ok && d.held() {
		return s.examine(ctx, x, d.Backend, d.File, true)
	}
	s.lift(func(_ place, of Damage) bool { return of == d })
	return nil
}

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
		err := s.examine(ctx, x, at.backend, x.Place(at.workspace), s.writable(at) != nil) // and lets go of what is lost
		if missing := x.Missing(at.workspace); missing != nil {
			err = missing
		}
		if err != nil {
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
