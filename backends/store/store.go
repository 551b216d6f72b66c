// Package store keeps documents. A Store opens Workspaces, each bound to one organization. A Kind opened in a
// Workspace is a Collection of typed records. Queries are typed Filters over declared fields: text from outside
// reaches an engine only as a bound value.
package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/cache"
	"tenantry/internal/fairqueue"
)

// Store opens workspaces on its backends. Safe for concurrent use.
type Store struct {
	backends  map[string]driver.Engine
	controlAt string
	ids       *idSource
	now       func() time.Time
	leases    Leases
	observe   func(context.Context, Call)
	ending    func(context.Context, *Workspace, []string) error
	locator   atomic.Pointer[Locator]
	control   []*driver.Collection
	tenant    []*driver.Collection
	kinds     []*Spec // those of tenant, without notes
	// controlKinds are those of control.
	controlKinds []*Spec
	notes        *driver.Collection
	events       *Kind[Event]
	told         map[string]*Spec // see Tell
	committed    func(org int64)  // see OnEvents; may be nil

	changing fairqueue.Queue[recordTurn] // writers by the record that they change
	damages  damages
	// unreadable lists records that cannot be read; damages lists workspaces.
	unreadable unreadables
	// opened and homes keep their entries for as long as a handle on the organization is in use.
	opened   cache.Weak[place, observed]
	homes    cache.Weak[tenancy, home]
	mu       sync.Mutex // guards removals, and that opened gains nothing during one
	removals int        // removals started or ended; a workspace that was opened during one is not cached
}

// place is a workspace of a backend, with its owner.
type place struct{ backend, workspace, owner string }

// tenancy identifies an organization. Its number alone is not enough, because another installation, or control data
// restored from a backup, may give the same number to another organization.
type tenancy struct {
	org   int64
	owner string
}

// Options name the kinds that a Store keeps, and the backends that hold them. Control kinds live in the single control
// workspace (organizations and their people), Tenant kinds in the workspace of each organization.
type Options struct {
	// Engine is the backend named DefaultBackend; Backends are the others, by name.
	Engine   driver.Engine
	Backends map[string]driver.Engine
	// ControlBackend names the backend of the control workspace; empty: DefaultBackend.
	ControlBackend string
	Control        []*Spec
	Tenant         []*Spec
	Now            func() time.Time // nil: time.Now
	Leases         Leases           // zero: DefaultLeases
	// Observe, when set, is called after every call of an engine, possibly concurrently.
	Observe func(context.Context, Call)
	// Damage, when set, is called once when a workspace is found to be damaged, and once when it is found intact
	// again, possibly concurrently.
	Damage func(d Damage, intact bool)
	// Unreadable, when set, is called once for each record that cannot be read, for at most a hundred records, possibly
	// concurrently.
	Unreadable func(context.Context, Unreadable)
}

// New returns a Store. The caller closes the engines.
func New(o Options) *Store {
	s := &Store{
		backends:  map[string]driver.Engine{},
		controlAt: BackendName(o.ControlBackend),
		ids:       newIDSource(),
		now:       o.Now,
		observe:   o.Observe,
		notes:     notesCollection(),
		events:    newEvents(),
		changing:  fairqueue.Queue[recordTurn]{Timeout: turnTimeout},
	}
	s.damages = damages{all: map[place]Damage{}, report: o.Damage}
	s.unreadable = unreadables{all: map[Unreadable]func(context.Context) bool{}, report: o.Unreadable}
	maps.Copy(s.backends, o.Backends)
	if o.Engine != nil {
		s.backends[DefaultBackend] = o.Engine
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.leases = o.Leases; s.leases == (Leases{}) {
		s.leases = DefaultLeases()
	}
	s.controlKinds = o.Control
	for _, spec := range o.Control {
		s.control = append(s.control, spec.collection)
	}
	s.tenant = append(s.tenant, s.notes)
	s.Keep(o.Tenant...)
	s.loadMarks()
	return s
}

// Keep adds kinds to the workspaces of organizations. It must be called before the first of them is opened.
func (s *Store) Keep(specs ...*Spec) {
	for _, spec := range specs {
		s.kinds, s.tenant = append(s.kinds, spec), append(s.tenant, spec.collection)
	}
}

// OnEnd sets the hook that is called right before records of a kind with SoftDelete are deleted for good, so that
// services can drop what they keep about these records. An error of the hook prevents the deletion. The hook's own
// writes are not part of the deleting batch. On an engine without transactions it is called again after the deletion,
// because something may have been stored in between. OnEnd must be called before the first workspace is opened.
func (s *Store) OnEnd(ending func(ctx context.Context, ws *Workspace, ids []string) error) {
	s.ending = ending
}

// NotifyEnd calls the hook set by OnEnd for records that, or parts of which, are about to be deleted for good.
func (w *Workspace) NotifyEnd(ctx context.Context, ids ...string) error {
	if w.store.ending == nil || w.home == nil || len(ids) == 0 {
		return nil
	}
	if w.claim != nil {
		for _, id := range ids {
			w.claim.ended.Store(id, true)
		}
	}
	unscoped := &Workspace{store: w.store, home: w.home, specs: w.specs, org: w.org, beyondQuota: w.beyondQuota, actor: w.actor}
	return w.store.ending(ctx, unscoped, ids)
}

// engine returns the backend of a place, and its name; an empty name means the default backend. Error: ErrUnavailable.
func (s *Store) engine(backend string) (driver.Engine, string, error) {
	name, _ := SplitPlace(backend)
	if e := s.backends[name]; e != nil {
		return e, name, nil
	}
	return nil, name, fmt.Errorf("%w: backend %q is not configured", ErrUnavailable, name)
}

// HasBackend reports whether a backend of that name is configured; an empty name means the default backend.
func (s *Store) HasBackend(name string) bool {
	_, ok := s.backends[BackendName(name)]
	return ok
}

// Backends returns the names of the backends, sorted.
func (s *Store) Backends() []string { return slices.Sorted(maps.Keys(s.backends)) }

// Leases returns how long placements may be used.
func (s *Store) Leases() Leases { return s.leases }

// SetLocator sets the Locator of organizations. Without one, organizations stay where they were opened.
func (s *Store) SetLocator(l Locator) { s.locator.Store(&l) }

// Control returns the control workspace. Only package tenants may use it.
func (s *Store) Control(ctx context.Context) (*Workspace, error) {
	at := place{backend: s.controlAt, workspace: controlName}
	if x, ok := ability[driver.Examiner](s, at.backend); ok && s.checkWritable(at) != nil {
		// The file may have been restored since. An error says only that the known damage remains.
		_ = s.examine(ctx, x, at.backend, x.Place(at.workspace), true)
	}
	drv, err := s.open(ctx, s.controlAt, driver.Opening{Workspace: controlName, Collections: s.control, Apart: true}, true)
	if err != nil {
		return nil, err
	}
	return &Workspace{store: s, control: drv, specs: s.control}, nil
}

// HasControl reports whether the control workspace exists, without creating it as Control would. It returns true when
// the engine cannot tell.
func (s *Store) HasControl(ctx context.Context) (bool, error) {
	if e, ok := ability[driver.Finder](s, s.controlAt); ok {
		return e.Exists(ctx, controlName)
	}
	return true, nil
}

// ControlFileMissing returns an error if the file of the control workspace no longer exists. It only checks for the
// file and does not read it.
func (s *Store) ControlFileMissing() error {
	if x, ok := ability[driver.Examiner](s, s.controlAt); ok {
		return x.Missing(controlName)
	}
	return nil
}

// FileMissing returns an error if the file of an organization's workspace no longer exists.
func (s *Store) FileMissing(org int64, backend string) error {
	backend, workspace := placeOf(org, backend)
	if x, ok := ability[driver.Examiner](s, backend); ok {
		return x.Missing(workspace)
	}
	return nil
}

// HomeMissing is FileMissing of what Home has named.
func (s *Store) HomeMissing(home string) error {
	backend, workspace, _ := strings.Cut(home, "/")
	if x, ok := ability[driver.Examiner](s, backend); ok {
		return x.Missing(workspace)
	}
	return nil
}

// At returns the unscoped workspace of an organization at that placement, or at a later one if the store knows of it.
// Only package tenants may call it; all other code is given a workspace.
func (s *Store) At(ctx context.Context, org int64, p Placement) (*Workspace, error) {
	if org <= 0 {
		return nil, fmt.Errorf("store: no organization %d", org)
	}
	for {
		h, err := s.home(ctx, org, p)
		if errors.Is(err, errRemoved) && ctx.Err() == nil {
			continue // it was removed while it was being opened: start over
		}
		if err != nil {
			return nil, err
		}
		return &Workspace{store: s, home: h, specs: s.tenant, org: org}, nil
	}
}

func (s *Store) home(ctx context.Context, org int64, p Placement) (*home, error) {
	who := tenancy{org, p.Owner}
	h := s.homes.GetOrPut(who, func() *home { return newHome(s, who) }) // before it is opened, so there are never two
	if _, err := h.adopt(ctx, p); err != nil {
		return nil, err
	}
	if h.removed.Load() {
		return nil, errRemoved
	}
	return h, nil
}

// opening returns the options to open an existing workspace of an organization.
func (s *Store) opening(workspace, owner string) driver.Opening {
	return driver.Opening{Workspace: workspace, Owner: owner, Collections: s.tenant}
}

// Remove deletes an organization's workspace for good on the named backends, by default on the default backend. A
// workspace of another owner is left untouched; Remove then returns ErrForeign after deleting the others.
func (s *Store) Remove(ctx context.Context, org int64, owner string, backends ...string) error {
	who := tenancy{org, owner}
	if len(backends) == 0 {
		backends = []string{DefaultBackend}
	}
	s.forget(who, backends)
	defer s.forget(who, backends)
	var foreign error
	for _, name := range backends {
		_, workspace := placeOf(org, name)
		engine, name, err := s.engine(name)
		if err != nil {
			return err
		}
		switch err := engine.Remove(ctx, workspace, owner); {
		case errors.Is(err, ErrForeign):
			foreign = errors.Join(foreign, fmt.Errorf("backend %s: %w", name, err))
		case err != nil:
			return err
		}
		s.clearDamage(place{backend: name, workspace: workspace})
	}
	return foreign
}

// RemoveFrom deletes the workspace that a backend holds of an organization that lives on another backend. Error:
// ErrForeign if the workspace belongs to another owner.
func (s *Store) RemoveFrom(ctx context.Context, org int64, owner, backend string) error {
	_, workspace := placeOf(org, backend)
	engine, name, err := s.engine(backend)
	if err != nil {
		return err
	}
	who := tenancy{org, owner}
	if h := s.homes.Get(who); h != nil && h.lives(BackendName(backend)) {
		return fmt.Errorf("store: organization %d lives on backend %s", org, backend)
	}
	at := place{name, workspace, owner}
	s.close(at)
	defer s.close(at)
	return engine.Remove(ctx, workspace, owner)
}

// close drops an open workspace from the cache, so that the next call opens it again.
func (s *Store) close(at place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened.Delete(at)
	s.removals++
}

// forget drops everything that is cached of an organization in these places, and marks its home as removed.
func (s *Store) forget(who tenancy, places []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.homes.Get(who); h != nil {
		h.removed.Store(true)
		s.homes.Delete(who, h)
	}
	for _, name := range slices.Concat(s.Backends(), places) {
		backend, workspace := placeOf(who.org, name)
		s.opened.Delete(place{backend, workspace, who.owner})
	}
	s.removals++
}

// Check returns an error if the backend of that name does not answer; an empty name means the default backend.
func (s *Store) Check(ctx context.Context, backend string) error {
	engine, _, err := s.engine(backend)
	if err != nil {
		return err
	}
	return engine.Check(ctx)
}

// open returns a workspace. Unless make is set, a workspace whose file is missing is an error.
func (s *Store) open(ctx context.Context, backend string, o driver.Opening, make bool) (driver.Workspace, error) {
	if w := s.opened.Get(place{backend, o.Workspace, o.Owner}); w != nil {
		return w, nil
	}
	return s.openAnew(ctx, backend, o, make)
}

// Prepare creates the workspace of an organization that is about to be created, or copied, on the backend. Error:
// ErrForeign if the workspace holds data of another owner, or without an owner.
func (s *Store) Prepare(ctx context.Context, org int64, owner, backend string) error {
	name, workspace := placeOf(org, backend)
	o := s.opening(workspace, owner)
	o.New = true
	_, err := s.openAnew(ctx, name, o, true)
	return err
}

// openAnew has the engine open the workspace, even if it is open already.
func (s *Store) openAnew(ctx context.Context, backend string, o driver.Opening, make bool) (driver.Workspace, error) {
	s.mu.Lock()
	removals := s.removals
	s.mu.Unlock()
	engine, _, err := s.engine(backend)
	if err != nil {
		return nil, fmt.Errorf("opening workspace %s: %w", o.Workspace, err)
	}
	at := place{backend: backend, workspace: o.Workspace}
	if x, ok := ability[driver.Examiner](s, backend); ok && !make {
		if err := x.Missing(o.Workspace); err != nil {
			s.damageAt(at, err)
			return nil, fmt.Errorf("opening workspace %s: %w", o.Workspace, err)
		}
	}
	if make && o.Workspace != controlName { // a damaged control workspace can still be read
		if err := s.checkWritable(at); err != nil {
			return nil, fmt.Errorf("making workspace %s: %w", o.Workspace, err)
		}
	}
	drv, err := engine.Open(ctx, o)
	if err != nil {
		s.damageAt(at, err)
		return nil, fmt.Errorf("opening workspace %s on backend %s: %w", o.Workspace, backend, err)
	}
	w := &observed{Workspace: drv, store: s, at: at}
	s.mu.Lock()
	if s.removals == removals {
		s.opened.Put(place{backend, o.Workspace, o.Owner}, w)
	}
	s.mu.Unlock()
	return w, nil
}

// Resident is a workspace that a backend holds.
type Resident struct {
	driver.Resident
	Org   int64 // 0 if it does not belong to an organization
	Place string
	Err   error // why the owner could not be read
}

// Residents returns every workspace on a backend, except the control workspace in use and the workspaces of
// organizations for whose place skip returns true. Error: ErrUnavailable.
func (s *Store) Residents(
	ctx context.Context, backend string, skip func(org int64, place string) bool,
) ([]Resident, error) {
	engine, backend, err := s.engine(backend)
	if err != nil {
		return nil, err
	}
	names, err := engine.Residents(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the workspaces of backend %s: %w", backend, err)
	}
	var all []Resident
	for _, name := range names {
		org, generation := orgOf(name)
		at := PlaceName(backend, generation)
		if name == controlName && backend == s.controlAt || org != 0 && skip(org, at) {
			continue
		}
		r := Resident{Org: org, Place: at}
		if r.Resident, r.Err = engine.Resident(ctx, name); ctx.Err() != nil {
			return nil, ctx.Err()
		}
		all = append(all, r)
	}
	return all, nil
}

// OwnerOf returns the owner of an organization's workspace; empty if the workspace has no owner or does not exist.
// Errors: ErrUnavailable, which may wrap a *DamagedError.
func (s *Store) OwnerOf(ctx context.Context, org int64, backend string) (string, error) {
	_, workspace := placeOf(org, backend)
	engine, backend, err := s.engine(backend)
	if err != nil {
		return "", err
	}
	r, err := engine.Resident(ctx, workspace)
	if err != nil {
		return "", fmt.Errorf("workspace %s on backend %s: %w", workspace, backend, err)
	}
	return r.Owner, nil
}
