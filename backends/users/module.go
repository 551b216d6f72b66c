// Package users serves the people who work in an organization, their roles and teams, service accounts and
// keys. Whatever it stores, nobody gives rights by it that they lack.
package users

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tenantry/backends/api"
	"tenantry/backends/resource"
	"tenantry/tenants"
	"tenantry/tenants/keys"
	"tenantry/tenants/people"
)

// Deps are what the module asks of others.
type Deps struct {
	Kinds  people.Kinds
	Stored keys.Kinds
	People *people.Service
	Keys   *keys.Service
	Now    func() time.Time
}

// Module serves people, what they and keys may do, and the keys. It is immutable once rows are told to it,
// and safe for concurrent use.
type Module struct {
	Deps
	rows map[string]*api.Operation // of the whole gateway, by name
}

// New returns the module.
func New(deps Deps) *Module { return &Module{Deps: deps} }

// Explain tells the module which operations there are, before it is used.
func (m *Module) Explain(rows []api.Operation) {
	m.rows = map[string]*api.Operation{}
	for i := range rows {
		m.rows[rows[i].Name] = &rows[i]
	}
}

// Kept returns nothing: people are kept with the organizations.
func (m *Module) Kept() []resource.Kept { return nil }

// Answer is a user as callers see it.
type Answer struct {
	ID          int64       `json:"id" doc:"Number of the user."`
	Name        string      `json:"name" doc:"Name of the user."`
	Email       string      `json:"email" doc:"E-mail address."`
	Permissions Permissions `json:"permissions" doc:"What the user may do, by its own permissions and those of the roles."`
	Roles       Roles       `json:"roles" doc:"Roles given to the user."`
}

// Permissions are effective permissions.
type Permissions struct {
	Label string               `json:"label" doc:"What people read."`
	Value []tenants.Permission `json:"value" doc:"Keys of the permissions."`
}

// Roles are the named roles of a user.
type Roles struct {
	Label string   `json:"label" doc:"What people read."`
	Value []string `json:"value" doc:"Names of the roles."`
}

const (
	forbidden = "Permission Denied"
	missing   = "Unable to locate user."
)

// Operations returns the module's rows.
func (m *Module) Operations() []api.Operation {
	rows := []api.Operation{api.Typed(api.Operation{
		Name: "users.get", Contract: true, Revised: true, Method: http.MethodGet, Path: "/api/users/{id}", Tag: "Users",
		Summary: "Get a user",
		Description: "For the person itself, administrators, and callers with view_users or manage_users. Everybody else is refused, " +
			"also where there is no such user.",
		Credentials: api.Key | api.Session, Kinds: api.ServerKeys, Rule: api.HandlerDecides(),
		Params: []api.Param{
			{Name: "id", In: api.InPath, Shape: api.Integer, Required: true, Bounds: api.Bounds{Least: 1}, Description: "Number of the user.", Example: "7"},
		},
		Message: "User found",
		Example: exampleAnswer(),
		Failures: []api.Failure{
			{Code: http.StatusForbidden, Message: forbidden, When: "the caller may not read this user"},
			{Code: http.StatusNotFound, Message: missing, When: "no such user in this organization"},
		},
	}, m.get)}
	return slices.Concat(rows, refusals(slices.Concat(m.roles(), m.teams(), m.accounts(), m.people())), m.keys())
}

const (
	permissionsLabel = "Permissions"
	rolesLabel       = "Roles"
)

func exampleAnswer() Answer {
	return answer(&people.User{UID: 7, Name: "Grace Hopper", Email: "grace@example.com", Roles: []string{"editor"}}, []tenants.Permission{tenants.Contacts, tenants.ManageForms})
}

func answer(u *people.User, permissions []tenants.Permission) Answer {
	return Answer{
		ID: u.UID, Name: u.Name, Email: u.Email,
		Permissions: Permissions{permissionsLabel, orEmpty(permissions)},
		Roles:       Roles{rolesLabel, orEmpty(u.Roles)},
	}
}

func (m *Module) get(ctx context.Context, c *api.Call, _ struct{}) (Answer, error) {
	uid, ok := number(c.Path("id"))
	if !mayRead(c.Principal, uid) {
		return Answer{}, api.Forbidden(forbidden)
	}
	if !ok {
		return Answer{}, api.NotFound(missing)
	}
	user, err := m.People.FindUser(ctx, c.Tenant, uid)
	if err != nil {
		return Answer{}, api.OrMissing(err, missing)
	}
	c.Revision = user.Rev
	permissions, err := m.People.EffectivePermissions(ctx, c.Tenant, user)
	return answer(user, permissions), err
}

// number reads a user's number. There is one way to write each.
func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != text {
		return 0, false
	}
	return n, true
}

// mayRead never looks the user up: a caller without the right must not learn who exists.
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
