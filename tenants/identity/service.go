package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tenantry/backends/record"
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
	q := store.Query{Sort: []store.Order{store.Asc(sort)}, Limit: p.Limit, Offset: max(p.Offset, 0), LeaveOut: true}
	if q.Limit <= 0 {
		q.Limit = DefaultLimit
	}
	q.Limit = min(q.Limit, MaxLimit)
	return q
}

// List returns the records of a part of a list in order of a field, and how many there are in all.
func List[T any](ctx context.Context, c store.Collection[T], p Page, sort string) ([]T, int64, error) {
	total, err := c.Count(ctx, store.Filter{})
	if err != nil {
		return nil, 0, err
	}
	found, err := c.Find(ctx, p.query(sort))
	return found, total, err
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
	o.Directory.OnRemove(s.purged)
	return s
}

func (s *Service) purged(people *store.Workspace) []store.Purger {
	return []store.Purger{s.kinds.Users.In(people), s.kinds.Roles.In(people), s.kinds.Teams.In(people), s.kinds.Accounts.In(people)}
}

// bump makes cached identities void after a change that is stored already.
func (s *Service) bump(ctx context.Context, t *tenants.Tenant) error {
	if err := s.dir.BumpAccess(ctx, t.Org.OrgID); err != nil {
		return fmt.Errorf("the change is stored, but may not hold everywhere yet; repeat it: %w", err)
	}
	return nil
}

// checkPermissions notes unknown permissions and returns the list without repetitions in
// the fixed order.
func checkPermissions(faults *fault.List, given []tenants.Permission) []tenants.Permission {
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

// hold checks a record as an import does, and that there is what it refers to. Fields that are as in
// was, the record as it is stored, are taken; of a new one was is nil. It requires that what the record refers to is
// unchanged. Errors: *fault.Error, store.ErrUnavailable.
func (s *Service) hold(ctx context.Context, t *tenants.Tenant, need *store.Preconditions, r *record.Resource, rec, was any) error {
	var faults fault.List
	r.Hold(&record.Checking{Errs: &faults, Known: &record.Known{}}, rec, was)
	if err := Refers(ctx, t, need, r, rec, &faults); err != nil {
		return err
	}
	return faults.Err()
}

// Refers notes what the record refers to that is not there, but for fields of which something is noted already, and
// requires that what is there is unchanged.
// Errors: store.ErrUnavailable.
func Refers(ctx context.Context, t *tenants.Tenant, need *store.Preconditions, r *record.Resource, rec any, faults *fault.List) error {
	for _, ref := range r.References(rec) {
		if slices.ContainsFunc(*faults, func(f fault.Fault) bool { return f.Field == ref.Field }) { // there may be too many to ask for
			continue
		}
		lacking, there, err := ref.Target.FindMissing(ctx, t.Workspace(), t.People(), ref.IDs)
		if err != nil {
			return err
		}
		need.Require(there...)
		for _, id := range lacking {
			if id != AdminRole { // which is built in
				faults.Add(ref.Field, fault.Unknown, "unknown %s %q", ref.Target.Name, texts.Clip(id))
			}
		}
	}
	return nil
}
