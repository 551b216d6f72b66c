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

// readForKeys is the rule for reading accounts and teams, which callers who manage keys need, too.
func readForKeys() operation.Rule {
	return operation.NeedsOneOf(tenants.ViewUsers, tenants.ManageUsers, tenants.ManageKeys)
}

// Role is a role as callers see it.
type Role struct {
	Name        string               `json:"name" doc:"Name by which users are given the role."`
	Label       string               `json:"label" doc:"Label for people."`
	Permissions []tenants.Permission `json:"permissions" doc:"The permissions of its holders."`
	CreatedAt   string               `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	BuiltIn     bool                 `json:"built_in" doc:"Whether the role is built in and cannot be changed: admin, which holds every permission and may make the calls reserved for administrators. Unfiltered lists begin with it in any order."`
}

// Complete sets whether the role is built in.
func (r *Role) Complete(rec any) { r.BuiltIn = rec.(*identity.Role).Name == identity.AdminRole }

// roles returns the rows of roles. The built-in role is not stored and cannot be changed. A caller who is limited to
// teams may create roles but not change them, because their holders may not be limited.
func (m *Module) roles() []operation.Row {
	builtIn := identity.BuiltIn(&tenants.Tenant{}) // the rows set when it was created
	guard := guarded(m, func(_ context.Context, _ *operation.Call, r *identity.Role) (rights, error) {
		held := rights{permissions: r.Permissions}
		if r.ID == "" {
			held.teams = []string{}
		}
		return held, nil
	})
	return crud.Rows(m.Kinds.Roles.Resource, crud.Options{
		Path: "/api/roles", Things: "Roles", Read: read(), Write: write(), Search: []string{
			"name", "label",
		}, Few: []string{"created_at"},
		BuiltIn: []any{&builtIn},
		Example: Role{
			Name: "editor", Label: "Editor", Permissions: []tenants.Permission{tenants.Contacts},
			CreatedAt: "2024-06-04T13:52:42.000Z",
		},
		Before: crud.Before(func(ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was *identity.Role) error {
			if was != nil && was.Name == identity.AdminRole {
				return fault.One(
					"name", fault.Forbidden, "the role %s is built in and cannot be changed or deleted",
					identity.AdminRole,
				)
			}
			return guard(ctx, c, need, rec, was)
		}),
		Keeper: crud.Keep(keeper(m.Kinds.Roles, m.People.CreateRole, m.People.UpdateRole, m.People.DeleteRole)),
	})
}

// teams returns the rows of teams. A caller who is limited to teams may change only these.
func (m *Module) teams() []operation.Row {
	return crud.Rows(m.Kinds.Teams.Resource, crud.Options{
		Path: "/api/teams", Things: "Teams", Read: readForKeys(), Write: write(), Search: []string{"name"}, Few: []string{"created_at"},
		Before: crud.Before(guarded(m, func(_ context.Context, _ *operation.Call, t *identity.Team) (rights, error) {
			if t.ID == "" { // a new team has no members
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
		Path: "/api/service-accounts", Things: "Service Accounts", Read: readForKeys(), Write: write(), Search: []string{"name"}, Few: []string{"created_at"},
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

// keeper makes a crud.Keeper from functions of the identity service.
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

// refers notes dangling references as the identity service does.
func refers[T any](of *record.Of[T]) func(context.Context, *operation.Call, *T, *fault.List) error {
	return func(ctx context.Context, c *operation.Call, rec *T, errs *fault.List) error {
		return identity.CheckReferences(ctx, c.Tenant, &store.Preconditions{}, of.Resource, rec, errs)
	}
}
