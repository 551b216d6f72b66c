// Package people keeps who works in an organization: users with roles, permissions and
// teams, and the service accounts that own API keys.
package people

import (
	"tenantry/backends/store"
	"tenantry/tenants"
)

// AdminRole is the name of the role that holds every permission. It always exists and
// cannot be changed.
const (
	AdminRole  = "admin"
	AdminLabel = "Administrator"
)

// User is a person. The password hash and the invitation never leave the server.
type User struct {
	store.Meta
	OrgID       int64                `json:"org_id"`
	UID         int64                `json:"uid"` // unique in the organization
	Name        string               `json:"name"`
	Email       string               `json:"email"`
	EmailKey    string               `json:"email_key"` // the address without regard to case; unique in the organization
	Roles       []string             `json:"roles,omitempty"`
	Permissions []tenants.Permission `json:"permissions,omitempty"` // beside those of the roles
	Teams       []string             `json:"teams,omitempty"`       // empty: not limited to teams
	Active      bool                 `json:"active"`

	PasswordHash      string `json:"password_hash,omitempty"`
	PasswordRev       int64  `json:"password_rev"` // grows with every change of the password
	PasswordChangedAt int64  `json:"password_changed_at,omitempty"`
	InviteHash        string `json:"invite_hash,omitempty"`
	InviteExpiresAt   int64  `json:"invite_expires_at,omitempty"`

	SignedOut    []SignOut `json:"signed_out,omitempty"`
	SessionsFrom int64     `json:"sessions_from,omitempty"` // Unix milliseconds; sessions begun before are over
}

// Role is a named set of permissions.
type Role struct {
	store.Meta
	OrgID       int64                `json:"org_id"`
	Name        string               `json:"name"`
	Label       string               `json:"label"`
	Permissions []tenants.Permission `json:"permissions,omitempty"`
}

// Team is a set of people; its ID is what records are scoped to.
type Team struct {
	store.Meta
	OrgID int64  `json:"org_id"`
	Name  string `json:"name"`
}

// Account is a service account: what its keys may do. It is never an administrator.
type Account struct {
	store.Meta
	OrgID       int64                `json:"org_id"`
	Name        string               `json:"name"`
	Permissions []tenants.Permission `json:"permissions,omitempty"`
	Teams       []string             `json:"teams,omitempty"` // empty: not limited to teams
	Active      bool                 `json:"active"`
}

// Kinds are the records of this package. They belong to the control workspace, parted by
// organization.
type Kinds struct {
	Users    *store.Kind[User]
	Roles    *store.Kind[Role]
	Teams    *store.Kind[Team]
	Accounts *store.Kind[Account]
}

// NewKinds declares the records. An error is a fault of the program.
func NewKinds() (Kinds, error) {
	var k Kinds
	var err error
	if k.Users, err = store.Define[User](store.Spec{
		Name: "users", Fields: []string{"uid", "email_key", "invite_hash"}, Partition: true,
		Indexes: []store.Index{
			{Fields: []string{"uid"}, Unique: true},
			{Fields: []string{"email_key"}, Unique: true},
			{Fields: []string{"invite_hash"}, Unique: true},
		},
		Access: []store.Access{
			{Where: []string{"uid"}}, {Where: []string{"email_key"}}, {Where: []string{"invite_hash"}}, {Sort: []string{"uid"}},
		},
	}); err != nil {
		return k, err
	}
	named := []store.Index{{Fields: []string{"name"}, Unique: true}}
	access := []store.Access{{Where: []string{"name"}}, {Sort: []string{"name"}}}
	if k.Roles, err = store.Define[Role](store.Spec{
		Name: "roles", Fields: []string{"name"}, Partition: true, Indexes: named, Access: access,
	}); err != nil {
		return k, err
	}
	if k.Teams, err = store.Define[Team](store.Spec{
		Name: "teams", Fields: []string{"name"}, Partition: true,
		Indexes: []store.Index{{Fields: []string{"name"}}}, Access: access,
	}); err != nil {
		return k, err
	}
	k.Accounts, err = store.Define[Account](store.Spec{
		Name: "accounts", Fields: []string{"name"}, Partition: true, Indexes: named, Access: access,
	})
	return k, err
}

// Specs returns the declarations, for the store's list of control kinds.
func (k Kinds) Specs() []*store.Spec {
	return []*store.Spec{k.Users.Spec(), k.Roles.Spec(), k.Teams.Spec(), k.Accounts.Spec()}
}
