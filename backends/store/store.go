// Package store keeps documents. A Store hands out Workspaces, each bound to one
// organization; a Kind opened in a Workspace is a Collection of typed records. What is
// asked is a typed Filter over declared fields: no text from outside reaches an engine
// as anything but a bound value.
package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tenantry/backends/store/driver"
)

// Store opens workspaces on one engine. Safe for concurrent use.
type Store struct {
	engine  driver.Engine
	ids     *idSource
	now     func() time.Time
	control []*driver.Collection
	tenant  []*driver.Collection

	mu       sync.Mutex
	open     map[string]driver.Workspace
	removals int // started or ended; an opening that overlaps one is not kept
}

// Options name what a Store keeps. Control kinds live in the one control workspace
// (who the organizations and their people are), Tenant kinds in each organization's own.
type Options struct {
	Engine  driver.Engine
	Control []*Spec
	Tenant  []*Spec
	Now     func() time.Time // nil: time.Now
}

// New returns a Store. The engine stays the caller's to close.
func New(o Options) *Store {
	s := &Store{engine: o.Engine, ids: newIDSource(), now: o.Now, open: map[string]driver.Workspace{}}
	if s.now == nil {
		s.now = time.Now
	}
	for _, spec := range o.Control {
		s.control = append(s.control, spec.collection)
	}
	for _, spec := range o.Tenant {
		s.tenant = append(s.tenant, spec.collection)
	}
	return s
}

// Control returns the control workspace. Only package tenants may use it.
func (s *Store) Control(ctx context.Context) (*Workspace, error) {
	return s.workspace(ctx, "control", s.control, 0)
}

// Organization returns the workspace of one organization, unscoped. Only package
// tenants may call it: everybody else is handed a workspace.
func (s *Store) Organization(ctx context.Context, org int64) (*Workspace, error) {
	if org <= 0 {
		return nil, fmt.Errorf("store: no organization %d", org)
	}
	return s.workspace(ctx, "org-"+strconv.FormatInt(org, 10), s.tenant, org)
}

// Remove deletes an organization's workspace for good.
func (s *Store) Remove(ctx context.Context, org int64) error {
	name := "org-" + strconv.FormatInt(org, 10)
	s.forget(name)
	defer s.forget(name)
	return s.engine.Remove(ctx, name)
}

func (s *Store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, name)
	s.removals++
}

// Check reports whether the engine answers.
func (s *Store) Check(ctx context.Context) error { return s.engine.Check(ctx) }

func (s *Store) workspace(ctx context.Context, name string, specs []*driver.Collection, org int64) (*Workspace, error) {
	s.mu.Lock()
	w, ok := s.open[name]
	removals := s.removals
	s.mu.Unlock()
	if !ok {
		var err error
		if w, err = s.engine.Open(ctx, name, specs); err != nil {
			return nil, fmt.Errorf("opening workspace %s: %w", name, err)
		}
		s.mu.Lock()
		if s.removals == removals {
			s.open[name] = w
		}
		s.mu.Unlock()
	}
	return &Workspace{store: s, drv: w, specs: specs, org: org}, nil
}

// Scope says which records with teams a workspace shows. The zero value shows only
// records without teams.
type Scope struct {
	All   bool
	Teams []string
}

// Workspace is the data of one organization as one caller may see it. It is immutable
// and safe for concurrent use.
type Workspace struct {
	store     *Store
	drv       driver.Workspace
	specs     []*driver.Collection
	org       int64
	partition int64 // org_id of a partitioned control workspace
	scoped    bool
	scope     Scope
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

// Partition returns the control workspace narrowed to the records of one organization.
// Only kinds whose Spec has Partition can be opened in it.
func (w *Workspace) Partition(org int64) *Workspace {
	c := *w
	c.partition = org
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

// Counter raises the named counter to at least atLeast, adds add, and returns the new
// value once it is durable. Values are never handed out twice.
func (w *Workspace) Counter(ctx context.Context, name string, add, atLeast int64) (int64, error) {
	if w.partition != 0 {
		name = strconv.FormatInt(w.partition, 10) + "/" + name
	}
	n, err := w.drv.Counter(ctx, name, add, atLeast)
	if err != nil {
		return 0, fmt.Errorf("counter %s: %w", name, err)
	}
	return n, nil
}

// NewID returns a new document identifier.
func (w *Workspace) NewID() string { return w.store.NewID() }
