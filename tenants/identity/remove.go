package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/tenants"
)

// remove deletes a record that rights depend on, at the revision read, and invalidates cached identities. check must
// find nothing that refers to the record. It runs before the deletion and again after it, when no new references can be
// made; if it fails then, the record is inserted again. Errors: those of check, store.ErrConflict if the record was
// changed or deleted since it was read.
func remove[T any](
	ctx context.Context, s *Service, t *tenants.Tenant, of *record.Of[T], rec *T, check func() error,
) error {
	if err := check(); err != nil {
		return err
	}
	in := of.In(t.People())
	err := in.Delete(ctx, rec)
	if err == nil {
		if err = check(); err != nil {
			err = errors.Join(err, in.Insert(ctx, rec))
		}
	}
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", strings.ReplaceAll(of.Name, "_", " "), texts.Clip(of.Identity(rec)), err)
	}
	return s.bump(ctx, t)
}

// Role returns the role with that name or ID.
func (s *Service) Role(ctx context.Context, t *tenants.Tenant, ref string) (*Role, error) {
	if ref == AdminRole {
		role := BuiltIn(t)
		return &role, nil
	}
	if ref == "" {
		return nil, fmt.Errorf("roles: %w", store.ErrNotFound)
	}
	return s.kinds.Roles.In(t.People()).First(ctx, store.Query{Filter: byIDOrField("name", ref)})
}

// byIDOrField matches a record by its ID or by a field's value, and by the value alone if ref is not an ID.
func byIDOrField(field, ref string) store.Filter {
	if store.ValidID(ref) {
		return store.AnyOf(store.Eq("id", ref), store.Eq(field, ref))
	}
	return store.Eq(field, ref)
}

// DeleteRole deletes a role that nobody holds; see remove. Error: *fault.Error if the role is built in or a user holds
// it.
func (s *Service) DeleteRole(ctx context.Context, t *tenants.Tenant, r *Role) error {
	if r.Name == AdminRole {
		return fault.One("name", fault.Forbidden, "the role %s is built in and cannot be deleted", AdminRole)
	}
	return remove(ctx, s, t, s.kinds.Roles, r, func() error {
		return s.refuseHeld(ctx, t, r.Name, "take it from them first")
	})
}

// refuseHeld returns an error if users hold the role. Errors: *fault.Error, store.ErrUnavailable.
func (s *Service) refuseHeld(ctx context.Context, t *tenants.Tenant, role, advice string) error {
	holders, err := s.describeUsers(ctx, t, func(u *User) bool { return slices.Contains(u.Roles, role) })
	if err == nil && holders != "" {
		err = fault.One("name", fault.Forbidden, "the role %s is held by %s; %s", role, holders, advice)
	}
	return err
}

// describeUsers returns a text about the users for whom has returns true, with the first numbers, or "" if there are
// none.
func (s *Service) describeUsers(ctx context.Context, t *tenants.Tenant, has func(*User) bool) (string, error) {
	text, n := "", 0
	err := s.kinds.Users.In(t.People()).Each(ctx, store.Filter{}, store.Either, func(u *User) error {
		const shown = 5
		if !has(u) {
			return nil
		}
		if n++; n <= shown {
			text += fmt.Sprintf(", %d", u.UID)
		}
		return nil
	})
	switch {
	case err != nil || n == 0:
		return "", err
	case n == 1:
		return "user " + text[2:], nil
	}
	return fmt.Sprintf("%d users (%s)", n, text[2:]), nil
}

// Team returns the team with that ID, or with that name if it is the only one. Errors: store.ErrNotFound, *fault.Error
// if several have the name.
func (s *Service) Team(ctx context.Context, t *tenants.Tenant, ref string) (*Team, error) {
	if ref == "" {
		return nil, fmt.Errorf("teams: %w", store.ErrNotFound)
	}
	found, err := s.kinds.Teams.In(t.People()).Find(ctx, store.Query{Filter: byIDOrField("name", ref), Limit: 2})
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fmt.Errorf("teams: %w", store.ErrNotFound)
	case len(found) > 1:
		var faults fault.List
		faults.Add("team", fault.Format, "several teams are named %q; name one by its identifier", texts.Clip(ref))
		return nil, faults.Err()
	}
	return &found[0], nil
}

// DeleteTeam deletes a team to which no user, service account or record refers; see remove. Otherwise a caller that is
// limited to this team alone would see more, and records of the team could not be imported anywhere. Error:
// *fault.Error if something refers to the team.
func (s *Service) DeleteTeam(ctx context.Context, t *tenants.Tenant, team *Team) error {
	return remove(ctx, s, t, s.kinds.Teams, team, func() error { return s.refuseReferenced(ctx, t, team) })
}

// refuseReferenced returns an error if something refers to the team. Errors: *fault.Error, store.ErrUnavailable.
func (s *Service) refuseReferenced(ctx context.Context, t *tenants.Tenant, team *Team) error {
	var faults fault.List
	holders, err := s.describeUsers(ctx, t, func(u *User) bool { return slices.Contains(u.Teams, team.ID) })
	if err != nil {
		return err
	}
	if holders != "" {
		faults.Add("team", fault.Forbidden, "it limits %s", holders)
	}
	accounts := 0
	err = s.kinds.Accounts.In(t.People()).Each(ctx, store.Filter{}, store.Either, func(a *Account) error {
		if slices.Contains(a.Teams, team.ID) {
			accounts++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if accounts > 0 {
		faults.Add("team", fault.Forbidden, "it limits service accounts (%d)", accounts)
	}
	records, err := t.Workspace().CountTeam(ctx, team.ID)
	if err != nil {
		return err
	}
	if records > 0 {
		faults.Add("team", fault.Forbidden, "records belong to it (%d, including deleted ones)", records)
	}
	return faults.Err()
}
