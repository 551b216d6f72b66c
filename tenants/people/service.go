package people

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/passwords"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/tenants"
)

// Page says which part of a list is asked for. Limit 0 is DefaultLimit; more than
// MaxLimit is cut to it.
type Page struct {
	Limit  int
	Offset int
}

// Limits of a list.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

func (p Page) query(sort string) store.Query {
	q := store.Query{Sort: []store.Order{store.Asc(sort)}, Limit: p.Limit, Offset: max(p.Offset, 0)}
	if q.Limit <= 0 {
		q.Limit = DefaultLimit
	}
	q.Limit = min(q.Limit, MaxLimit)
	return q
}

// Options are what a Service needs; all but Now are required.
type Options struct {
	Directory *tenants.Directory
	Kinds     Kinds
	Passwords *passwords.Hasher
	Now       func() time.Time // nil: time.Now
}

// Service works on the people of organizations. Every change of rights makes cached
// identities void before it returns. Safe for concurrent use.
//
// Methods that write may return *fault.Error with every fault,
// *store.DuplicateError, store.ErrConflict and store.ErrUnavailable; those that read
// store.ErrNotFound and store.ErrUnavailable.
type Service struct {
	dir    *tenants.Directory
	kinds  Kinds
	hasher *passwords.Hasher
	now    func() time.Time
}

// NewService returns a Service.
func NewService(o Options) *Service {
	s := &Service{dir: o.Directory, kinds: o.Kinds, hasher: o.Passwords, now: o.Now}
	if s.now == nil {
		s.now = time.Now
	}
	o.Directory.OnRemove(s.purge)
	return s
}

func (s *Service) purge(ctx context.Context, people *store.Workspace) error {
	return errors.Join(
		purge(ctx, s.kinds.Users.In(people)), purge(ctx, s.kinds.Roles.In(people)),
		purge(ctx, s.kinds.Teams.In(people)), purge(ctx, s.kinds.Accounts.In(people)))
}

func purge[T any](ctx context.Context, c store.Collection[T]) error {
	return c.Each(ctx, store.Filter{}, store.Either, func(rec *T) error { return c.Delete(ctx, rec) })
}

// bump makes cached identities void after a change that is stored already.
func (s *Service) bump(ctx context.Context, t *tenants.Tenant) error {
	if err := s.dir.BumpAccess(ctx, t.Org.OrgID); err != nil {
		return fmt.Errorf("the change is stored, but may not hold everywhere yet; repeat it: %w", err)
	}
	return nil
}

// MaxRoles is how many roles a person may have.
const MaxRoles = 200

const (
	maxName  = 200
	maxEmail = 254
)

// CheckPermissions notes unknown permissions and returns the list without repetitions in
// the fixed order.
func CheckPermissions(faults *fault.List, given []tenants.Permission) []tenants.Permission {
	all := tenants.AllPermissions()
	for _, p := range given {
		if !slices.Contains(all, p) {
			faults.Add("permissions", fault.Unknown, "unknown permission %q; there are: %s", texts.Clip(string(p)), Joined(all))
		}
	}
	return slices.DeleteFunc(all, func(p tenants.Permission) bool { return !slices.Contains(given, p) })
}

// Joined writes permissions for people.
func Joined(list []tenants.Permission) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = string(p)
	}
	return strings.Join(words, ", ")
}

// CheckTeams notes malformed and unknown teams and returns the list without repetitions.
// The error is the store's.
func (s *Service) CheckTeams(ctx context.Context, t *tenants.Tenant, faults *fault.List, given []string) ([]string, error) {
	out := unique(given)
	if len(out) == 0 {
		return nil, nil
	}
	if len(out) > store.MaxTeams {
		faults.Add("teams", fault.Length, "at most %d teams", store.MaxTeams)
		return out, nil
	}
	found, err := s.kinds.Teams.In(t.People()).Find(ctx, store.Query{Filter: store.In("id", out...)})
	if err != nil {
		return nil, err
	}
	for _, id := range out {
		switch {
		case !store.ValidID(id):
			faults.Add("teams", fault.Format, "%q is no identifier of a team", texts.Clip(id))
		case !slices.ContainsFunc(found, func(team Team) bool { return team.ID == id }):
			faults.Add("teams", fault.Unknown, "unknown team %q", id)
		}
	}
	return out, nil
}

// checkRoles notes unknown roles and returns the list without repetitions.
func (s *Service) checkRoles(ctx context.Context, t *tenants.Tenant, faults *fault.List, given []string) ([]string, error) {
	out := unique(given)
	if len(out) > MaxRoles {
		faults.Add("roles", fault.Length, "at most %d roles", MaxRoles)
		return out, nil
	}
	roles, err := s.rolesNamed(ctx, t, out)
	if err != nil {
		return nil, err
	}
	for _, name := range out {
		if !slices.ContainsFunc(roles, func(r Role) bool { return r.Name == name }) {
			faults.Add("roles", fault.Unknown, "unknown role %q", texts.Clip(name))
		}
	}
	return out, nil
}

func unique(list []string) []string {
	var out []string
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
