package people

import (
	"context"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

func read() operation.Rule  { return operation.NeedsOneOf(tenants.ViewUsers, tenants.ManageUsers) }
func write() operation.Rule { return operation.Needs(tenants.ManageUsers) }

// named is of what keys are made for, or narrowed to.
func named() operation.Rule {
	return operation.NeedsOneOf(tenants.ViewUsers, tenants.ManageUsers, tenants.ManageKeys)
}

// Role is a role as callers see it.
type Role struct {
	Name        string               `json:"name" doc:"By which people hold the role."`
	Label       string               `json:"label" doc:"What people read."`
	Permissions []tenants.Permission `json:"permissions" doc:"What whoever has the role may do."`
	CreatedAt   string               `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	BuiltIn     bool                 `json:"built_in" doc:"Whether every organization has it, and nobody changes it: admin, which holds every permission and the calls that are administrators' alone. It comes first in lists that nothing narrows, whatever their order."`
}

// Complete adds whether it is built in.
func (r *Role) Complete(rec any) { r.BuiltIn = rec.(*identity.Role).Name == identity.AdminRole }

// roles returns the rows of roles. The built-in one is stored nowhere, and no caller changes it. Who is limited
// to teams changes none that somebody may hold who is not.
func (m *Module) roles() []operation.Row {
	guard := guarded(m, func(_ context.Context, _ *operation.Call, r *identity.Role) (rights, error) {
		held := rights{permissions: r.Permissions}
		if r.ID == "" {
			held.teams = []string{}
		}
		return held, nil
	})
	return crud.Rows(m.Kinds.Roles.Resource, crud.Options{
		Path: "/api/roles", Things: "Roles", Read: read(), Write: write(), Search: []string{"name", "label"}, Few: []string{"created_at"},
		BuiltIn: crud.BuiltIn(func(c *operation.Call) []identity.Role { return []identity.Role{identity.BuiltIn(c.Tenant)} }),
		Example: Role{Name: "editor", Label: "Editor", Permissions: []tenants.Permission{tenants.Contacts}, CreatedAt: "2024-06-04T13:52:42.000Z"},
		Before: crud.Before(func(ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was *identity.Role) error {
			if was != nil && was.Name == identity.AdminRole {
				return fault.One("name", fault.Forbidden, "the role %s is built in: nobody changes or deletes it", identity.AdminRole)
			}
			return guard(ctx, c, need, rec, was)
		}),
		Keeper: crud.Keep(keeper(m.Kinds.Roles, m.People.CreateRole, m.People.UpdateRole, m.People.DeleteRole)),
	})
}

// teams returns the rows of teams. Who is limited to teams changes those alone.
func (m *Module) teams() []operation.Row {
	return crud.Rows(m.Kinds.Teams.Resource, crud.Options{
		Path: "/api/teams", Things: "Teams", Read: named(), Write: write(), Search: []string{"name"}, Few: []string{"created_at"},
		Before: crud.Before(guarded(m, func(_ context.Context, _ *operation.Call, t *identity.Team) (rights, error) {
			if t.ID == "" { // a new one, in which nobody is
				return rights{teams: []string{}}, nil
			}
			return rights{teams: []string{t.ID}}, nil
		})),
		Keeper: crud.Keep(keeper(m.Kinds.Teams, m.People.CreateTeam, m.People.UpdateTeam, m.People.DeleteTeam)),
	})
}

// accounts returns the rows of service accounts.
func (m *Module) accounts() []operation.Row {
	return crud.Rows(m.Kinds.Accounts.Resource, crud.Options{
		Path: "/api/service-accounts", Things: "Service Accounts", Read: named(), Write: write(), Search: []string{"name"}, Few: []string{"created_at"},
		Before: crud.Before(guarded(m, func(_ context.Context, _ *operation.Call, a *identity.Account) (rights, error) {
			held := of(a.Permissions, a.Teams)
			held.active = a.Active
			return held, nil
		})),
		Keeper: crud.Keep(keeper(m.Kinds.Accounts, m.People.CreateAccount, m.People.UpdateAccount, func(ctx context.Context, t *tenants.Tenant, a *identity.Account) error {
			_, err := m.Keys.RemoveAccount(ctx, t, a)
			return err
		})),
	})
}

// keeper makes one of what the service of people does.
func keeper[T any](
	of *record.Of[T],
	create func(context.Context, *tenants.Tenant, T) (*T, error),
	update func(context.Context, *tenants.Tenant, *T, func(*T) error) (*T, error),
	remove func(context.Context, *tenants.Tenant, *T) error,
) crud.Keeper[T] {
	return crud.Keeper[T]{
		Insert: func(ctx context.Context, c *operation.Call, rec *T) (*T, error) { return create(ctx, c.Tenant, *rec) },
		Update: func(ctx context.Context, c *operation.Call, rec *T, change func(*T) error) (*T, error) {
			return update(ctx, c.Tenant, rec, change)
		},
		Delete: func(ctx context.Context, c *operation.Call, rec *T) error { return remove(ctx, c.Tenant, rec) },
		Refers: refers(of),
	}
}

// refers looks for what a record refers to, as the service of people does.
func refers[T any](of *record.Of[T]) func(context.Context, *operation.Call, *T, *fault.List) error {
	return func(ctx context.Context, c *operation.Call, rec *T, errs *fault.List) error {
		return identity.CheckReferences(ctx, c.Tenant, &store.Preconditions{}, of.Resource, rec, errs)
	}
}
