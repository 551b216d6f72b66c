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

// roles returns the rows of roles. The built-in one is stored nowhere, and no caller changes it.
func (m *Module) roles() []api.Operation {
	return crud.Rows(m.Kinds.Roles, crud.Options[people.Role]{
		Path: "/api/roles", Things: "Roles", Read: read(), Write: write(),
		Before: guarded(func(_ context.Context, _ *api.Call, r *people.Role) (rights, error) {
			return rights{permissions: r.Permissions, teams: []string{}}, nil
		}),
		Keeper: &crud.Keeper[people.Role]{
			Insert: func(ctx context.Context, c *api.Call, r *people.Role) (*people.Role, error) {
				return m.People.CreateRole(ctx, c.Tenant, *r)
			},
			Update: func(ctx context.Context, c *api.Call, r *people.Role, change func(*people.Role) error) (*people.Role, error) {
				return m.People.UpdateRole(ctx, c.Tenant, r, change)
			},
			Delete: func(ctx context.Context, c *api.Call, r *people.Role) error {
				return m.People.DeleteRole(ctx, c.Tenant, r.Name)
			},
		},
	})
}

// teams returns the rows of teams. Who is limited to teams changes those alone.
func (m *Module) teams() []api.Operation {
	return crud.Rows(m.Kinds.Teams, crud.Options[people.Team]{
		Path: "/api/teams", Things: "Teams", Read: read(), Write: write(), Search: []string{"name"},
		Before: guarded(func(_ context.Context, _ *api.Call, t *people.Team) (rights, error) {
			if t.ID == "" { // a new one, in which nobody is
				return rights{teams: []string{}}, nil
			}
			return rights{teams: []string{t.ID}}, nil
		}),
		Keeper: &crud.Keeper[people.Team]{
			Insert: func(ctx context.Context, c *api.Call, t *people.Team) (*people.Team, error) {
				return m.People.CreateTeam(ctx, c.Tenant, *t)
			},
			Update: func(ctx context.Context, c *api.Call, t *people.Team, change func(*people.Team) error) (*people.Team, error) {
				return m.People.UpdateTeam(ctx, c.Tenant, t, change)
			},
			Delete: func(ctx context.Context, c *api.Call, t *people.Team) error {
				return m.People.DeleteTeam(ctx, c.Tenant, t.ID)
			},
		},
	})
}

// accounts returns the rows of service accounts.
func (m *Module) accounts() []api.Operation {
	return crud.Rows(m.Kinds.Accounts, crud.Options[people.Account]{
		Path: "/api/service-accounts", Things: "Service Accounts", Read: read(), Write: write(), Search: []string{"name"},
		Before: guarded(func(_ context.Context, _ *api.Call, a *people.Account) (rights, error) {
			return of(a.Permissions, a.Teams), nil
		}),
		Keeper: &crud.Keeper[people.Account]{
			Insert: func(ctx context.Context, c *api.Call, a *people.Account) (*people.Account, error) {
				made, err := m.People.CreateAccount(ctx, c.Tenant, *a)
				if err == nil && !a.Active { // nothing of it was usable until now
					made, err = m.People.UpdateAccount(ctx, c.Tenant, made.ID, func(made *people.Account) error { made.Active = false; return nil })
				}
				return made, err
			},
			Update: func(ctx context.Context, c *api.Call, a *people.Account, change func(*people.Account) error) (*people.Account, error) {
				return m.People.UpdateAccount(ctx, c.Tenant, a.ID, change)
			},
			Delete: func(ctx context.Context, c *api.Call, a *people.Account) error {
				_, err := m.Keys.RemoveAccount(ctx, c.Tenant, a.ID)
				return err
			},
		},
	})
}
