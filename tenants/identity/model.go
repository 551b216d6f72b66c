// Package identity stores the people of organizations, with their roles, permissions and teams, and the service
// accounts
// that own API keys.
package identity

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/tenants"
)

const (
	// AdminRole is the name of the built-in role that holds every permission. It always exists and cannot be changed.
	AdminRole = "admin"
	// AdminLabel is the label of that role.
	AdminLabel = "Administrator"
	// RoleResource is the name of roles in references and bundles.
	RoleResource = "role"
)

// User is a person who works in an organization. The password hash and the invitation never leave the server.
type User struct {
	store.Meta
	OrgID       int64                `json:"org_id" use:"local"`
	UID         int64                `json:"uid" as:"id" rule:"min=1 max=2147483647 unique" use:"identity" doc:"Number of the user." example:"7"` // unique in the organization
	Name        string               `json:"name" rule:"required max=200 format=label" use:"filter" doc:"Name of the user." example:"Grace Hopper"`
	Email       string               `json:"email" rule:"required max=254 format=email" use:"filter" doc:"E-mail address, with which the user signs in." example:"grace@example.com"`
	EmailKey    string               `json:"email_key" as:"email" rule:"unique" use:"local named"` // the address without regard to case; unique in the organization
	Roles       []string             `json:"roles,omitempty" rule:"max=200 each=64 ref=role" use:"filter" doc:"Names of the roles of the user." example:"[\"editor\"]"`
	Permissions []tenants.Permission `json:"permissions,omitempty" rule:"each=64" doc:"What the user may do besides what the roles allow." ask:"Permissions|Besides those of the roles." example:"[\"contacts\"]"`              // beside those of the roles
	Teams       []string             `json:"teams,omitempty" rule:"max=1000 format=id ref=team" doc:"Teams whose records the user sees, all where empty." ask:"Teams|Whose records the person sees; all where none is chosen."` // empty: not limited to teams
	Active      bool                 `json:"active" use:"filter" doc:"Whether the user may sign in." ask:"May sign in" example:"true"`

	PasswordHash string `json:"password_hash,omitempty" use:"local"`
	// PasswordRev grows with every change of the password, and by Invalidate. Sessions of another revision are void.
	PasswordRev       int64  `json:"password_rev" use:"local"`
	PasswordChangedAt int64  `json:"password_changed_at,omitempty" use:"local"`
	InviteHash        string `json:"invite_hash,omitempty" rule:"unique" use:"local"`
	InviteExpiresAt   int64  `json:"invite_expires_at,omitempty" use:"local"`
	// InviteHeld are the permissions that the user held when the link was created. The link is void once the user holds
	// others. Nil, as earlier versions stored it, means none.
	InviteHeld []tenants.Permission `json:"invite_held" use:"local"`

	Invitation *Invitation `json:"-"` // returned once, to the caller that creates or invites the user

	SignedOut []SignOut `json:"signed_out,omitempty" use:"local"`
	// SessionsFrom, in Unix milliseconds, is the start of the oldest valid session: sessions started earlier have
	// ended.
	SessionsFrom int64 `json:"sessions_from,omitempty" use:"local"`
}

// Role is a named set of permissions.
type Role struct {
	store.Meta
	OrgID       int64                `json:"org_id" use:"local"`
	Name        string               `json:"name" rule:"required max=64 unique" use:"identity once" doc:"Short name by which users hold the role: 1 to 64 of a-z, 0-9, _ and -, a letter first." ask:"Short name|Lower-case letters, digits, _ and -, a letter first." example:"editor"`
	Label       string               `json:"label" rule:"max=200 format=label" use:"filter" doc:"Name that people read; the short name if it is not given." ask:"Name" example:"Editor"`
	Permissions []tenants.Permission `json:"permissions,omitempty" rule:"each=64" doc:"Permissions of the users who hold the role." example:"[\"contacts\"]"`
}

// Team is a group of people. Records are scoped to teams by their IDs.
type Team struct {
	store.Meta
	OrgID int64  `json:"org_id" use:"local"`
	Name  string `json:"name" rule:"required max=200 format=label" use:"filter" doc:"Name of the team." example:"Sales"`
}

// Account is a service account. Its permissions and teams bound those of its keys. It is never an administrator.
type Account struct {
	store.Meta
	OrgID       int64                `json:"org_id" use:"local"`
	Name        string               `json:"name" rule:"required max=200 format=label unique" use:"identity" doc:"Name of the service account." example:"CRM"`
	Permissions []tenants.Permission `json:"permissions,omitempty" rule:"each=64" doc:"What the keys of the account may do at most." ask:"Permissions|What its keys may do at most." example:"[\"contacts\"]"`
	Teams       []string             `json:"teams,omitempty" rule:"max=1000 format=id ref=team" doc:"Teams whose records the keys see, all where empty." ask:"Teams|Whose records its keys see; all where none is chosen."` // empty: not limited to teams
	Active      bool                 `json:"active" use:"filter" doc:"Whether the keys of the account are accepted." ask:"Its keys are accepted" example:"true"`
}

// Kinds are the record kinds of this package. They belong to the control workspace, partitioned by organization.
type Kinds struct {
	Users    *record.Of[User]
	Roles    *record.Of[Role]
	Teams    *record.Of[Team]
	Accounts *record.Of[Account]
}

// NewKinds declares the kinds.
func NewKinds() (k Kinds) {
	k.Users = record.Must(record.Options[User]{
		Traits: record.Traits{Name: "user", Definition: true, Control: true, Rights: true, Travels: "created_at"},
		Spec: store.Spec{
			Name: "users", Partition: true,
			Indexes: []store.Index{
				{Fields: []string{"name"}}, {Fields: []string{"email"}},
				{Fields: []string{"created_at"}}, {Fields: []string{"roles"}},
			},
			Access: []store.Access{
				{Sort: []string{"uid"}}, {Sort: []string{"name"}}, {Sort: []string{"email"}},
				{Sort: []string{"created_at"}}, {Where: []string{"roles"}},
			},
		},
		Preset: func(u *User) { u.Active = true },
		Derive: func(u *User) { u.Name, u.EmailKey = texts.Trim(u.Name), EmailKey(u.Email) },
		Check:  func(c *record.Checking, u *User) { u.Permissions = checkPermissions(c.Errs, u.Permissions) },
		// A new user may get the number of a removed one, whose sessions must not become the new user's.
		Fill:   func(u *User) { u.SessionsFrom = time.Now().UnixMilli() },
		Number: numberUsers,
	})
	// An organization has few of these, so one index over all of them suffices.
	listed := []store.Access{{Sort: []string{"name"}}}
	k.Roles = record.Must(record.Options[Role]{
		Traits: record.Traits{Name: RoleResource, Key: "name", Definition: true, Control: true, Rights: true, Travels: "created_at"},
		Spec:   store.Spec{Name: "roles", Partition: true, Access: listed},
		Derive: func(r *Role) { r.Label = texts.Trim(r.Label) },
		Check:  checkRole,
	})
	k.Teams = record.Must(record.Options[Team]{
		Traits: record.Traits{Name: "team", Definition: true, Control: true},
		Spec: store.Spec{
			Name: "teams", Partition: true, Indexes: []store.Index{{Fields: []string{"name"}}},
			Access: append([]store.Access{{Where: []string{"name"}}}, listed...),
		},
		Derive: func(t *Team) { t.Name = texts.Trim(t.Name) },
	})
	k.Accounts = record.Must(record.Options[Account]{
		Traits: record.Traits{Name: "service_account", Definition: true, Control: true, Rights: true},
		Spec:   store.Spec{Name: "accounts", Partition: true, Access: listed},
		Preset: func(a *Account) { a.Active = true },
		Derive: func(a *Account) { a.Name = texts.Trim(a.Name) },
		Check:  func(c *record.Checking, a *Account) { a.Permissions = checkPermissions(c.Errs, a.Permissions) },
	})
	record.Link([]*record.Resource{k.Users.Resource, k.Roles.Resource, k.Teams.Resource, k.Accounts.Resource})
	return k
}

var roleName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)

// checkRole checks a role. It keeps the built-in role, which must be given as it is or not at all.
func checkRole(c *record.Checking, r *Role) {
	given := len(r.Permissions)
	r.Permissions = checkPermissions(c.Errs, r.Permissions)
	if r.Name == AdminRole {
		narrowed := given > 0 && len(r.Permissions) < len(tenants.AllPermissions())
		if narrowed || !slices.Contains([]string{"", AdminRole, AdminLabel}, r.Label) {
			c.Errs.Add("name", fault.Forbidden, "the role %s is built in and cannot be changed", AdminRole)
		}
		c.Keep = true
		return
	}
	if !roleName.MatchString(r.Name) {
		c.Errs.Add("name", fault.Format,
			"the name of a role has 1 to 64 characters of a-z, 0-9, _ and -, and starts with a letter")
	}
	r.Label = cmp.Or(r.Label, r.Name)
}

// numberUsers gives new users their numbers and keeps the counter above the numbers in use. Errors: *fault.Error if no
// numbers are left, store.ErrUnavailable.
func numberUsers(ctx context.Context, ws *store.Workspace, users []*User) error {
	most, missing := int64(0), int64(0)
	for _, u := range users {
		if most = max(most, u.UID); u.UID == 0 {
			missing++
		}
	}
	last, err := ws.Counter(ctx, "users", missing, most)
	if err != nil {
		return err
	}
	if missing > 0 && last > lastUID {
		return fault.One("id", fault.Range, "the numbers of users are used up; give one that is free, from 1 to %d",
			int64(MaxUID))
	}
	for _, u := range users {
		if u.UID == 0 {
			missing--
			u.UID = last - missing
		}
	}
	return nil
}

// Kept returns the kinds of this package.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Teams, k.Roles, k.Users, k.Accounts} }
