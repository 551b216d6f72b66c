package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/driver"
)

// Workspace is the data of one organization, limited to what one caller may see. It is immutable and safe for
// concurrent use.
type Workspace struct {
	store       *Store
	control     driver.Workspace // set for the control workspace
	home        *home            // set for an organization's workspace
	specs       []*driver.Collection
	org         int64
	partition   int64 // org_id of a partitioned control workspace
	scoped      bool
	scope       Scope
	claim       *Claim // stored with the first commit; may be nil
	beyondQuota bool   // the quota does not apply to its writes
	actor       string // see By
}

// Org returns the organization the workspace is bound to, 0 for the control workspace.
func (w *Workspace) Org() int64 {
	if w.org != 0 {
		return w.org
	}
	return w.partition
}

// Scoped returns the workspace limited to the records that the scope shows. Scoping a workspace that is already scoped
// narrows it further.
func (w *Workspace) Scoped(scope Scope) *Workspace {
	c := *w
	switch {
	case !w.scoped || w.scope.All:
		c.scope = Scope{All: scope.All, Teams: slices.Clone(scope.Teams)}
	case !scope.All:
		excluded := func(team string) bool { return !slices.Contains(scope.Teams, team) }
		c.scope = Scope{Teams: slices.DeleteFunc(slices.Clone(w.scope.Teams), excluded)}
	}
	c.scoped = true
	return &c
}

// Scope says which records with teams a workspace shows. The zero value shows only records without teams.
type Scope struct {
	All   bool
	Teams []string
}

// Hidden returns a filter that matches the records that the scope does not show. The scope must not be All.
func (s Scope) Hidden() Filter {
	teams := make([]any, len(s.Teams))
	for i, team := range s.Teams {
		teams[i] = team
	}
	return All(Has("teams", true), Where(F("teams"), OpNin, teams...))
}

// Covers reports whether the scope shows every record that the other scope shows.
func (s Scope) Covers(other Scope) bool {
	missing := func(team string) bool { return !slices.Contains(s.Teams, team) }
	return s.All || !other.All && !slices.ContainsFunc(other.Teams, missing)
}

// CountTeam returns how many records of the workspace have the team, in any state, over all kinds whose Spec has
// Teams. Error: ErrUnavailable.
func (w *Workspace) CountTeam(ctx context.Context, team string) (int64, error) {
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

// Partition returns the control workspace limited to the records of one organization. Only kinds whose Spec has
// Partition can be opened in it.
func (w *Workspace) Partition(org int64) *Workspace {
	c := *w
	c.partition = org
	if p, ok := w.control.(driver.Parted); ok {
		c.control = p.Part(workspaceName(org))
	}
	return &c
}

// partition is the number of the organization that owns a part of a shared workspace; 0 means no partition. It is a
// prefix of the stored identifiers, so that two organizations may have records with the same identifier.
type partition int64

func (w *Workspace) part(s *Spec) partition {
	if !s.Partition {
		return 0
	}
	return partition(w.partition)
}

func (p partition) prefix() string { return strconv.FormatInt(int64(p), 10) + "." }

func (p partition) qualify(id string) string {
	if p == 0 {
		return id
	}
	return p.prefix() + id
}

func (p partition) unqualify(id string) string {
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

// Hold returns how long a write may wait for the last step of the organization's move; 0 for the control workspace,
// which is never moved.
func (w *Workspace) Hold() time.Duration {
	if w.home == nil {
		return 0
	}
	return w.home.store.leases.Hold
}

// Counter raises the named counter to at least atLeast, adds add, and returns the new value once it is durable. No
// value is returned twice. Only the control workspace has counters.
func (w *Workspace) Counter(ctx context.Context, name string, add, atLeast int64) (int64, error) {
	if w.home != nil {
		return 0, fmt.Errorf("%w: counter %s: only the control workspace has counters", ErrQuery, name)
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
