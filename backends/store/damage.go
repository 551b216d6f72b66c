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

// Damage describes a workspace whose file is missing or cannot be read. Its calls fail with ErrUnavailable; calls of
// other workspaces are not affected.
type Damage struct {
	Backend string
	Org     int64 // 0: the control workspace
	File    string
	Reason  string
	// Corrupt: the file exists, but is not intact. Anything written to it would be lost when it is restored from a
	// backup. The damage is therefore recorded for the file, and outlasts the organization and the process, until an
	// examination finds the file intact.
	Corrupt bool
}

// ofFile reports whether the damage is recorded for a file.
func (d *Damage) ofFile() bool { return d.Corrupt && d.File != "" }

// DamagedError says that the data of an organization is missing or cannot be read. It is an ErrUnavailable.
type DamagedError = driver.DamagedError

// damages lists the workspaces that are known to be damaged.
type damages struct {
	mu     sync.Mutex
	all    map[place]Damage
	any    atomic.Bool                 // all is not empty
	report func(d Damage, intact bool) // may be nil
}

// Damaged returns the workspaces that are known to be damaged, sorted by backend and organization. They include those
// whose files an earlier process marked as damaged.
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

// damageAt is damage for the organization whose workspace it is.
func (s *Store) damageAt(at place, err error) {
	org, _ := orgOf(at.workspace)
	s.damage(at, org, err)
}

// damage notes the damage that an error of a call says, and reports it the first time.
func (s *Store) damage(at place, org int64, err error) {
	var found *driver.DamagedError
	if err == nil || !errors.As(err, &found) {
		return
	}
	d := Damage{Backend: at.backend, Org: org, Reason: found.Reason, Corrupt: found.Err != nil}
	x, ok := ability[driver.Examiner](s, at.backend)
	if ok {
		d.File = x.Place(at.workspace)
	}
	s.damages.mu.Lock()
	before, known := s.damages.all[at]
	if !known || !before.Corrupt || d.Corrupt { // a corrupt file that is missing now may come back corrupt
		s.damages.all[at] = d
	}
	s.damages.any.Store(true)
	s.damages.mu.Unlock()
	if ok && d.ofFile() {
		mark := driver.Mark{File: d.File, Workspace: at.workspace, Reason: d.Reason, Found: s.now().UTC()}
		if err := x.Mark(mark); err != nil {
			d.Reason += "; the damage is forgotten at a restart: " + err.Error()
		}
	}
	if !known && s.damages.report != nil {
		s.damages.report(d, false)
	}
}

// loadMarks loads the files that earlier processes marked as damaged. It does not report them: see Damaged.
func (s *Store) loadMarks() {
	for _, backend := range s.Backends() {
		x, ok := ability[driver.Examiner](s, backend)
		if !ok {
			continue
		}
		marks, err := x.Marks()
		if err != nil {
			continue // nothing can be opened on such a backend either
		}
		for _, m := range marks {
			org, _ := orgOf(m.Workspace)
			d := Damage{Backend: backend, Org: org, File: m.File, Reason: m.Reason, Corrupt: true}
			s.damages.all[place{backend: backend, workspace: cmp.Or(m.Workspace, m.File)}] = d
			s.damages.any.Store(true)
		}
	}
}

// checkWritable returns an ErrReadOnly if the file of a workspace is known to be corrupt, even if that was found in
// another workspace of the same file. A write to it would be acknowledged, and lost when the file is restored from a
// backup.
func (s *Store) checkWritable(at place) error {
	if !s.damages.any.Load() {
		return nil
	}
	x, ok := ability[driver.Examiner](s, at.backend)
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

// clearDamages forgets the damages for which fits returns true, and reports them as repaired.
func (s *Store) clearDamages(fits func(at place, d Damage) bool) {
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
		if s.damages.report != nil {
			s.damages.report(d, true)
		}
	}
}

// clearDamage forgets the damage of a workspace that was found intact or was removed, unless it is recorded for a file.
func (s *Store) clearDamage(at place) {
	s.clearDamages(func(of place, d Damage) bool { return of == at && !d.ofFile() })
}

// examine reads an entire file, and forgets its damage if the file is intact.
func (s *Store) examine(ctx context.Context, x driver.Examiner, backend, file string, anew bool) error {
	if err := x.Examine(ctx, file, anew); err != nil {
		return err
	}
	s.clearDamages(func(_ place, d Damage) bool { return d.ofFile() && d.Backend == backend && d.File == file })
	return nil
}

// Reexamine checks a damage that was found before, even if its organization no longer exists. Damage that is recorded
// for a file ends when the file is intact; any other damage is forgotten. Errors: those of Examine.
func (s *Store) Reexamine(ctx context.Context, d Damage) error {
	if x, ok := ability[driver.Examiner](s, d.Backend); ok && d.ofFile() {
		return s.examine(ctx, x, d.Backend, d.File, true)
	}
	s.clearDamages(func(_ place, of Damage) bool { return of == d })
	return nil
}

// NoteMissing notes a damage if the file of an organization is missing. It does not read the file.
func (s *Store) NoteMissing(org int64, backend string) {
	var at place
	at.backend, at.workspace = placeOf(org, backend)
	if x, ok := ability[driver.Examiner](s, at.backend); ok {
		s.damage(at, org, x.Missing(at.workspace))
	}
}

// Examine checks all data of an organization at its placement: it reads the entire file, if the backend has files, and
// counts the documents. Errors: ErrUnavailable, which may wrap a *DamagedError; that of the context.
func (s *Store) Examine(ctx context.Context, org int64, p Placement) (documents int64, err error) {
	var at place
	at.backend, at.workspace = placeOf(org, p.backend())
	if x, ok := ability[driver.Examiner](s, at.backend); ok {
		// A file that is known to be corrupt is opened again, because it may have been restored.
		err := s.examine(ctx, x, at.backend, x.Place(at.workspace), s.checkWritable(at) != nil)
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
		s.clearDamage(at)
	}
	return documents, err
}

// Documents returns the number of documents of all kinds that are counted.
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
