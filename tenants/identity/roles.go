package identity

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/tenants"
)

// BuiltIn returns the built-in role, which is not stored.
func BuiltIn(t *tenants.Tenant) Role {
	return Role{Meta: store.Meta{CreatedAt: t.Org.CreatedAt}, OrgID: t.Org.OrgID, Name: AdminRole, Label: AdminLabel,
		Permissions: tenants.AllPermissions()}
}

// rolesNamed returns the roles with those names that exist.
func (s *Service) rolesNamed(ctx context.Context, t *tenants.Tenant, names []string) ([]Role, error) {
	var out []Role
	if slices.Contains(names, AdminRole) {
		out = append(out, BuiltIn(t))
	}
	stored := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == AdminRole || name == "" })
	if len(stored) == 0 {
		return out, nil
	}
	found, err := s.kinds.Roles.In(t.People()).Find(ctx, store.Query{Filter: store.In("name", stored...)})
	return append(out, found...), err
}

// Roles returns every role in order of its name, after the built-in one.
func (s *Service) Roles(ctx context.Context, t *tenants.Tenant) ([]Role, error) {
	found, err := s.kinds.Roles.In(t.People()).Find(ctx, store.Query{Sort: []store.Order{store.Asc("name")},
		LeaveOut: true})
	return append([]Role{BuiltIn(t)}, found...), err
}

// CreateRole stores a new role. If the name is taken, the error is *store.DuplicateError.
func (s *Service) CreateRole(ctx context.Context, t *tenants.Tenant, r Role) (*Role, error) {
	b := t.People().Batch()
	err := s.validate(ctx, t, &b.Preconditions, s.kinds.Roles.Resource, &r, nil)
	if err == nil && r.Name == AdminRole {
		err = &store.DuplicateError{Kind: "roles", Fields: []string{"name"}}
	}
	if err == nil { // a new role must not take effect for users who hold its name from a deleted one: see remove
		if _, err = s.Role(ctx, t, r.Name); errors.Is(err, store.ErrNotFound) {
			err = s.refuseHeld(ctx, t, r.Name, "they would get the new role; take the name from them first")
		}
	}
	if err == nil {
		err = s.kinds.Roles.In(t.People()).StageInsert(b, &r)
	}
	if err == nil {
		err = b.Commit(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("create a role: %w", err)
	}
	return &r, nil
}

// UpdateRole changes label and permissions of the role by edit; see change. The built-in role cannot be changed.
func (s *Service) UpdateRole(ctx context.Context, t *tenants.Tenant, r *Role, edit func(*Role) error) (*Role, error) {
	if r.Name != AdminRole {
		return change(ctx, s, t, s.kinds.Roles, r.ID, edit)
	}
	wanted, builtIn := BuiltIn(t), BuiltIn(t)
	err := edit(&wanted)
	if err == nil {
		err = s.validate(ctx, t, &store.Preconditions{}, s.kinds.Roles.Resource, &wanted, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("role: %w", err)
	}
	return &builtIn, nil
}

// Teams returns every team in order of its name.
func (s *Service) Teams(ctx context.Context, t *tenants.Tenant) ([]Team, error) {
	return s.kinds.Teams.In(t.People()).Find(ctx, store.Query{Sort: []store.Order{store.Asc("name")}})
}

// CreateTeam stores a new team. Name is required.
func (s *Service) CreateTeam(ctx context.Context, t *tenants.Tenant, team Team) (*Team, error) {
	b := t.People().Batch()
	err := s.validate(ctx, t, &b.Preconditions, s.kinds.Teams.Resource, &team, nil)
	if err == nil {
		err = s.kinds.Teams.In(t.People()).StageInsert(b, &team)
	}
	if err == nil {
		err = b.Commit(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("create a team: %w", err)
	}
	return &team, nil
}

// UpdateTeam changes the name of the team by edit; see change.
func (s *Service) UpdateTeam(
	ctx context.Context, t *tenants.Tenant, team *Team, edit func(*Team) error,
) (*Team, error) {
	return change(ctx, s, t, s.kinds.Teams, team.ID, edit)
}

// change changes the record with that ID by edit, which may be called several times. Changes of the identifier and the
// revision are dropped. If nothing changes, no record is written. Cached identities become void in either case, because
// the call may repeat a change that was stored but not announced.
func change[T any](
	ctx context.Context, s *Service, t *tenants.Tenant, of *record.Of[T], id string, edit func(*T) error,
) (*T, error) {
	var same *T
	rec, err := of.In(t.People()).Revise(ctx, id, func(need *store.Preconditions, rec *T) error {
		was := *rec
		if err := edit(rec); err != nil {
			return err
		}
		*of.Meta(rec) = *of.Meta(&was)
		if err := s.validate(ctx, t, need, of.Resource, rec, &was); err != nil {
			return err
		}
		if same = nil; equal(rec, &was) {
			same = &was
			return errUnchanged
		}
		return nil
	}, nil)
	if same != nil && errors.Is(err, errUnchanged) {
		return same, s.bump(ctx, t)
	}
	if err != nil {
		return nil, fmt.Errorf("update %s %s: %w", strings.ReplaceAll(of.Name, "_", " "), texts.Clip(id), err)
	}
	return rec, s.bump(ctx, t)
}

// equal reports whether two records have the same stored form.
func equal(a, b any) bool {
	one, err := json.Marshal(a)
	other, otherErr := json.Marshal(b)
	return err == nil && otherErr == nil && bytes.Equal(one, other)
}
