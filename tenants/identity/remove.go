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

// remove deletes a record that rights hang on, as it was read, where free finds nothing that holds it, and makes cached
// identities void. It is asked again afterwards, when nobody is given the record any more: where somebody was meanwhile
// it is put back. Errors: those of free, store.ErrConflict where it was changed or deleted since.
func remove[T any](ctx context.Context, s *Service, t *tenants.Tenant, of *record.Of[T], rec *T, free func() error) error {
	if err := free(); err != nil {
		return err
	}
	in := of.In(t.People())
	err := in.Delete(ctx, rec)
	if err == nil {
		if err = free(); err != nil {
			err = errors.Join(err, in.Insert(ctx, rec))
		}
	}
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", strings.ReplaceAll(of.Name, "_", " "), texts.Clip(of.Identity(rec)), err)
	}
	return s.bump(ctx, t)
}

// Role returns the role of that name or ID.
func (s *Service) Role(ctx context.Context, t *tenants.Tenant, ref string) (*Role, error) {
	if ref == AdminRole {
		role := BuiltIn(t)
		return &role, nil
	}
	if ref == "" {
		return nil, fmt.Errorf("roles: %w", store.ErrNotFound)
	}
	return s.kinds.Roles.In(t.People()).First(ctx, store.Query{Filter: byIDOr("name", ref)})
}

// byIDOr finds a record by its ID, or by a field's value where ref is no ID.
func byIDOr(field, ref string) store.Filter {
	if store.ValidID(ref) {
		return store.AnyOf(store.Eq("id", ref), store.Eq(field, ref))
	}
	return store.Eq(field, ref)
}

// DeleteRole deletes a role that nobody has; see remove. Errors: *fault.Error where it is built in or somebody has it.
func (s *Service) DeleteRole(ctx context.Context, t *tenants.Tenant, r *Role) error {
	if r.Name == AdminRole {
		return fault.One("name", fault.Forbidden, "the role %s is built in and cannot be deleted", AdminRole)
	}
	return remove(ctx, s, t, s.kinds.Roles, r, func() error { return s.unheld(ctx, t, r.Name, "take it from them first") })
}

// unheld refuses a role that people have. Errors: *fault.Error, store.ErrUnavailable.
func (s *Service) unheld(ctx context.Context, t *tenants.Tenant, role, advice string) error {
	holders, err := s.usersWith(ctx, t, func(u *User) bool { return slices.Contains(u.Roles, role) })
	if err == nil && holders != "" {
		err = fault.One("name", fault.Forbidden, "the role %s is held by %s; %s", role, holders, advice)
	}
	return err
}

// usersWith names the users that have it, a few of them by number, "" where there are none.
func (s *Service) usersWith(ctx context.Context, t *tenants.Tenant, has func(*User) bool) (string, error) {
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

// Team returns the team of that ID, or of that name where just one has it. Errors:
// store.ErrNotFound, *fault.Error where several have the name.
func (s *Service) Team(ctx context.Context, t *tenants.Tenant, ref string) (*Team, error) {
	if ref == "" {
		return nil, fmt.Errorf("teams: %w", store.ErrNotFound)
	}
	found, err := s.kinds.Teams.In(t.People()).Find(ctx, store.Query{Filter: byIDOr("name", ref), Limit: 2})
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

// DeleteTeam deletes a team that nothing refers to, no person, no service account, no
// record; see remove. Without a limit that names it a caller could see more, and records that bear a
// team which is not there could not be imported anywhere. Errors: *fault.Error
// where something refers to it.
func (s *Service) DeleteTeam(ctx context.Context, t *tenants.Tenant, team *Team) error {
	return remove(ctx, s, t, s.kinds.Teams, team, func() error { return s.unlimiting(ctx, t, team) })
}

// unlimiting refuses a team that something refers to. Errors: *fault.Error, store.ErrUnavailable.
func (s *Service) unlimiting(ctx context.Context, t *tenants.Tenant, team *Team) error {
	var faults fault.List
	holders, err := s.usersWith(ctx, t, func(u *User) bool { return slices.Contains(u.Teams, team.ID) })
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
		faults.Add("team", fault.Forbidden, "it is that of records (%d), deleted ones included", records)
	}
	return faults.Err()
}
