package people

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
)

// Person is a user in the answers of all operations but the contract's.
type Person struct {
	Answer
	// Lists have neither.
	Permissions *Permissions `json:"permissions,omitempty" doc:"The user's effective permissions: their own and those of the roles. Not in lists."`
	Roles       *Roles       `json:"roles,omitempty" doc:"Roles given to the user. Not in lists."`

	Own       []tenants.Permission `json:"own_permissions" doc:"The user's own permissions, in addition to those of the roles. They are set as permissions."`
	Teams     *[]string            `json:"teams,omitempty" doc:"Teams whose records the user sees; empty: all. Left out without the teams feature."`
	Active    bool                 `json:"active" doc:"Whether the user may sign in."`
	CreatedAt string               `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`

	Unused      []tenants.Permission `json:"unused_permissions" doc:"Permissions that the user has not needed since unused_since, to a minute or two. Empty for administrators, who hold all."`
	UnusedSince *string              `json:"unused_since" doc:"When recording of needed permissions began; null: the user has made no calls since."`
}

// Invited is a user with a new single-use link.
type Invited struct {
	Person
	Link          string `json:"link" doc:"Link to choose a password. It works once and is shown only this once."`
	LinkExpiresAt string `json:"link_expires_at" doc:"When the link expires; RFC 3339, UTC, milliseconds."`
	Mailed        bool   `json:"mailed" doc:"Whether the link is also mailed to the person. Without a mail server nobody is mailed."`
}

func examplePerson() Person {
	of := exampleAnswer()
	return Person{
		Answer: of, Permissions: &of.Permissions, Roles: &of.Roles, Own: []tenants.Permission{tenants.Contacts},
		Teams: &[]string{}, Active: true, CreatedAt: "2024-06-04T13:52:42.000Z", Unused: []tenants.Permission{},
	}
}

func exampleInvited() Invited {
	return Invited{examplePerson(), "https://acme.example.com/welcome#inv_4dNq8Ww2ZyT6pLk0", "2024-06-07T13:52:42.000Z", false}
}

// showAll returns people as callers see them, with the link of a user who is being invited.
func (m *Module) showAll(ctx context.Context, c *operation.Call, users []*identity.User) ([]any, error) {
	permissions, err := m.People.Permissions(ctx, c.Tenant, users)
	if err != nil {
		return nil, err
	}
	uids := make([]int64, len(users))
	for i, u := range users {
		uids[i] = u.UID
	}
	noted, err := m.Keys.RightsOf(ctx, c.Tenant, uids)
	if err != nil {
		return nil, err
	}
	listed := c.Operation.Name == "users.list"
	all := make([]any, len(users))
	for i, u := range users {
		one := Person{
			Answer: answer(u, permissions[i]), Own: orEmpty(u.Permissions), Active: u.Active,
			CreatedAt: texts.Time(u.CreatedAt), Unused: []tenants.Permission{},
		}
		needed := cmp.Or(noted[u.UID], &keys.Rights{})
		if one.UnusedSince = texts.TimeOrNull(needed.Since); !u.IsAdmin() {
			one.Unused = orEmpty(keys.Unneeded(permissions[i], needed.Needed))
		}
		if c.Tenant.Org.Feature(tenants.FeatureTeams) {
			teams := orEmpty(u.Teams)
			one.Teams = &teams
		}
		if !listed {
			one.Permissions, one.Roles = &one.Answer.Permissions, &one.Answer.Roles
		}
		all[i] = one
		if made := u.Invitation; made != nil {
			invited := Invited{Person: one, Link: made.Link(c.BaseURL), Mailed: made.Mailed}
			if invited.Link != "" {
				invited.LinkExpiresAt = texts.Time(made.ExpiresAt.UnixMilli())
			}
			all[i] = invited
		}
	}
	return all, nil
}

// person completes a row that answers one person.
func person[In any](
	m *Module, row operation.Row, do func(context.Context, *operation.Call, In) (*identity.User, error),
) operation.Row {
	row.Tag, row.Revised = "Users", true
	made := operation.Typed(row, func(ctx context.Context, c *operation.Call, in In) (any, error) {
		u, err := do(ctx, c, in)
		if err != nil {
			return nil, operation.OrMissing(err, "User not found")
		}
		c.Revision = u.Rev
		all, err := m.showAll(ctx, c, []*identity.User{u})
		if err != nil {
			return nil, err
		}
		return all[0], nil
	})
	made.Data = row.Data
	return made
}

// rightsOf returns the rights of a person.
func (m *Module) rightsOf(ctx context.Context, c *operation.Call, u *identity.User) (rights, error) {
	permissions, err := m.People.EffectivePermissions(ctx, c.Tenant, u)
	r := of(permissions, u.Teams)
	r.active = u.Active && u.PasswordHash != ""
	if r.admin = u.IsAdmin(); r.admin {
		r.teams = nil
	}
	return r, err
}

// people returns the rows of people, except the one of the contract.
func (m *Module) people() []operation.Row {
	guard := guarded(m, m.rightsOf)
	rows := crud.Rows(m.Kinds.Users.Resource, crud.Options{
		Path: "/api/users", Things: "Users", Read: read(), Write: write(), Search: []string{
			"name", "email",
		}, Few: []string{"active"}, List: crud.Action{Target: operation.Target{Concerns: m.peopleConcerns}},
		Before: crud.Before(guard), Show: crud.Show(m.showAll), Example: examplePerson(),
		Keeper: crud.Keep(crud.Keeper[identity.User]{
			Insert: func(ctx context.Context, c *operation.Call, u *identity.User) (*identity.User, error) {
				if err := m.mayInvite(ctx, c); u.Active && err != nil {
					return nil, err
				}
				made, err := m.People.CreateUser(ctx, c.Tenant, identity.NewUser{
					Name: u.Name, Email: u.Email, Roles: u.Roles, Permissions: u.Permissions, Teams: u.Teams, Inactive: !u.Active,
				})
				if err == nil {
					m.mailInvitation(ctx, c, made)
				}
				return made, err
			},
			Update: func(ctx context.Context, c *operation.Call, u *identity.User, change func(*identity.User) error) (*identity.User, error) {
				return m.People.UpdateUser(ctx, c.Tenant, u.UID, change)
			},
			Refers: refers(m.Kinds.Users),
		}),
		Get: crud.Absent(), Delete: crud.Absent(),
		Create: crud.Action{
			Docs: operation.Docs{
				Ask: "You get a link that works once, with which the person chooses a password. " + m.mailNote(),
				Description: "Answers the user and a single-use link with which the person chooses a password. If the installation " +
					"sends mail, the link is mailed to the person as well. A user who is not active gets no link.",
			},
			Response: operation.Response{
				Once: true, Data: Invited{}, Example: exampleInvited(), Failures: []operation.Failure{unbound()},
			},
		},
	})
	may := func(ctx context.Context, c *operation.Call) func(*identity.User) error {
		return func(u *identity.User) error {
			if err := c.Current(u.Rev); err != nil {
				return err
			}
			return guard(ctx, c, nil, nil, u)
		}
	}
	reactivate := m.onUser("reactivate", "Reactivate", "Reactivate a user",
		"Lets a deactivated person sign in again with the existing password.", "User reactivated",
		func(ctx context.Context, c *operation.Call, uid int64) (*identity.User, error) {
			return m.People.UpdateUser(ctx, c.Tenant, uid, func(u *identity.User) error {
				was := *u
				u.Active = true
				if err := c.Current(u.Rev); err != nil {
					return err
				}
				return guard(ctx, c, nil, u, &was)
			})
		})
	reactivate.Action, reactivate.Failures = operation.ReactivateAction, append(reactivate.Failures, widening())
	deactivate := m.onUser("deactivate", "Deactivate", "Deactivate a user",
		"Ends the person's access at once: sessions, and an unused link. "+
			"The last active administrator cannot be deactivated.", "User deactivated",
		func(ctx context.Context, c *operation.Call, uid int64) (*identity.User, error) {
			return m.People.Deactivate(ctx, c.Tenant, uid, may(ctx, c))
		})
	deactivate.Action = operation.DeactivateAction
	return append(rows, deactivate, reactivate, m.invite(may), m.me(), m.changeMe())
}

// mayInvite refuses links for calls with a key that expires or is bound to addresses, because a person who opens the
// link is not bound in this way and can create keys that are not, either.
func (m *Module) mayInvite(ctx context.Context, c *operation.Call) error {
	return m.unlessBound(ctx, c, unbound())
}

func unbound() operation.Failure {
	return operation.Failure{
		Code: http.StatusForbidden, Message: "A key that expires or is bound to addresses cannot invite, because the person would not be bound in this way",
		When: whenBound,
	}
}

// onUser returns a row with an action on the person that its path names.
func (m *Module) onUser(
	action, verb, summary, description, message string,
	do func(context.Context, *operation.Call, int64) (*identity.User, error),
) operation.Row {
	return person(m, operation.Row{
		Name: "users." + action, Method: http.MethodPost, Path: "/api/users/{id}/" + action,
		Policy: operation.Policy{
			Audit: operation.AuditAlways, Credentials: operation.Key | operation.Session,
			Kinds: operation.ServerFull, Rule: write(),
		},
		Request: operation.Request{
			Params: []operation.Param{{
				Name: "id", In: operation.InPath, Shape: operation.Text, Required: true,
				Description: "Number of the user.", Example: "7",
			}},
		},
		Response: operation.Response{
			Message: message,
			Data:    Person{}, Example: examplePerson(),
			Failures: []operation.Failure{
				{
					Code: http.StatusNotFound, Message: "User not found", When: "no such user in this organization",
				}, holdsMore(),
				{
					Code:    http.StatusUnprocessableEntity,
					Message: "Validation failed: user 7 is the organization's last active administrator; make somebody else one first",
					When:    "the state of the user forbids it",
				},
			},
		},
		Target: operation.Target{Resource: m.Kinds.Users.Name, OnRecord: true},
		Docs:   operation.Docs{Summary: summary, Description: description, Verb: verb},
	}, func(ctx context.Context, c *operation.Call, _ struct{}) (*identity.User, error) {
		uid, ok := number(c.Path("id"))
		if !ok {
			return nil, store.ErrNotFound
		}
		c.Note("user", c.Path("id"))
		return do(ctx, c, uid)
	})
}

func (m *Module) invite(may func(context.Context, *operation.Call) func(*identity.User) error) operation.Row {
	row := m.onUser("invite", "Invite", "Invite a user again",
		"Answers a new single-use link with which the person chooses a password. If the installation sends mail, the link is mailed to the person as well. "+
			"An earlier link becomes invalid; sessions and the old password end when the new link is used.", "User invited",
		func(ctx context.Context, c *operation.Call, uid int64) (*identity.User, error) {
			if err := m.mayInvite(ctx, c); err != nil {
				return nil, err
			}
			u, err := m.People.Invite(ctx, c.Tenant, uid, may(ctx, c))
			if err == nil {
				m.mailInvitation(ctx, c, u)
			}
			return u, err
		})
	row.Once, row.Data, row.Example, row.Failures = true, Invited{}, exampleInvited(), append(row.Failures, unbound())
	return row
}

// mailInvitation mails the link of a user who was just invited, and sets how the invitation is undone.
func (m *Module) mailInvitation(ctx context.Context, c *operation.Call, u *identity.User) {
	mailed, takeBack := m.Mails.Invite(ctx, c.Tenant, u, c.BaseURL)
	u.Invitation.Mailed = mailed
	if c.Undo = u.Invitation.TakeBack; mailed {
		c.Undo = func(ctx context.Context) error { return errors.Join(takeBack(ctx), u.Invitation.TakeBack(ctx)) }
	}
}

// mailNote says whether links are mailed.
func (m *Module) mailNote() string {
	if m.Mails != nil && m.Mails.On() {
		return "It is mailed to the person as well."
	}
	return "No mail is sent."
}

func (m *Module) me() operation.Row {
	return person(m, operation.Row{
		Name: "me.get", Method: http.MethodGet, Path: "/api/me",
		Policy:   operation.Policy{Credentials: operation.Session, Rule: operation.AnyCaller()},
		Response: operation.Response{Message: "User found", Data: Person{}, Example: examplePerson()},
		Docs: operation.Docs{
			Summary: "Get your own profile", Title: "Your own profile",
			Description: "Answers the person who is signed in.",
		},
	}, func(ctx context.Context, c *operation.Call, _ struct{}) (*identity.User, error) {
		return m.People.FindUser(ctx, c.Tenant, c.Principal.UserID)
	})
}

type profile struct {
	Name *string `json:"name,omitempty" rule:"min=1 max=200 format=label" doc:"Name of the user; left out: unchanged." example:"Grace Hopper"`
}

func (m *Module) changeMe() operation.Row {
	return person(m, operation.Row{
		Name: "me.update", Method: http.MethodPut, Path: "/api/me",
		Policy: operation.Policy{
			Audit:       operation.AuditAlways,
			Credentials: operation.Session, Rule: operation.AnyCaller(),
		},
		Response: operation.Response{
			Message: "User updated", Data: Person{}, Example: examplePerson(),
			Failures: []operation.Failure{{
				Code: http.StatusUnprocessableEntity, Message: "Validation failed: name must not be empty",
				When: "the name is not acceptable",
			}},
		},
		Docs: operation.Docs{
			Summary: "Change your own profile", Verb: "Save",
			Description: "Changes your name. Only callers who may manage users can change address, roles, permissions and teams.",
		},
	}, func(ctx context.Context, c *operation.Call, in profile) (*identity.User, error) {
		return m.People.UpdateUser(ctx, c.Tenant, c.Principal.UserID, func(u *identity.User) error {
			if in.Name != nil {
				u.Name = *in.Name
			}
			return c.Current(u.Rev)
		})
	})
}
