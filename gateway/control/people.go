package control

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tenantry/crypto/passwords"
	"tenantry/crypto/secret"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants/identity"
)

// User is a person as commands show it. Link is the single-use link with which the person chooses a password, if one
// was made.
type User struct {
	ID            int64      `json:"id" from:"UID"`
	Name          string     `json:"name"`
	Email         string     `json:"email"`
	Roles         []string   `json:"roles"`
	Permissions   []string   `json:"permissions"` // in addition to those of the roles
	Teams         []string   `json:"teams"`
	Active        bool       `json:"active"`
	CreatedAt     time.Time  `json:"created_at"`
	Link          string     `json:"link,omitempty"`
	LinkExpiresAt *time.Time `json:"link_expires_at,omitempty"`
}

// UserFields are the fields of a person that commands set.
type UserFields struct {
	Name        string   `json:"name,omitempty" doc:"the person's <name>"`
	Email       string   `json:"email,omitempty" doc:"the e-mail <address> the person signs in with"`
	Roles       []string `json:"roles,omitzero" flag:"role" doc:"a <role>, such as admin; may be repeated"`
	Permissions []string `json:"permissions,omitzero" flag:"permission" doc:"a <permission> in addition to those of the roles; may be repeated"`
	Teams       []string `json:"teams,omitzero" flag:"team" doc:"the <id> of a team the person is limited to; may be repeated"`
	Password    string   `json:"password,omitempty" use:"secret" flag:"password-stdin" read:"stdin" doc:"read the password from standard input"`
}

// NewUser is a person to be made. Without a password, a link to choose one is made.
type NewUser struct {
	Org string `json:"org" rule:"ref=organization"`
	UserFields
}

// UserRef names a person.
type UserRef struct {
	Org  string `json:"org" rule:"ref=organization"`
	User string `json:"user" arg:"the person's number or e-mail address"`
}

// UserChange changes a person; absent fields stay as they are.
type UserChange struct {
	UserRef
	UserFields
	Active *bool `json:"active,omitempty" doc:"whether the person may sign in (default true)"`
	Invite bool  `json:"invite,omitempty" flag:"link" doc:"print a new single-use link to choose a password"`
}

func (s *Server) users() Group {
	const table = "id, name, email, roles, permissions, teams, active"
	const invited = table + ", link?, link expires=link_expires_at?"
	return Group{Name: "user", Short: "Create and update the people of an organization", Commands: []Command{
		command(Command{
			Line:    "user create --org SLUG --email ADDRESS --name NAME",
			Short:   "Create a person; without a password, print a single-use link to choose one",
			Example: "  tenantry user create --org acme --email ada@example.com --name \"Ada Example\" --role admin",
			Audit:   operation.AuditNoted, Once: true, Table: invited,
		}, s.createUser),
		command(Command{
			Line: "user list --org SLUG", Short: "List people, by number",
			Table: "id, name, email, roles, permissions, active",
		}, list[User](s.People.Users)),
		command(Command{
			Line: "user show USER --org SLUG", Short: "Show a person", Table: table,
		}, func(ctx context.Context, c *call, in UserRef) (User, error) {
			return viewResult[User](s.user(ctx, c, in))
		}),
		command(Command{
			Line: "user update USER --org SLUG", Short: "Update a person; fields without a flag stay as they are",
			Example: "  tenantry user update ada@example.com --org acme --role admin --role editor",
			Audit:   operation.AuditNoted, Once: true, Table: invited,
			Nothing: "say what to change; tenantry user update --help names the flags",
		}, s.updateUser),
		command(Command{
			Line: "user deactivate USER --org SLUG", Short: "Deactivate a person: their access ends at once",
			Audit: operation.AuditAlways, Table: table,
		}, func(ctx context.Context, c *call, in UserRef) (User, error) {
			u, err := s.user(ctx, c, in)
			if err == nil {
				u, err = s.People.Deactivate(ctx, c.Tenant, u.UID, nil)
			}
			if err == nil {
				c.Note("user", strconv.FormatInt(u.UID, 10))
			}
			return viewResult[User](u, err)
		}),
	}}
}

// user returns the person with the number or e-mail address.
func (s *Server) user(ctx context.Context, c *call, r UserRef) (u *identity.User, err error) {
	if id, numeric := strconv.ParseInt(r.User, 10, 64); numeric == nil {
		u, err = s.People.FindUser(ctx, c.Tenant, id)
	} else {
		u, err = s.People.FindUserByEmail(ctx, c.Tenant, r.User)
	}
	return u, withMessage(err, CodeNotFound, "organization %[1]s has no user %[2]q; "+
		"name one by number or e-mail address, tenantry user list --org %[1]s shows them", r.Org, r.User)
}

func (s *Server) createUser(ctx context.Context, c *call, in NewUser) (User, error) {
	if err := checkPassword(in.Password); err != nil { // before the user is made
		return User{}, err
	}
	var n identity.NewUser
	apply(c, &n, &in)
	u, err := s.People.CreateUser(ctx, c.Tenant, n)
	if err != nil {
		return User{}, withMessage(err, CodeDuplicate, "organization %s already has a user with the address %s", in.Org, in.Email)
	}
	c.Note("user", strconv.FormatInt(u.UID, 10))
	c.Note("roles", strings.Join(u.Roles, ","))
	out, err := s.grantAccess(ctx, c, u, in.Password, false, func(string) {})
	if err != nil {
		err = fmt.Errorf("user %d was created, but without a password; set one with tenantry user update: %w", u.UID, err)
	}
	return out, err
}

// checkPassword returns an error if the password violates the policy. An empty text means no password, and passes.
func checkPassword(text string) error {
	if text == "" {
		return nil
	}
	if err := passwords.CheckPolicy(secret.New(text)); err != nil {
		return fault.One("password", fault.Format, "%v", err)
	}
	return nil
}

// grantAccess sets the password, if there is one, and makes a link, if asked to; it calls done after each. It returns
// the link of a user who is invited and has no password.
func (s *Server) grantAccess(
	ctx context.Context, c *call, u *identity.User, password string, link bool, done func(what string),
) (User, error) {
	out := viewOf[User](u)
	if password != "" {
		if err := s.People.SetPassword(ctx, c.Tenant, u.UID, secret.New(password)); err != nil {
			return User{}, err
		}
		done("password")
		u.Invitation = nil
	}
	if link {
		invited, err := s.People.Invite(ctx, c.Tenant, u.UID, nil)
		if err != nil {
			return User{}, err
		}
		done("link")
		u = invited
	}
	if u.Invitation != nil {
		c.addNote("The first person to open the link chooses the password; the link works once.")
		out.Link, out.LinkExpiresAt = u.Invitation.Link(s.BaseURL(c.Tenant.Org.Slug)), &u.Invitation.ExpiresAt
	}
	return out, nil
}

func (s *Server) updateUser(ctx context.Context, c *call, in UserChange) (User, error) {
	u, err := s.user(ctx, c, in.UserRef)
	if err == nil {
		err = checkPassword(in.Password)
	}
	if err != nil {
		return User{}, err
	}
	var changed []string
	u, err = s.People.UpdateUser(ctx, c.Tenant, u.UID, func(u *identity.User) error {
		changed = apply(c, u, &in)
		return nil
	})
	if err != nil {
		return User{}, withMessage(err, CodeDuplicate, "organization %s has another user with the address %s", in.Org, in.Email)
	}
	c.Note("user", strconv.FormatInt(u.UID, 10))
	c.noteChanged(changed)
	return s.grantAccess(ctx, c, u, in.Password, in.Invite, func(what string) {
		changed = append(changed, what)
		c.noteChanged(changed)
	})
}
