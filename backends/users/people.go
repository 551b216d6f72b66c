package users

import (
	"context"
	"net/http"
	"time"

	"tenantry/backends/api"
	"tenantry/backends/crud"
	"tenantry/internal/texts"
	"tenantry/tenants"
	"tenantry/tenants/people"
)

// Person is a user as all but the contract's operation show it.
type Person struct {
	Answer
	// The contract's list has neither.
	Permissions *Permissions `json:"permissions,omitempty" doc:"What the user may do, by its own permissions and those of the roles. Not in lists."`
	Roles       *Roles       `json:"roles,omitempty" doc:"Roles given to the user. Not in lists."`

	Teams     *[]string `json:"teams,omitempty" doc:"Teams whose records the user sees, all where empty. Left out without the teams feature."`
	Active    bool      `json:"active" doc:"Whether the user may sign in."`
	CreatedAt string    `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
}

// Invited is a user with the single-use link that it was given.
type Invited struct {
	Person
	Link          string `json:"link" doc:"Whoever opens it first chooses the password. It works once and is told this once."`
	LinkExpiresAt string `json:"link_expires_at" doc:"Until when the link works: RFC 3339, UTC, milliseconds."`
}

func examplePerson() Person {
	of := exampleAnswer()
	return Person{Answer: of, Permissions: &of.Permissions, Roles: &of.Roles, Teams: &[]string{}, Active: true, CreatedAt: "2024-06-04T13:52:42.000Z"}
}

func exampleInvited() Invited {
	return Invited{examplePerson(), "https://acme.example.com/welcome#inv_4dNq8Ww2ZyT6pLk0", "2024-06-07T13:52:42.000Z"}
}

// showAll returns people as callers see them.
func (m *Module) showAll(ctx context.Context, c *api.Call, users []*people.User) ([]any, error) {
	permissions, err := make([][]tenants.Permission, len(users)), error(nil)
	listed := c.Operation.Name == "users.list"
	if !listed {
		permissions, err = m.People.Permissions(ctx, c.Tenant, users)
	}
	if err != nil {
		return nil, err
	}
	all := make([]any, len(users))
	for i, u := range users {
		one := Person{Answer: answer(u, permissions[i]), Active: u.Active, CreatedAt: texts.Time(u.CreatedAt)}
		if c.Tenant.Org.Feature(tenants.FeatureTeams) {
			teams := orEmpty(u.Teams)
			one.Teams = &teams
		}
		if !listed {
			one.Permissions, one.Roles = &one.Answer.Permissions, &one.Answer.Roles
		}
		all[i] = one
	}
	return all, nil
}

func (m *Module) show(ctx context.Context, c *api.Call, u *people.User, err error) (Person, error) {
	if err != nil {
		return Person{}, err
	}
	all, err := m.showAll(ctx, c, []*people.User{u})
	if err != nil {
		return Person{}, err
	}
	return all[0].(Person), nil
}

// rightsOf returns what a person may do and see.
func (m *Module) rightsOf(ctx context.Context, c *api.Call, u *people.User) (rights, error) {
	permissions, err := m.People.EffectivePermissions(ctx, c.Tenant, u)
	r := of(permissions, u.Teams)
	if r.admin = u.IsAdmin(); r.admin {
		r.teams = nil
	}
	return r, err
}

// people returns the rows of people besides the contract's.
func (m *Module) people() []api.Operation {
	guard := guarded(m.rightsOf)
	rows := crud.Rows(m.Kinds.Users, crud.Options[people.User]{
		Path: "/api/users", Things: "Users", Read: read(), Write: write(), Without: []string{"get", "delete"}, Search: []string{"name", "email"},
		Before: guard, Show: m.showAll, Example: examplePerson(),
		Keeper: &crud.Keeper[people.User]{
			Insert: func(ctx context.Context, c *api.Call, u *people.User) (*people.User, error) {
				return m.People.CreateUser(ctx, c.Tenant, people.NewUser{
					Name: u.Name, Email: u.Email, Roles: u.Roles, Permissions: u.Permissions, Teams: u.Teams, Inactive: !u.Active,
				})
			},
			Update: func(ctx context.Context, c *api.Call, u *people.User, change func(*people.User) error) (*people.User, error) {
				return m.People.UpdateUser(ctx, c.Tenant, u.UID, change)
			},
		},
	})
	for i := range rows {
		if rows[i].Name == "users.create" {
			m.inviting(&rows[i])
		}
	}
	may := func(ctx context.Context, c *api.Call) func(*people.User) error {
		return func(u *people.User) error { return guard(ctx, c, nil, u) }
	}
	return append(rows,
		m.onUser("deactivate", "Deactivate a user", "Ends the person's access at once: sessions, and a link that was not used. An organization keeps an active administrator.", "User deactivated",
			func(ctx context.Context, c *api.Call, uid int64) (*people.User, error) {
				return m.People.Deactivate(ctx, c.Tenant, uid, may(ctx, c))
			}),
		m.onUser("reactivate", "Reactivate a user", "Lets a person who was deactivated sign in again, with the password that was chosen before.", "User reactivated",
			func(ctx context.Context, c *api.Call, uid int64) (*people.User, error) {
				return m.People.UpdateUser(ctx, c.Tenant, uid, func(u *people.User) error {
					u.Active = true
					return guard(ctx, c, u, u)
				})
			}),
		m.invite(may), m.me(), m.changeMe())
}

// inviting makes the answer of a row that creates somebody tell a link.
func (m *Module) inviting(row *api.Operation) {
	row.Description = "Answers the user and a single-use link with which the person chooses a password; nothing is sent by mail. A user who is not active gets none."
	row.Once, row.Data, row.Example = true, Invited{}, exampleInvited()
	create := row.Handler
	row.Handler = func(ctx context.Context, c *api.Call) (api.Result, error) {
		result, err := create(ctx, c)
		made, ok := result.Data.(Person)
		if err != nil || !ok {
			return result, err
		}
		out := Invited{Person: made}
		if made.Active {
			out, err = m.link(ctx, c, made, nil)
		}
		result.Data = out
		return result, err
	}
}

// link invites a person.
func (m *Module) link(ctx context.Context, c *api.Call, u Person, may func(*people.User) error) (Invited, error) {
	token, expires, err := m.People.Invite(ctx, c.Tenant, u.ID, may)
	if err != nil {
		return Invited{}, err
	}
	return Invited{u, people.WelcomeLink(c.BaseURL, token), texts.Time(expires.Truncate(time.Second).UnixMilli())}, nil
}

// onUser returns a row that does something to the person whom its path names.
func (m *Module) onUser(action, summary, description, message string, do func(context.Context, *api.Call, int64) (*people.User, error)) api.Operation {
	return m.named(api.Operation{
		Name: "users." + action, Path: "/api/users/{id}/" + action, Summary: summary, Description: description, Message: message, Data: Person{}, Example: examplePerson(),
	}, func(ctx context.Context, c *api.Call, uid int64) (any, error) {
		u, err := do(ctx, c, uid)
		return m.show(ctx, c, u, err)
	})
}

// named completes a row on the person whom its path names.
func (m *Module) named(row api.Operation, do func(context.Context, *api.Call, int64) (any, error)) api.Operation {
	data := row.Data
	row.Method, row.Tag, row.Audit, row.Resource = http.MethodPost, "Users", api.AuditAlways, m.Kinds.Users.Name
	row.Credentials, row.Kinds, row.Rule = api.Key|api.Session, api.ServerFull, write()
	row.Params = []api.Param{{Name: "id", In: api.InPath, Shape: api.Text, Required: true, Description: "Number of the user.", Example: "7"}}
	row.Failures = []api.Failure{
		{Code: http.StatusNotFound, Message: "User not found", When: "no such user in this organization"},
		{Code: http.StatusForbidden, Message: "The caller lacks contacts, which the record holds", When: "nobody changes what holds more than they do"},
		{Code: http.StatusUnprocessableEntity, Message: "Validation failed: user 7 is the organization's last active administrator; make somebody else one first", When: "the state of the user forbids it"},
	}
	row = api.Typed(row, func(ctx context.Context, c *api.Call, _ struct{}) (any, error) {
		uid, ok := number(c.Path("id"))
		if !ok {
			return nil, api.NotFound("User not found")
		}
		c.Note("user", c.Path("id"))
		out, err := do(ctx, c, uid)
		return out, missingAs("User not found", err)
	})
	row.Data = data
	return row
}

func (m *Module) invite(may func(context.Context, *api.Call) func(*people.User) error) api.Operation {
	return m.named(api.Operation{
		Name: "users.invite", Path: "/api/users/{id}/invite", Summary: "Invite a user again", Once: true, Message: "User invited", Data: Invited{}, Example: exampleInvited(),
		Description: "Answers a new single-use link with which the person chooses a password. The link before ends; so do sessions and the old password, once it is used.",
	}, func(ctx context.Context, c *api.Call, uid int64) (any, error) {
		u, err := m.People.FindUser(ctx, c.Tenant, uid)
		one, err := m.show(ctx, c, u, err)
		if err != nil {
			return nil, err
		}
		return m.link(ctx, c, one, may(ctx, c))
	})
}

func (m *Module) me() api.Operation {
	return api.Typed(api.Operation{
		Name: "me.get", Method: http.MethodGet, Path: "/api/me", Tag: "Users", Summary: "Get one's own profile",
		Description: "The person who is signed in.", Credentials: api.Session, Rule: api.AnyCaller(), Message: "User found", Example: examplePerson(),
	}, func(ctx context.Context, c *api.Call, _ struct{}) (Person, error) {
		u, err := m.People.FindUser(ctx, c.Tenant, c.Principal.UserID)
		return m.show(ctx, c, u, err)
	})
}

type profile struct {
	Name string `json:"name" rule:"required max=200 format=label" doc:"Name of the user." example:"Grace Hopper"`
}

func (m *Module) changeMe() api.Operation {
	return api.Typed(api.Operation{
		Name: "me.update", Method: http.MethodPut, Path: "/api/me", Tag: "Users", Summary: "Change one's own profile", Audit: api.AuditAlways,
		Description: "Address, roles, permissions and teams are changed by who may manage users.", Credentials: api.Session, Rule: api.AnyCaller(),
		Message: "User updated", Example: examplePerson(),
		Failures: []api.Failure{{Code: http.StatusUnprocessableEntity, Message: "Validation failed: name is required", When: "the name is missing or not acceptable"}},
	}, func(ctx context.Context, c *api.Call, in profile) (Person, error) {
		u, err := m.People.UpdateUser(ctx, c.Tenant, c.Principal.UserID, func(u *people.User) error {
			u.Name = in.Name
			return nil
		})
		return m.show(ctx, c, u, err)
	})
}
