package control

import (
	"context"
	"strconv"
	"strings"

	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// Account is a service account as commands show it.
type Account struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Permissions []string `json:"permissions"`
	Teams       []string `json:"teams"` // empty: not limited to teams
	Active      bool     `json:"active"`
}

// Role is a named set of permissions as commands show it.
type Role struct {
	Name        string   `json:"name"`
	Label       string   `json:"label"`
	Permissions []string `json:"permissions"`
}

// Team is a team as commands show it.
type Team struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// New begins what is made.
type New struct {
	Org  string `json:"org" rule:"ref=organization"`
	Name string `json:"name" doc:"its <name>"`
}

// Ref names a service account, a role or a team, by identifier or name.
type Ref struct {
	Org string `json:"org" rule:"ref=organization"`
	ID  string `json:"ref" arg:"its name or identifier"`
}

func (r Ref) named() Ref { return r }

// AccountFields say what a service account shall be.
type AccountFields struct {
	Permissions []string `json:"permissions,omitzero" flag:"permission" doc:"a <permission> it holds; may be repeated"`
	Teams       []string `json:"teams,omitzero" flag:"team" doc:"the <id> of a team it is limited to; may be repeated"`
	Active      *bool    `json:"active,omitempty" doc:"whether its keys are accepted (default true)"`
}

// RoleFields say what a role shall be.
type RoleFields struct {
	Label       string   `json:"label,omitempty" doc:"the <label> people read (default the name)"`
	Permissions []string `json:"permissions,omitzero" flag:"permission" doc:"a <permission> it holds; may be repeated"`
}

// NewAccount is a service account to be made.
type NewAccount struct {
	New
	AccountFields
}

// NewRole is a role to be made.
type NewRole struct {
	New
	RoleFields
}

// AccountChange changes a service account; what is absent stays as it is.
type AccountChange struct {
	TeamChange
	AccountFields
}

// RoleChange changes a role, but for its name, by which people hold it.
type RoleChange struct {
	Ref
	RoleFields
}

// TeamChange changes a team.
type TeamChange struct {
	Ref
	Name string `json:"name,omitempty" doc:"its new <name>"`
}

// Deleted tells what was deleted, and how many keys ended with it.
type Deleted struct {
	Deleted string `json:"deleted"`
	Keys    int    `json:"keys_revoked"`
}

// things are the five commands of service accounts, roles or teams.
type things[T any] struct {
	name, one, table, gone string
	begins                 T                          // what is made, before its fields are set
	of                     func(*T) (id, name string) // the id is the one of audit logs
	create                 func(context.Context, *tenants.Tenant, T) (*T, error)
	find                   func(context.Context, *tenants.Tenant, string) (*T, error)
	list                   pager[T]
	update                 func(context.Context, *tenants.Tenant, *T, func(*T) error) (*T, error)
	remove                 func(context.Context, *call, *T) (keys int, err error)
}

func commandsOf[In any, Change interface{ named() Ref }, Out, T any](g things[T]) []Command {
	what := strings.TrimPrefix(g.one, "a ")
	named := func(ctx context.Context, c *call, r Ref) (*T, error) {
		found, err := g.find(ctx, c.Tenant, r.ID)
		return found, reworded(err, CodeNotFound, "organization %[1]s has no %[2]s %[3]q; tenantry %[4]s list --org %[1]s shows those there are", r.Org, what, texts.Clip(r.ID), g.name)
	}
	done := func(c *call, wanted, stored *T, err error) (Out, error) {
		if err == nil {
			id, _ := g.of(stored)
			c.Note(g.name, id)
		}
		_, name := g.of(wanted)
		return shown[Out](stored, reworded(err, CodeDuplicate, "organization %s has a %s named %q already", c.Tenant.Org.Slug, what, texts.Clip(name)))
	}
	return []Command{
		command(Command{Line: g.name + " create --org SLUG --name NAME", Short: "Make " + g.one, Audit: operation.AuditAlways, Table: g.table, Wide: true},
			func(ctx context.Context, c *call, in In) (Out, error) {
				n := g.begins
				set(c, &n, &in)
				made, err := g.create(ctx, c.Tenant, n)
				return done(c, &n, made, err)
			}),
		command(Command{Line: g.name + " list --org SLUG", Short: "List them, by name", Table: g.table}, list[Out](g.list)),
		command(Command{Line: g.name + " show NAME --org SLUG", Short: "Show " + g.one, Table: g.table, Wide: true}, func(ctx context.Context, c *call, in Ref) (Out, error) {
			return shown[Out](named(ctx, c, in))
		}),
		command(Command{
			Line: g.name + " update NAME --org SLUG", Short: "Change " + g.one + "; what no flag names stays as it is", Audit: operation.AuditAlways, Table: g.table, Wide: true,
			Nothing: "say what to change; tenantry " + g.name + " update --help names the flags",
		}, func(ctx context.Context, c *call, in Change) (Out, error) {
			v, err := named(ctx, c, in.named())
			if err != nil {
				return *new(Out), err
			}
			var wanted T
			updated, err := g.update(ctx, c.Tenant, v, func(v *T) error {
				c.changed(set(c, v, &in))
				wanted = *v
				return nil
			})
			return done(c, &wanted, updated, err)
		}),
		command(Command{Line: g.name + " delete NAME --org SLUG", Short: g.gone, Audit: operation.AuditAlways, Table: "deleted, keys revoked=keys_revoked"},
			func(ctx context.Context, c *call, in Ref) (out Deleted, err error) {
				v, err := named(ctx, c, in)
				if err == nil {
					out.Keys, err = g.remove(ctx, c, v)
				}
				if err == nil {
					id, name := g.of(v)
					c.Note(g.name, id)
					out.Deleted = name
				}
				return out, err
			}),
	}
}

func (s *Server) accounts() Group {
	return Group{Name: "account", Short: "Make and change service accounts, which own API keys", Commands: commandsOf[NewAccount, AccountChange, Account](things[identity.Account]{
		name: "account", one: "a service account", table: "id, name, permissions, teams, active", gone: "Delete a service account; its keys end at once",
		of:     func(a *identity.Account) (string, string) { return a.ID, a.Name },
		begins: identity.Account{Active: true}, create: s.People.CreateAccount, find: s.People.FindAccount, list: s.People.Accounts, update: s.People.UpdateAccount,
		remove: func(ctx context.Context, c *call, a *identity.Account) (int, error) {
			n, err := s.Keys.RemoveAccount(ctx, c.Tenant, a)
			c.Note("keys_revoked", strconv.Itoa(n))
			return n, err
		},
	})}
}

func (s *Server) roles() Group {
	return Group{Name: "role", Short: "Make and change roles, which people hold", Commands: commandsOf[NewRole, RoleChange, Role](things[identity.Role]{
		name: "role", one: "a role", table: "name, label, permissions", gone: "Delete a role that nothing uses",
		of:     func(r *identity.Role) (string, string) { return r.Name, r.Name },
		create: s.People.CreateRole, find: s.People.Role, list: paged(s.People.Roles), update: s.People.UpdateRole,
		remove: func(ctx context.Context, c *call, r *identity.Role) (int, error) {
			return 0, s.People.DeleteRole(ctx, c.Tenant, r)
		},
	})}
}

func (s *Server) teams() Group {
	return Group{Name: "team", Short: "Make and change teams", Commands: commandsOf[New, TeamChange, Team](things[identity.Team]{
		name: "team", one: "a team", table: "id, name", gone: "Delete a team that nothing uses",
		of:     func(t *identity.Team) (string, string) { return t.ID, t.Name },
		create: s.People.CreateTeam, find: s.People.Team, list: paged(s.People.Teams), update: s.People.UpdateTeam,
		remove: func(ctx context.Context, c *call, t *identity.Team) (int, error) {
			return 0, s.People.DeleteTeam(ctx, c.Tenant, t)
		},
	})}
}

// paged cuts a whole list to the page asked for.
func paged[T any](list func(context.Context, *tenants.Tenant) ([]T, error)) pager[T] {
	return func(ctx context.Context, t *tenants.Tenant, p identity.Page) ([]T, int64, error) {
		all, err := list(ctx, t)
		from := min(max(p.Offset, 0), len(all))
		return all[from:min(from+min(p.Limit, identity.MaxLimit), len(all))], int64(len(all)), err
	}
}
