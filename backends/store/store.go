// Package store keeps documents. A Store hands out Workspaces, each bound to one
// organization; a Kind opened in a Workspace is a Collection of typed records. What is
// asked is a typed Filter over declared fields: no text from outside reaches an engine
// as anything but a bound value.
package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	kinds     []*Spec // of tenant, but for the notes
	notes     *driver.Collection

	changing fairqueue.Queue[recordTurn]
	damages  damages
	// unreadable are records, damages whole workspaces.
	unreadable unreadables
	// What organizations need is kept while anybody has a handle on them, as those do who are asked for by their hosts.
	opened   cache.Weak[place, observed]
	homes    cache.Weak[tenancy, home]
	mu       sync.Mutex
	removals int // started or ended; an opening that overlaps one is not kept
}

// place is a workspace of a backend, and whose it is.
type place struct{ backend, workspace, owner string }

// tenancy is an organization. Its number alone does not tell: another installation, and
// control data restored from a backup, give the same number to another organization.
type tenancy struct {
	org   int64
	owner string
}

// Options name what a Store keeps, and where. Control kinds live in the one control
// workspace (who the organizations and their people are), Tenant kinds in each
// organization's own.
type Options struct {
	// Engine is the backend of the name DefaultBackend, Backends are others by name.
	Engine   driver.Engine
	Backends map[string]driver.Engine
	// ControlBackend names the one that has the control workspace; empty: DefaultBackend.
	ControlBackend string
	Control        []*Spec
	Tenant         []*Spec
	Now            func() time.Time // nil: time.Now
	Leases         Leases           // zero: DefaultLeases
	// Observe, when set, is called after every call of an engine, concurrently.
	Observe func(context.Context, Call)
	// Damage, when set, is called once for each workspace that is found to be damaged, and once
	// when it is found whole again; by whoever found it, possibly concurrently.
	Damage func(d Damage, whole bool)
	// Unreadable, when set, is called once for each record that cannot be read, of a hundred at most; by whoever
	// came upon it, possibly concurrently.
	Unreadable func(context.Context, Unreadable)
}

// New returns a Store. The engines stay the caller's to close.
func New(o Options) *Store {
	s := &Store{
		backends: map[string]driver.Engine{}, controlAt: BackendName(o.ControlBackend), ids: newIDSource(), now: o.Now, observe: o.Observe,
		notes: notesCollection(), changing: fairqueue.Queue[recordTurn]{Patience: turnTimeout},
	}
	s.damages = damages{all: map[place]Damage{}, tell: o.Damage}
	s.unreadable = unreadables{all: map[Unreadable]func(context.Context) bool{}, tell: o.Unreadable}
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
	for _, spec := range o.Control {
		s.control = append(s.control, spec.collection)
	}
	s.tenant = append(s.tenant, s.notes)
	s.Keep(o.Tenant...)
	s.remember()
	return s
}

// Keep adds to what organizations' workspaces keep. It is called before the first of them is opened.
func (s *Store) Keep(specs ...*Spec) {
	for _, spec := range specs {
		s.kinds, s.tenant = append(s.kinds, spec), append(s.tenant, spec.collection)
	}
}

// OnEnd sets who is told of records with a trash, of any kind, right before they are deleted for good: who keeps what
// they held ends that, and an error keeps them. What it writes is no part of the write that deletes. Where that may
// come between the write of a record and what is stored after it, because the engine has no transactions, it is told
// again once they are gone. It is called before the first workspace is opened.
func (s *Store) OnEnd(ending func(ctx context.Context, ws *Workspace, ids []string) error) {
	s.ending = ending
}

// Ending tells who is told of the end of records that some, or parts of them, are about to end.
func (w *Workspace) Ending(ctx context.Context, ids ...string) error {
	if w.store.ending == nil || w.home == nil || len(ids) == 0 {
		return nil
	}
	if w.claim != nil {
		for _, id := range ids {
			w.claim.ended.Store(id, true)
		}
	}
	return w.store.ending(ctx, &Workspace{store: w.store, home: w.home, specs: w.specs, org: w.org, beyond: w.beyond}, ids)
}

// engine returns a backend and its name; empty is the default one. Error: ErrUnavailable.
func (s *Store) engine(backend string) (driver.Engine, string, error) {
	name := BackendName(backend)
	if e := s.backends[name]; e != nil {
		return e, name, nil
	}
	return nil, name, fmt.Errorf("%w: the configuration names no backend %q", ErrUnavailable, name)
}

// HasBackend reports whether there is a backend of that name; empty is the default one.
func (s *Store) HasBackend(name string) bool {
	_, ok := s.backends[BackendName(name)]
	return ok
}

// Backends returns the names of the backends, sorted.
func (s *Store) Backends() []string { return slices.Sorted(maps.Keys(s.backends)) }

// Leases returns how long placements may be used.
func (s *Store) Leases() Leases { return s.leases }

// LocateWith sets who knows where organizations are. Without anybody they stay where they
// were opened.
func (s *Store) LocateWith(l Locator) { s.locator.Store(&l) }

// Control returns the control workspace. Only package tenants may use it.
func (s *Store) Control(ctx context.Context) (*Workspace, error) {
	at := place{backend: s.controlAt, workspace: controlName}
	if x, ok := able[driver.Examiner](s, at.backend); ok && s.writable(at) != nil { // it may have been put back since
		_ = s.examine(ctx, x, at.backend, x.Place(at.workspace), true) // its damage is known
	}
	drv, err := s.open(ctx, s.controlAt, driver.Opening{Workspace: controlName, Collections: s.control, Apart: true}, true)
	if err != nil {
		return nil, err
	}
	return &Workspace{store: s, control: drv, specs: s.control}, nil
}

// HasControl reports whether there is a control workspace, which Control would make. Nothing is changed. Where the
// engine cannot tell, there may be one.
func (s *Store) HasControl(ctx context.Context) (bool, error) {
	if e, ok := able[driver.Finder](s, s.controlAt); ok {
		return e.Exists(ctx, controlName)
	}
	return true, nil
}

// LostControl returns an error where the file of the control workspace is not there any more. It costs a look.
func (s *Store) LostControl() error {
	if x, ok := able[driver.Examiner](s, s.controlAt); ok {
		return x.Missing(controlName)
	}
	return nil
}

// Lost returns an error where the file of an organization is missing, as Look would note.
func (s *Store) Lost(org int64, backend string) error {
	if x, ok := able[driver.Examiner](s, BackendName(backend)); ok {
		return x.Missing(workspaceName(org))
	}
	return nil
}

// At returns the workspace of an organization at that place, or where a later placement
// says it is by now, unscoped. Only package tenants may call it: everybody else is handed a workspace.
func (s *Store) At(ctx context.Context, org int64, p Placement) (*Workspace, error) {
	if org <= 0 {
		return nil, fmt.Errorf("store: no organization %d", org)
	}
	for {
		h, err := s.home(ctx, org, p)
		if errors.Is(err, errRemoved) && ctx.Err() == nil {
			continue // it was removed while it was opened: begin anew
		}
		if err != nil {
			return nil, err
		}
		return &Workspace{store: s, home: h, specs: s.tenant, org: org}, nil
	}
}

func (s *Store) home(ctx context.Context, org int64, p Placement) (*home, error) {
	who := tenancy{org, p.Owner}
	h := s.homes.GetOrPut(who, func() *home { return newHome(s, who) }) // before it is opened: there are never two
	if _, err := h.settle(ctx, p); err != nil {
		return nil, err
	}
	if h.removed.Load() {
		return nil, errRemoved
	}
	return h, nil
}

const (
	controlName = "control"
	orgPrefix   = "org-"
)

func workspaceName(org int64) string { return orgPrefix + strconv.FormatInt(org, 10) }

// opening is for one that is there already.
func (s *Store) opening(org int64, owner string) driver.Opening {
	return driver.Opening{Workspace: workspaceName(org), Owner: owner, Collections: s.tenant}
}

// orgOf returns the organization of a workspace, 0 for the control workspace and what is neither.
func orgOf(workspace string) int64 {
	n, err := strconv.ParseInt(strings.TrimPrefix(workspace, orgPrefix), 10, 64)
	if err != nil || workspaceName(n) != workspace {
		return 0
	}
	return n
}

// Remove deletes an organization's workspace for good, on the backends named; without any,
// on the default one. What is somebody else's is left: ErrForeign, once the rest is deleted.
func (s *Store) Remove(ctx context.Context, org int64, owner string, backends ...string) error {
	who := tenancy{org, owner}
	s.forget(who)
	defer s.forget(who)
	if len(backends) == 0 {
		backends = []string{DefaultBackend}
	}
	var foreign error
	for _, name := range backends {
		engine, name, err := s.engine(name)
		if err != nil {
			return err
		}
		switch err := engine.Remove(ctx, workspaceName(org), owner); {
		case errors.Is(err, ErrForeign):
			foreign = errors.Join(foreign, fmt.Errorf("backend %s: %w", name, err))
		case err != nil:
			return err
		}
		s.whole(place{backend: name, workspace: workspaceName(org)})
	}
	return foreign
}

// RemoveFrom deletes what a backend holds of an organization that lives elsewhere. Error:
// ErrForeign where it is somebody else's.
func (s *Store) RemoveFrom(ctx context.Context, org int64, owner, backend string) error {
	engine, backend, err := s.engine(backend)
	if err != nil {
		return err
	}
	who := tenancy{org, owner}
	if h := s.homes.Get(who); h != nil && h.lives(backend) {
		return fmt.Errorf("store: organization %d lives on backend %s", org, backend)
	}
	s.close(who, backend)
	defer s.close(who, backend)
	return engine.Remove(ctx, workspaceName(org), owner)
}

// close lets the next call open the workspace anew.
func (s *Store) close(who tenancy, backend string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened.Delete(place{backend, workspaceName(who.org), who.owner})
	s.removals++
}

func (s *Store) forget(who tenancy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.homes.Get(who); h != nil {
		h.removed.Store(true)
		s.homes.Delete(who, h)
	}
	for name := range s.backends {
		s.opened.Delete(place{name, workspaceName(who.org), who.owner})
	}
	s.removals++
}

// Check reports whether the backend of that name answers; empty is the default one.
func (s *Store) Check(ctx context.Context, backend string) error {
	engine, _, err := s.engine(backend)
	if err != nil {
		return err
	}
	return engine.Check(ctx)
}

// open returns a workspace. Unless it may be made, one that the engine lost is an error.
func (s *Store) open(ctx context.Context, backend string, o driver.Opening, make bool) (driver.Workspace, error) {
	if w := s.opened.Get(place{backend, o.Workspace, o.Owner}); w != nil {
		return w, nil
	}
	return s.openAnew(ctx, backend, o, make)
}

// Prepare makes the workspace of an organization that is about to be there, or to be copied
// there. Error: ErrForeign where it holds anything that is not that owner's.
func (s *Store) Prepare(ctx context.Context, org int64, owner, backend string) error {
	o := s.opening(org, owner)
	o.New = true
	_, err := s.openAnew(ctx, BackendName(backend), o, true)
	return err
}

// openAnew has the engine prepare the workspace, whether or not it was open.
func (s *Store) openAnew(ctx context.Context, backend string, o driver.Opening, make bool) (driver.Workspace, error) {
	s.mu.Lock()
	removals := s.removals
	s.mu.Unlock()
	engine, _, err := s.engine(backend)
	if err != nil {
		return nil, fmt.Errorf("opening workspace %s: %w", o.Workspace, err)
	}
	at := place{backend: backend, workspace: o.Workspace}
	if x, ok := able[driver.Examiner](s, backend); ok && !make {
		if err := x.Missing(o.Workspace); err != nil {
			s.damage(at, orgOf(o.Workspace), err)
			return nil, fmt.Errorf("opening workspace %s: %w", o.Workspace, err)
		}
	}
	if make && o.Workspace != controlName { // that has been there, and is read on
		if err := s.writable(at); err != nil {
			return nil, fmt.Errorf("making workspace %s: %w", o.Workspace, err)
		}
	}
	drv, err := engine.Open(ctx, o)
	if err != nil {
		s.damage(at, orgOf(o.Workspace), err)
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
	Org int64 // 0 where it is not that of an organization
	Err error // why the owner could not be read
}

// Residents tells of every workspace on a backend, but the control workspace that is in use
// and those of organizations for which skip returns true. Error: ErrUnavailable.
func (s *Store) Residents(ctx context.Context, backend string, skip func(org int64) bool) ([]Resident, error) {
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
		org := orgOf(name)
		if name == controlName && backend == s.controlAt || org != 0 && skip(org) {
			continue
		}
		r := Resident{Org: org}
		if r.Resident, r.Err = engine.Resident(ctx, name); ctx.Err() != nil {
			return nil, ctx.Err()
		}
		all = append(all, r)
	}
	return all, nil
}

// OwnerOf returns whose the workspace of an organization is; empty: nobody's, or there is none.
// Errors: ErrUnavailable, ErrDamaged in it.
func (s *Store) OwnerOf(ctx context.Context, org int64, backend string) (string, error) {
	engine, backend, err := s.engine(backend)
	if err != nil {
		return "", err
	}
	r, err := engine.Resident(ctx, workspaceName(org))
	if err != nil {
		return "", fmt.Errorf("workspace %s on backend %s: %w", workspaceName(org), backend, err)
	}
	return r.Owner, nil
}

// Scope says which records with teams a workspace shows. The zero value shows only
// records without teams.
type Scope struct {
	All   bool
	Teams []string
}

// Hidden matches the records with teams that a scope which is not of All does not show.
func (s Scope) Hidden() Filter {
	teams := make([]any, len(s.Teams))
	for i, team := range s.Teams {
		teams[i] = team
	}
	return All(Has("teams", true), Where(F("teams"), OpNin, teams...))
}

// Covers reports whether all that the other scope shows is shown by this one.
func (s Scope) Covers(other Scope) bool {
	return s.All || !other.All && !slices.ContainsFunc(other.Teams, func(team string) bool { return !slices.Contains(s.Teams, team) })
}

// Workspace is the data of one organization as one caller may see it. It is immutable
// and safe for concurrent use.
type Workspace struct {
	store     *Store
	control   driver.Workspace // of the control workspace
	home      *home            // of an organization's
	specs     []*driver.Collection
	org       int64
	partition int64 // org_id of a partitioned control workspace
	scoped    bool
	scope     Scope
	claim     *Claim // stored with its first commit; nil: nothing is
	beyond    bool   // its writes are refused by no quota
}

// Org returns the organization the workspace is bound to, 0 for the control workspace.
func (w *Workspace) Org() int64 {
	if w.org != 0 {
		return w.org
	}
	return w.partition
}

// Scoped returns the same workspace showing only what the scope admits. Scoping an
// already scoped workspace narrows it further.
func (w *Workspace) Scoped(scope Scope) *Workspace {
	c := *w
	switch {
	case !w.scoped || w.scope.All:
		c.scope = Scope{All: scope.All, Teams: slices.Clone(scope.Teams)}
	case !scope.All:
		c.scope = Scope{Teams: slices.DeleteFunc(slices.Clone(w.scope.Teams), func(t string) bool { return !slices.Contains(scope.Teams, t) })}
	}
	c.scoped = true
	return &c
}

// BearTeam returns how many records of the workspace bear the team, in whatever state. It
// looks at every kind whose Spec has Teams. Error: ErrUnavailable.
func (w *Workspace) BearTeam(ctx context.Context, team string) (int64, error) {
	var total int64
	for _, s := range w.store.kinds {
		if !s.Teams {
			continue
		}
		n, err := w.count(ctx, s, In("teams", team), Either)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// Partition returns the control workspace narrowed to the records of one organization.
// Only kinds whose Spec has Partition can be opened in it.
func (w *Workspace) Partition(org int64) *Workspace {
	c := *w
	c.partition = org
	if p, ok := w.control.(driver.Parted); ok {
		c.control = p.Part(workspaceName(org))
	}
	return &c
}

// partition is the organization whose records of a shared workspace are meant, 0 for none.
// Their identifiers are stored with it, so that two organizations can have records of the
// same identifier, as they do in workspaces of their own.
type partition int64

func (w *Workspace) part(s *Spec) partition {
	if !s.Partition {
		return 0
	}
	return partition(w.partition)
}

func (p partition) prefix() string { return strconv.FormatInt(int64(p), 10) + "." }

func (p partition) stored(id string) string {
	if p == 0 {
		return id
	}
	return p.prefix() + id
}

func (p partition) given(id string) string {
	if p == 0 {
		return id
	}
	return strings.TrimPrefix(id, p.prefix())
}

// reader returns the engine's workspace to read from.
func (w *Workspace) reader(ctx context.Context) (driver.Workspace, error) {
	if w.home == nil {
		return w.control, nil
	}
	return w.home.reader(ctx)
}

// Hold returns how long a write may wait for the last step of the organization's move to end.
func (w *Workspace) Hold() time.Duration {
	if w.home == nil {
		return 0 // nobody moves it
	}
	return w.home.store.leases.Hold
}

// Counter raises the named counter to at least atLeast, adds add, and returns the new
// value once it is durable. Values are never handed out twice. Only the control workspace
// has counters.
func (w *Workspace) Counter(ctx context.Context, name string, add, atLeast int64) (int64, error) {
	if w.home != nil {
		return 0, fmt.Errorf("%w: counter %s: an organization's own workspace has none", ErrQuery, name)
	}
	if w.partition != 0 {
		name = strconv.FormatInt(w.partition, 10) + "/" + name
	}
	n, err := w.control.Counter(ctx, name, add, atLeast)
	if err != nil {
		return 0, fmt.Errorf("counter %s: %w", name, err)
	}
	return n, nil
}

// NewID returns a new document identifier.
func (w *Workspace) NewID() string { return w.store.NewID() }
