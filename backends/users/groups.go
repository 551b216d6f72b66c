package users

import (
	"context"

	"tenantry/backends/api"
	"tenantry/backends/crud"
	"tenantry/tenants"
	"tenantry/tenants/people"
)

func read() api.Rule  { return api.NeedsOneOf(tenants.ViewUsers, tenants.ManageUsers) }
func write() api.Rule { return api.Needs(tenants.ManageUsers) }

// roles returns the rows of roles. The built-in one is stored nowhere, and no caller changes it. Who is limited
// to teams changes none that somebody may hold who is not.
func (m *Module) roles() []api.Operation {
	return crud.Rows(m.Kinds.Roles, crud.Options[people.Role]{
		Path: "/api/roles", Things: "Roles", Read: read(), Write: write(), Search: []string{"name"},
		Before: guarded(m, func(_ context.Context, _ *api.Call, r *people.Role) (rights, error) {
			held := rights{permissions: r.Permissions}
			if r.ID == "" {
				held.teams = []string{}
			}
			return held, nil
		}),
		Keeper: keeper(m.People.CreateRole, m.People.UpdateRole, m.People.DeleteRole),
	})
}

// teams returns the rows of teams. Who is limited to teams changes those alone.
func (m *Module) teams() []api.Operation {
	return crud.Rows(m.Kinds.Teams, crud.Options[people.Team]{
		Path: "/api/teams", Things: "Teams", Read: read(), Write: write(), Search: []string{"name"},
		Before: guarded(m, func(_ context.Context, _ *api.Call, t *people.Team) (rights, error) {
			if t.ID == "" { // a new one, in which nobody is
				return rights{teams: []string{}}, nil
			}
			return rights{teams: []string{t.ID}}, nil
		}),
		Keeper: keeper(m.People.CreateTeam, m.People.UpdateTeam, m.People.DeleteTeam),
	})
}

// accounts returns the rows of service accounts.
func (m *Module) accounts() []api.Operation {
	return crud.Rows(m.Kinds.Accounts, crud.Options[people.Account]{
		Path: "/api/service-accounts", Things: "Service Accounts", Read: read(), Write: write(), Search: []string{"name"},
		Before: guarded(m, func(_ context.Context, _ *api.Call, a *people.Account) (rights, error) {
			held := of(a.Permissions, a.Teams)
			held.active = a.Active
			return held, nil
		}),
		Keeper: keeper(m.People.CreateAccount, m.People.UpdateAccount, func(ctx context.Context, t *tenants.Tenant, a *people.Account) error {
			_, err := m.Keys.RemoveAccount(ctx, t, a)
			return err
		}),
	})
}

// keeper makes one of what the service of people does.
func keeper[T any](
	create func(context.Context, *tenants.Tenant, T) (*T, error),
	update func(context.Context, *tenants.Tenant, *T, func(*T) error) (*T, error),
	remove func(context.Context, *tenants.Tenant, *T) error,
) *crud.Keeper[T] {
	return &crud.Keeper[T]{
		Insert: func(ctx context.Context, c *api.Call, rec *T) (*T, error) { return create(ctx, c.Tenant, *rec) },
		Update: func(ctx context.Context, c *api.Call, rec *T, change func(*T) error) (*T, error) {
			return update(ctx, c.Tenant, rec, change)
		},
		Delete: func(ctx context.Context, c *api.Call, rec *T) error { return remove(ctx, c.Tenant, rec) },
	}
}
