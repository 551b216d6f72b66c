// Package people serves the people of an organization, their roles and teams, service accounts and keys. No caller can
// give rights through it that they lack.
package people

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tenantry/backends/record"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
)

// Deps are the dependencies of the module.
type Deps struct {
	Kinds  identity.Kinds
	Stored keys.Kinds
	People *identity.Service
	Keys   *keys.Service
	Now    func() time.Time
	Mails  Mails
}

// Mails mails links of invitations. Implementations must be safe for concurrent use.
type Mails interface {
	// On reports whether the installation sends mail.
	On() bool
	// Invite mails the link of the user's invitation, if mail is sent and there is a link, and reports whether it did.
	// takeBack removes a mail that has not been sent; it is nil if none was stored.
	Invite(ctx context.Context, t *tenants.Tenant, u *identity.User, baseURL string) (
		mailed bool, takeBack func(context.Context) error)
}

// Module serves people, service accounts, their rights, and keys. It is immutable once Explain was called, and safe
// for concurrent use.
type Module struct {
	Deps
	rows map[string]*operation.Row // of the whole gateway, by name
}

// New returns the module.
func New(deps Deps) *Module { return &Module{Deps: deps} }

// Explain sets the rows of all operations. It must be called before the module serves.
func (m *Module) Explain(rows []operation.Row) {
	m.rows = map[string]*operation.Row{}
	for i := range rows {
		m.rows[rows[i].Name] = &rows[i]
	}
}

// Kept returns nothing, because people are stored with the organizations.
func (m *Module) Kept() []record.Kept { return nil }

// Answer is a user as callers see it.
type Answer struct {
	ID          int64       `json:"id" doc:"Number of the user."`
	Name        string      `json:"name" doc:"Name of the user."`
	Email       string      `json:"email" doc:"E-mail address."`
	Permissions Permissions `json:"permissions" doc:"The user's effective permissions: their own and those of the roles."`
	Roles       Roles       `json:"roles" doc:"Roles given to the user."`
}

// Permissions are effective permissions.
type Permissions struct {
	Label string               `json:"label" doc:"Label for people."`
	Value []tenants.Permission `json:"value" doc:"Keys of the permissions."`
}

// Roles are the named roles of a user.
type Roles struct {
	Label string   `json:"label" doc:"Label for people."`
	Value []string `json:"value" doc:"Names of the roles."`
}

const (
	forbidden = "Permission Denied"
	missing   = "Unable to locate user."
)

// Operations returns the module's rows.
func (m *Module) Operations() []operation.Row {
	rows := []operation.Row{operation.Typed(operation.Row{
		Name: "users.get", Method: http.MethodGet, Path: "/api/users/{id}",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.HandlerDecides(),
		},
		Request: operation.Request{
			Contract: true,
			Params: []operation.Param{
				{
					Name: "id", In: operation.InPath, Shape: operation.Integer, Required: true,
					Bounds: operation.Bounds{Least: 1}, Description: "Number of the user.", Example: "7",
				},
			},
		},
		Response: operation.Response{
			Message: "User found",
			Example: exampleAnswer(),
			Failures: []operation.Failure{
				{Code: http.StatusForbidden, Message: forbidden, When: "the caller may not read this user"},
				{Code: http.StatusNotFound, Message: missing, When: "no such user in this organization"},
			},
		},
		Target: operation.Target{Revised: true},
		Docs: operation.Docs{
			Tag:     "Users",
			Summary: "Get a user", Title: "User",
			Description: "For the user themselves, administrators, and callers with view_users or manage_users. All others are refused, " +
				"even if there is no such user.",
		},
	}, m.get)}
	return slices.Concat(rows, refusals(slices.Concat(m.roles(), m.teams(), m.accounts(), m.people())), m.keys())
}

const (
	permissionsLabel = "Permissions"
	rolesLabel       = "Roles"
)

func exampleAnswer() Answer {
	return answer(
		&identity.User{UID: 7, Name: "Grace Hopper", Email: "grace@example.com", Roles: []string{"editor"}},
		[]tenants.Permission{tenants.Contacts, tenants.ManageForms},
	)
}

func answer(u *identity.User, permissions []tenants.Permission) Answer {
	return Answer{
		ID: u.UID, Name: u.Name, Email: u.Email,
		Permissions: Permissions{permissionsLabel, orEmpty(permissions)},
		Roles:       Roles{rolesLabel, orEmpty(u.Roles)},
	}
}

func (m *Module) get(ctx context.Context, c *operation.Call, _ struct{}) (Answer, error) {
	uid, ok := number(c.Path("id"))
	if !mayRead(c.Principal, uid) {
		return Answer{}, operation.Forbidden(forbidden)
	}
	if !ok {
		return Answer{}, operation.NotFound(missing)
	}
	user, err := m.People.FindUser(ctx, c.Tenant, uid)
	if err != nil {
		return Answer{}, operation.OrMissing(err, missing)
	}
	c.Revision = user.Rev
	permissions, err := m.People.EffectivePermissions(ctx, c.Tenant, user)
	return answer(user, permissions), err
}

// number reads a user's number in canonical form.
func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != text {
		return 0, false
	}
	return n, true
}

// mayRead reports whether the caller may read the user. It does not look the user up, because a caller without the
// right must not learn who exists.
func mayRead(p *tenants.Principal, uid int64) bool {
	self := p.Kind == tenants.Person && uid > 0 && p.UserID == uid
	return self || p.May(tenants.ViewUsers) || p.May(tenants.ManageUsers)
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
