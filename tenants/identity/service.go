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

// Page selects a part of a list. Limit 0 means DefaultLimit, and a higher Limit than MaxLimit means MaxLimit.
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

// List returns one page of records in order of a field, and the total number of records.
func List[T any](ctx context.Context, c store.Collection[T], p Page, sort string) ([]T, int64, error) {
	total, err := c.Count(ctx, store.Filter{})
	if err != nil {
		return nil, 0, err
	}
	found, err := c.Find(ctx, p.query(sort))
	return found, total, err
}

// Options configure a Service. All but Now are required.
type Options struct {
	Directory *tenants.Directory
	Kinds     Kinds
	Passwords *passwords.Hasher
	Now       func() time.Time // nil: time.Now
}

// Service manages the people of organizations. Before a method that changes rights returns, cached identities are void.
// It is safe for concurrent use.
//
// Methods that write may return *fault.Error with every fault, *store.DuplicateError, store.ErrConflict and
// store.ErrUnavailable. Methods that read may return store.ErrNotFound and store.ErrUnavailable.
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
	o.Directory.OnRemove(s.purgers)
	return s
}

func (s *Service) purgers(people *store.Workspace) []store.Purger {
	return []store.Purger{s.kinds.Users.In(people), s.kinds.Roles.In(people), s.kinds.Teams.In(people),
		s.kinds.Accounts.In(people)}
}

// bump invalidates cached identities after a change has been stored.
func (s *Service) bump(ctx context.Context, t *tenants.Tenant) error {
	if err := s.dir.BumpAccess(ctx, t.Org.OrgID); err != nil {
		return fmt.Errorf("the change is stored but may not be effective everywhere yet; repeat it: %w", err)
	}
	return nil
}

// checkPermissions notes unknown permissions, and returns the known ones without repetitions in the fixed order.
func checkPermissions(faults *fault.List, given []tenants.Permission) []tenants.Permission {
	all := tenants.AllPermissions()
	for _, p := range given {
		if !slices.Contains(all, p) {
			faults.Add("permissions", fault.Unknown, "unknown permission %q; there are: %s", texts.Clip(string(p)),
				JoinPermissions(all))
		}
	}
	return slices.DeleteFunc(all, func(p tenants.Permission) bool { return !slices.Contains(given, p) })
}

// JoinPermissions returns a list of permissions for messages.
func JoinPermissions(list []tenants.Permission) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = string(p)
	}
	return strings.Join(words, ", ")
}

// validate checks a record by the rules that also apply to imports, and that the records it refers to exist. Fields
// that are unchanged since was, the stored record, are accepted; was is nil for a new record. It adds the records
// referred to, as they were read, to the preconditions. Errors: *fault.Error, store.ErrUnavailable.
func (s *Service) validate(
	ctx context.Context, t *tenants.Tenant, need *store.Preconditions, r *record.Resource, rec, was any,
) error {
	var faults fault.List
	r.Hold(&record.Checking{Errs: &faults, Known: &record.Known{}}, rec, was)
	if err := CheckReferences(ctx, t, need, r, rec, &faults); err != nil {
		return err
	}
	return faults.Err()
}

// CheckReferences notes the references of a record to records that do not exist, except in fields that already have a
// fault. It adds the records that do exist to the preconditions. Error: store.ErrUnavailable.
func CheckReferences(
	ctx context.Context, t *tenants.Tenant, need *store.Preconditions, r *record.Resource, rec any, faults *fault.List,
) error {
	for _, ref := range r.References(rec) {
		// The fault may be that there are too many.
		if slices.ContainsFunc(*faults, func(f fault.Fault) bool { return f.Field == ref.Field }) {
			continue
		}
		lacking, there, err := ref.Target.FindMissing(ctx, t.Workspace(), t.People(), ref.IDs)
		if err != nil {
			return err
		}
		need.Require(there...)
		for _, id := range lacking {
			if id != AdminRole { // the built-in role is not stored
				faults.Add(ref.Field, fault.Unknown, "unknown %s %q", ref.Target.Name, texts.Clip(id))
			}
		}
	}
	return nil
}
