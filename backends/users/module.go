// Package users shows the people who work in an organization.
package users

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"tenantry/backends/api"
	"tenantry/backends/resource"
	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/people"
)

// People finds users. people.Service is one.
type People interface {
	// FindUser returns the user of that number, or store.ErrNotFound.
	FindUser(ctx context.Context, t *tenants.Tenant, uid int64) (*people.User, error)
	// EffectivePermissions returns the user's own permissions and those of the roles.
	EffectivePermissions(ctx context.Context, t *tenants.Tenant, u *people.User) ([]tenants.Permission, error)
}

// Deps are what the module asks of others.
type Deps struct{ People People }

// Module serves users. It is immutable and safe for concurrent use.
type Module struct{ people People }

// New returns the module.
func New(deps Deps) *Module { return &Module{deps.People} }

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
	return []api.Operation{api.Typed(api.Operation{
		Name: "users.get", Contract: true, Revised: true, Method: http.MethodGet, Path: "/api/users/{id}", Tag: "Users",
		Summary: "Get a user",
		Description: "For the person itself, administrators, and callers with view_users or manage_users. Everybody else is refused, " +
			"also where there is no such user.",
		Credentials: api.Key | api.Session, Kinds: api.ServerKeys, Rule: api.HandlerDecides(),
		Params: []api.Param{
			{Name: "id", In: api.InPath, Shape: api.Integer, Required: true, Bounds: api.Bounds{Least: 1}, Description: "Number of the user.", Example: "7"},
		},
		Message: "User found",
		Example: Answer{
			ID: 7, Name: "Grace Hopper", Email: "grace@example.com",
			Permissions: Permissions{permissionsLabel, []tenants.Permission{tenants.Contacts, tenants.ManageForms}},
			Roles:       Roles{rolesLabel, []string{"editor"}},
		},
		Failures: []api.Failure{
			{Code: http.StatusForbidden, Message: forbidden, When: "the caller may not read this user"},
			{Code: http.StatusNotFound, Message: missing, When: "no such user in this organization"},
		},
	}, m.get)}
}

const (
	permissionsLabel = "Permissions"
	rolesLabel       = "Roles"
)

func (m *Module) get(ctx context.Context, c *api.Call, _ struct{}) (Answer, error) {
	uid, ok := number(c.Path("id"))
	if !mayRead(c.Principal, uid) {
		return Answer{}, api.Forbidden(forbidden)
	}
	if !ok {
		return Answer{}, api.NotFound(missing)
	}
	user, err := m.people.FindUser(ctx, c.Tenant, uid)
	if errors.Is(err, store.ErrNotFound) {
		return Answer{}, api.NotFound(missing)
	}
	if err != nil {
		return Answer{}, err
	}
	c.Revision = user.Rev
	permissions, err := m.people.EffectivePermissions(ctx, c.Tenant, user)
	return Answer{
		ID: user.UID, Name: user.Name, Email: user.Email,
		Permissions: Permissions{permissionsLabel, orEmpty(permissions)},
		Roles:       Roles{rolesLabel, orEmpty(user.Roles)},
	}, err
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
