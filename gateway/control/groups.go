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

// New names a record to be made.
type New struct {
	Org  string `json:"org" rule:"ref=organization"`
	Name string `json:"name" doc:"its <name>"`
}

// Ref names a service account, a role or a team, by name or identifier.
type Ref struct {
	Org string `json:"org" rule:"ref=organization"`
	ID  string `json:"ref" arg:"its name or identifier"`
}

func (r Ref) named() Ref { return r }

// AccountFields are the fields of a service account that commands set.
type AccountFields struct {
	Permissions []string `json:"permissions,omitzero" flag:"permission" doc:"a <permission> it holds; may be repeated"`
	Teams       []string `json:"teams,omitzero" flag:"team" doc:"the <id> of a team it is limited to; may be repeated"`
	Active      *bool    `json:"active,omitempty" doc:"whether its keys are accepted (default true)"`
}

// RoleFields are the fields of a role that commands set.
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

// AccountChange changes a service account; absent fields stay as they are.
type AccountChange struct {
	TeamChange
	AccountFields
}

// RoleChange changes a role. Its name cannot change, because users refer to it.
type RoleChange struct {
	Ref
	RoleFields
}

// TeamChange changes a team.
type TeamChange struct {
	Ref
	Name string `json:"name,omitempty" doc:"its new <name>"`
}

// Deleted names a deleted record, and counts the keys that were revoked with it.
type Deleted struct {
	Deleted string `json:"deleted"`
	Keys    int    `json:"keys_revoked"`
}

// resourceCommands are the five commands of service accounts, roles or teams.
type resourceCommands[T any] struct {
	name, one, table, deleteShort string
	template                      T                          // a new record, before its fields are set
	idAndName                     func(*T) (id, name string) // the id is the one in audit logs
	create                        func(context.Context, *tenants.Tenant, T) (*T, error)
	find                          func(context.Context, *tenants.Tenant, string) (*T, error)
	list                          pager[T]
	update                        func(context.Context, *tenants.Tenant, *T, func(*T) error) (*T, error)
	remove                        func(context.Context, *call, *T) (keys int, err error)
}

func commandsOf[In any, Change interface{ named() Ref }, Out, T any](g resourceCommands[T]) []Command {
	what := strings.TrimPrefix(g.one, "a ")
	named := func(ctx context.Context, c *call, r Ref) (*T, error) {
		found, err := g.find(ctx, c.Tenant, r.ID)
		return found, withMessage(err, CodeNotFound,
			"organization %[1]s has no %[2]s %[3]q; tenantry %[4]s list --org %[1]s shows all of them",
			r.Org, what, texts.Clip(r.ID), g.name)
	}
	done := func(c *call, wanted, stored *T, err error) (Out, error) {
		if err == nil {
			id, _ := g.idAndName(stored)
			c.Note(g.name, id)
		}
		_, name := g.idAndName(wanted)
		return viewResult[Out](stored, withMessage(err, CodeDuplicate, "organization %s already has a %s named %q",
			c.Tenant.Org.Slug, what, texts.Clip(name)))
	}
	return []Command{
		command(Command{
			Line: g.name + " create --org SLUG --name NAME", Short: "Create " + g.one,
			Audit: operation.AuditAlways, Table: g.table, Wide: true,
		}, func(ctx context.Context, c *call, in In) (Out, error) {
			n := g.template
			apply(c, &n, &in)
			made, err := g.create(ctx, c.Tenant, n)
			return done(c, &n, made, err)
		}),
		command(Command{Line: g.name + " list --org SLUG", Short: "List them, by name", Table: g.table}, list[Out](g.list)),
		command(Command{
			Line: g.name + " show NAME --org SLUG", Short: "Show " + g.one, Table: g.table, Wide: true,
		}, func(ctx context.Context, c *call, in Ref) (Out, error) {
			return viewResult[Out](named(ctx, c, in))
		}),
		command(Command{
			Line: g.name + " update NAME --org SLUG", Short: "Update " + g.one + "; fields without a flag stay as they are",
			Audit: operation.AuditAlways, Table: g.table, Wide: true,
			Nothing: "say what to change; tenantry " + g.name + " update --help names the flags",
		}, func(ctx context.Context, c *call, in Change) (Out, error) {
			v, err := named(ctx, c, in.named())
			if err != nil {
				return *new(Out), err
			}
			var wanted T
			updated, err := g.update(ctx, c.Tenant, v, func(v *T) error {
				c.noteChanged(apply(c, v, &in))
				wanted = *v
				return nil
			})
			return done(c, &wanted, updated, err)
		}),
		command(Command{
			Line: g.name + " delete NAME --org SLUG", Short: g.deleteShort,
			Audit: operation.AuditAlways, Table: "deleted, keys revoked=keys_revoked",
		}, func(ctx context.Context, c *call, in Ref) (out Deleted, err error) {
			v, err := named(ctx, c, in)
			if err == nil {
				out.Keys, err = g.remove(ctx, c, v)
			}
			if err == nil {
				id, name := g.idAndName(v)
				c.Note(g.name, id)
				out.Deleted = name
			}
			return out, err
		}),
	}
}

func (s *Server) accounts() Group {
	commands := commandsOf[NewAccount, AccountChange, Account](resourceCommands[identity.Account]{
		name: "account", one: "a service account", table: "id, name, permissions, teams, active",
		deleteShort: "Delete a service account; its keys are revoked at once",
		idAndName:   func(a *identity.Account) (string, string) { return a.ID, a.Name },
		template:    identity.Account{Active: true}, create: s.People.CreateAccount, find: s.People.FindAccount,
		list: s.People.Accounts, update: s.People.UpdateAccount,
		remove: func(ctx context.Context, c *call, a *identity.Account) (int, error) {
			n, err := s.Keys.RemoveAccount(ctx, c.Tenant, a)
			c.Note("keys_revoked", strconv.Itoa(n))
			return n, err
		},
	})
	return Group{Name: "account", Short: "Create and update service accounts, which own API keys", Commands: commands}
}

func (s *Server) roles() Group {
	commands := commandsOf[NewRole, RoleChange, Role](resourceCommands[identity.Role]{
		name: "role", one: "a role", table: "name, label, permissions", deleteShort: "Delete a role that is not used",
		idAndName: func(r *identity.Role) (string, string) { return r.Name, r.Name },
		create:    s.People.CreateRole, find: s.People.Role, list: paged(s.People.Roles), update: s.People.UpdateRole,
		remove: func(ctx context.Context, c *call, r *identity.Role) (int, error) {
			return 0, s.People.DeleteRole(ctx, c.Tenant, r)
		},
	})
	return Group{Name: "role", Short: "Create and update roles, which people hold", Commands: commands}
}

func (s *Server) teams() Group {
	commands := commandsOf[New, TeamChange, Team](resourceCommands[identity.Team]{
		name: "team", one: "a team", table: "id, name", deleteShort: "Delete a team that is not used",
		idAndName: func(t *identity.Team) (string, string) { return t.ID, t.Name },
		create:    s.People.CreateTeam, find: s.People.Team, list: paged(s.People.Teams), update: s.People.UpdateTeam,
		remove: func(ctx context.Context, c *call, t *identity.Team) (int, error) {
			return 0, s.People.DeleteTeam(ctx, c.Tenant, t)
		},
	})
	return Group{Name: "team", Short: "Create and update teams", Commands: commands}
}

// paged makes a pager of a function that returns a whole list.
func paged[T any](list func(context.Context, *tenants.Tenant) ([]T, error)) pager[T] {
	return func(ctx context.Context, t *tenants.Tenant, p identity.Page) ([]T, int64, error) {
		all, err := list(ctx, t)
		from := min(max(p.Offset, 0), len(all))
		return all[from:min(from+min(p.Limit, identity.MaxLimit), len(all))], int64(len(all)), err
	}
}
