package people

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// adminRole returns the built-in role.
func adminRole(t *tenants.Tenant) Role {
	return Role{OrgID: t.Org.OrgID, Name: AdminRole, Label: AdminLabel, Permissions: tenants.AllPermissions()}
}

// rolesNamed returns those of the named roles that exist.
func (s *Service) rolesNamed(ctx context.Context, t *tenants.Tenant, names []string) ([]Role, error) {
	var out []Role
	if slices.Contains(names, AdminRole) {
		out = append(out, adminRole(t))
	}
	stored := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == AdminRole || name == "" })
	if len(stored) == 0 {
		return out, nil
	}
	found, err := s.kinds.Roles.In(t.People()).Find(ctx, store.Query{Filter: store.In("name", stored...)})
	return append(out, found...), err
}

// Roles returns every role in order of its name, the built-in one first.
func (s *Service) Roles(ctx context.Context, t *tenants.Tenant) ([]Role, error) {
	found, err := s.kinds.Roles.In(t.People()).Find(ctx, store.Query{Sort: []store.Order{store.Asc("name")}})
	return append([]Role{adminRole(t)}, found...), err
}

// PutRole stores the role of that name, new or changed; where nothing changes no role is
// written, but the announcement is repeated. The built-in role is taken as it is or not
// at all.
func (s *Service) PutRole(ctx context.Context, t *tenants.Tenant, r Role) (*Role, error) {
	if err := s.hold(ctx, t, s.kinds.Roles.Resource, &r, nil); err != nil {
		return nil, fmt.Errorf("role: %w", err)
	}
	if r.Name == AdminRole {
		builtIn := adminRole(t)
		return &builtIn, nil
	}
	isNew := true // then nobody has it yet
	c := s.kinds.Roles.In(t.People())
	stored, err := put(ctx, c, store.Eq("name", r.Name), &r, func(have *Role) error {
		isNew = false
		if have.Label == r.Label && slices.Equal(have.Permissions, r.Permissions) {
			return errUnchanged
		}
		have.Label, have.Permissions = r.Label, r.Permissions
		return nil
	})
	if err == nil && !isNew {
		err = s.bump(ctx, t)
	}
	return stored, err
}

// Teams returns every team in order of its name.
func (s *Service) Teams(ctx context.Context, t *tenants.Tenant) ([]Team, error) {
	return s.kinds.Teams.In(t.People()).Find(ctx, store.Query{Sort: []store.Order{store.Asc("name")}})
}

// PutTeam stores the team of that ID, new or changed; without an ID it makes one.
func (s *Service) PutTeam(ctx context.Context, t *tenants.Tenant, team Team) (*Team, error) {
	if err := s.hold(ctx, t, s.kinds.Teams.Resource, &team, nil); err != nil {
		return nil, fmt.Errorf("team: %w", err)
	}
	c := s.kinds.Teams.In(t.People())
	if team.ID == "" {
		err := c.Insert(ctx, &team)
		return &team, err
	}
	return put(ctx, c, store.Eq("id", team.ID), &team, func(have *Team) error {
		if have.Name == team.Name {
			return errUnchanged
		}
		have.Name = team.Name
		return nil
	})
}

// put changes the record that the filter finds, or inserts rec where there is none.
func put[T any](ctx context.Context, c store.Collection[T], filter store.Filter, rec *T, change func(*T) error) (*T, error) {
	insert := func() error {
		fresh := *rec
		err := c.Insert(ctx, &fresh)
		if err == nil {
			*rec = fresh
		}
		return err
	}
	found, err := c.First(ctx, store.Query{Filter: filter})
	if errors.Is(err, store.ErrNotFound) {
		err = insert()
		var dup *store.DuplicateError
		if !errors.As(err, &dup) {
			return rec, err
		}
		found, err = c.First(ctx, store.Query{Filter: filter}) // somebody else was first
	}
	if err != nil {
		return nil, err
	}
	id := any(found).(interface{ StoreMeta() *store.Meta }).StoreMeta().ID
	stored, err := c.Update(ctx, id, change)
	if errors.Is(err, errUnchanged) {
		return found, nil
	}
	return stored, err
}
