package identity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tenantry/backends/store"
	"tenantry/tenants"
)

const (
	// MaxUID is the largest number that a caller may give a new user. The counter continues beyond it.
	MaxUID = 1<<31 - 1
	// lastUID is the largest integer that every JSON decoder represents exactly.
	lastUID = 1<<53 - 1
	// maxEmail is the maximum length of an address in bytes.
	maxEmail = 254
)

// NewUser describes a user for CreateUser. Name and Email are required.
type NewUser struct {
	UID         int64 // at most MaxUID; 0: the next free one
	Name        string
	Email       string
	Roles       []string
	Permissions []tenants.Permission
	Teams       []string
	Inactive    bool
}

// CreateUser stores a new user without a password, and invites the user if active: see SetPassword and Invite.
func (s *Service) CreateUser(ctx context.Context, t *tenants.Tenant, n NewUser) (*User, error) {
	b := t.People().Batch()
	u := &User{
		UID: n.UID, Name: n.Name, Email: n.Email, Active: !n.Inactive,
		Roles: n.Roles, Permissions: n.Permissions, Teams: n.Teams,
	}
	if err := s.validate(ctx, t, &b.Preconditions, s.kinds.Users.Resource, u, nil); err != nil {
		return nil, fmt.Errorf("create a user: %w", err)
	}
	users := s.kinds.Users.In(t.People())
	if taken, err := users.Count(ctx, store.Eq("email_key", u.EmailKey)); err != nil {
		return nil, fmt.Errorf("create a user: %w", err)
	} else if taken > 0 { // saves a number; the unique index decides
		return nil, fmt.Errorf("create a user: %w", duplicate("email"))
	}
	if err := s.kinds.Users.Number(ctx, t.People(), []any{u}); err != nil {
		return nil, fmt.Errorf("create a user: %w", err)
	}
	u.Invitation = &Invitation{}
	if u.Active {
		var err error
		if u.Invitation, err = s.invitation(ctx, t, u); err != nil {
			return nil, fmt.Errorf("create a user: %w", err)
		}
	}
	u.Invitation.TakeBack = func(ctx context.Context) error {
		remove := func() error { return users.Delete(ctx, u) }
		if !u.ActiveAdmin() {
			return remove()
		}
		// The other administrators may have been removed since this one was created.
		return keepAdmin(ctx, s.dir, s.kinds, t, u.UID, s.now(), remove)
	}
	err := users.StageInsert(b, u)
	if err == nil {
		err = b.Commit(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("create user %d: %w", u.UID, publicNames(err))
	}
	return u, nil
}

func duplicate(field string) error {
	return &store.DuplicateError{Kind: "users", Fields: []string{field}}
}

// publicNames gives the fields of a *store.DuplicateError the names that callers know.
func publicNames(err error) error {
	var dup *store.DuplicateError
	if !errors.As(err, &dup) {
		return err
	}
	fields := slices.Clone(dup.Fields)
	for i, f := range fields {
		switch f {
		case "email_key":
			fields[i] = "email"
		case "uid":
			fields[i] = "id"
		}
	}
	return &store.DuplicateError{Kind: dup.Kind, Fields: fields, Position: dup.Position}
}

// EmailKey returns the form in which addresses are compared. It lowers the case of ASCII letters only, because folding
// other letters would make different addresses equal.
func EmailKey(email string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, strings.TrimSpace(email))
}

// UpdateUser changes name, email, roles, permissions, teams and activity of a user by change, which may be called
// several times. Changes of other fields are dropped. If nothing changes, no user is written. It returns the user as
// stored.
func (s *Service) UpdateUser(
	ctx context.Context, t *tenants.Tenant, uid int64, change func(*User) error,
) (*User, error) {
	return s.revise(ctx, t, uid, func(need *store.Preconditions, u *User) error {
		edited := *u
		edited.Roles, edited.Teams = slices.Clone(u.Roles), slices.Clone(u.Teams)
		edited.Permissions = slices.Clone(u.Permissions)
		if err := change(&edited); err != nil {
			return err
		}
		edited.UID = u.UID
		if err := s.validate(ctx, t, need, s.kinds.Users.Resource, &edited, u); err != nil {
			return err
		}
		u.Name, u.Email, u.EmailKey, u.Active = edited.Name, edited.Email, edited.EmailKey, edited.Active
		u.Roles, u.Permissions, u.Teams = edited.Roles, edited.Permissions, edited.Teams
		return nil
	})
}

// errRemovesAdmin ends an update that must run under keepAdmin.
var errRemovesAdmin = errors.New("takes an administrator away")

// errUnchanged ends an update that has nothing to write.
var errUnchanged = errors.New("nothing to change")

// update is revise for a change without preconditions.
func (s *Service) update(ctx context.Context, t *tenants.Tenant, uid int64, change func(*User) error) (*User, error) {
	return s.revise(ctx, t, uid, func(_ *store.Preconditions, u *User) error { return change(u) })
}

// revise stores a change of a user. If rights or the password changed, cached identities become void. They also become
// void if nothing changed, because the call may repeat a change that was stored but not announced.
func (s *Service) revise(
	ctx context.Context, t *tenants.Tenant, uid int64, change func(*store.Preconditions, *User) error,
) (*User, error) {
	found, err := s.FindUser(ctx, t, uid)
	if err != nil {
		return nil, err
	}
	var before, after User
	var rec *User
	guarded := false
	write := func() (err error) {
		rec, err = s.kinds.Users.In(t.People()).Revise(ctx, found.ID, func(need *store.Preconditions, u *User) error {
			before = *u
			if err := change(need, u); err != nil {
				return err
			}
			u.Invalidate(&before)
			if after = *u; equalUsers(&before, &after) {
				return errUnchanged
			}
			if before.ActiveAdmin() && !after.ActiveAdmin() && !guarded {
				return errRemovesAdmin
			}
			return nil
		}, nil)
		return err
	}
	if err = write(); errors.Is(err, errRemovesAdmin) {
		guarded = true
		err = keepAdmin(ctx, s.dir, s.kinds, t, uid, s.now(), write)
	}
	switch {
	case errors.Is(err, errUnchanged):
		return &after, s.bump(ctx, t)
	case err != nil:
		return nil, fmt.Errorf("update user %d: %w", uid, publicNames(err))
	case sameRights(&before, &after):
		return rec, nil
	}
	return rec, s.bump(ctx, t)
}

// sameRights reports whether sessions of both users are valid alike and have the same rights.
func sameRights(a, b *User) bool {
	return a.Active == b.Active && a.PasswordRev == b.PasswordRev &&
		a.SessionsFrom == b.SessionsFrom && slices.Equal(a.SignedOut, b.SignedOut) &&
		slices.Equal(a.Roles, b.Roles) && slices.Equal(a.Permissions, b.Permissions) && slices.Equal(a.Teams, b.Teams)
}

func equalUsers(a, b *User) bool {
	return sameRights(a, b) && a.Name == b.Name && a.Email == b.Email && a.PasswordHash == b.PasswordHash &&
		a.InviteHash == b.InviteHash && a.InviteExpiresAt == b.InviteExpiresAt
}

// Invalidate ends the sessions and the link of a user who was deactivated or reactivated since was; otherwise those
// sessions would end only when they are used. It also ends the link if the user gained rights since it was created,
// because its creator may not hold them, or has another address, because the link was sent to the former one.
func (u *User) Invalidate(was *User) {
	turned := u.Active != was.Active
	if turned {
		u.PasswordRev++
	}
	if turned || u.InviteHash == was.InviteHash && (u.EmailKey != was.EmailKey || u.exceeds(was)) {
		u.endLink()
	}
}

// endLink ends the user's single-use link, if there is one.
func (u *User) endLink() { u.InviteHash, u.InviteExpiresAt, u.InviteHeld = "", 0, nil }

// exceeds reports whether the user has a role, a permission or a team that was has not, or is no longer limited to
// teams.
func (u *User) exceeds(was *User) bool {
	return hasExtra(u.Roles, was.Roles) || hasExtra(u.Permissions, was.Permissions) || len(was.Teams) > 0 &&
		(len(u.Teams) == 0 || hasExtra(u.Teams, was.Teams))
}

// hasExtra reports whether list has an element that than has not.
func hasExtra[T comparable](list, than []T) bool {
	return slices.ContainsFunc(list, func(one T) bool { return !slices.Contains(than, one) })
}

// Deactivate deactivates a user, whose sessions end at their next request. Repeating it repeats the announcement.
// check, unless nil, gets the user as stored and may refuse.
func (s *Service) Deactivate(
	ctx context.Context, t *tenants.Tenant, uid int64, check func(*User) error,
) (*User, error) {
	announced := false
	u, err := s.update(ctx, t, uid, func(u *User) error {
		if check != nil {
			if err := check(u); err != nil {
				return err
			}
		}
		announced = u.Active || u.InviteHash == "" // update announces, unless only the link ends
		u.Active = false
		u.endLink()
		return nil
	})
	if err != nil || announced {
		return u, err
	}
	return u, s.bump(ctx, t)
}

// FindUser returns the user with that number.
func (s *Service) FindUser(ctx context.Context, t *tenants.Tenant, uid int64) (*User, error) {
	return s.kinds.Users.In(t.People()).First(ctx, store.Query{Filter: store.Eq("uid", uid)})
}

// FindUserByEmail returns the user with that address, ignoring the case of ASCII letters.
func (s *Service) FindUserByEmail(ctx context.Context, t *tenants.Tenant, email string) (*User, error) {
	key := EmailKey(email)
	if key == "" || len(key) > maxEmail {
		return nil, fmt.Errorf("users: %w", store.ErrNotFound)
	}
	return s.kinds.Users.In(t.People()).First(ctx, store.Query{Filter: store.Eq("email_key", key)})
}

// Users returns one page of users in order of their numbers, and the total number.
func (s *Service) Users(ctx context.Context, t *tenants.Tenant, p Page) ([]User, int64, error) {
	return List(ctx, s.kinds.Users.In(t.People()), p, "uid")
}

// EffectivePermissions returns the permissions of the user and of the user's roles, in the fixed order. An
// administrator has all.
func (s *Service) EffectivePermissions(ctx context.Context, t *tenants.Tenant, u *User) ([]tenants.Permission, error) {
	all, err := s.Permissions(ctx, t, []*User{u})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Permissions returns the EffectivePermissions of each user.
func (s *Service) Permissions(ctx context.Context, t *tenants.Tenant, users []*User) ([][]tenants.Permission, error) {
	var names []string
	for _, u := range users {
		if !u.IsAdmin() {
			names = append(names, u.Roles...)
		}
	}
	slices.Sort(names)
	roles, err := s.rolesNamed(ctx, t, slices.Compact(names))
	if err != nil {
		return nil, err
	}
	all := make([][]tenants.Permission, len(users))
	for i, u := range users {
		all[i] = slices.DeleteFunc(tenants.AllPermissions(), func(p tenants.Permission) bool {
			return !u.IsAdmin() && !slices.Contains(u.Permissions, p) && !slices.ContainsFunc(roles, func(r Role) bool {
				return slices.Contains(u.Roles, r.Name) && slices.Contains(r.Permissions, p)
			})
		})
	}
	return all, nil
}

// IsAdmin reports whether the user has the role admin.
func (u *User) IsAdmin() bool { return slices.Contains(u.Roles, AdminRole) }

// PrincipalOf returns the user as a principal. An administrator is not limited to teams. Errors: tenants.ErrDenied if
// the user is not active, store.ErrUnavailable.
func (s *Service) PrincipalOf(ctx context.Context, t *tenants.Tenant, u *User) (*tenants.Principal, error) {
	if !u.Active {
		return nil, fmt.Errorf("user %d is not active: %w", u.UID, tenants.ErrDenied)
	}
	permissions, err := s.EffectivePermissions(ctx, t, u)
	if err != nil {
		return nil, err
	}
	p := &tenants.Principal{Kind: tenants.Person, UserID: u.UID, Admin: u.IsAdmin(), Permissions: permissions}
	if !p.Admin && len(u.Teams) > 0 {
		p.Teams = slices.Clone(u.Teams)
	}
	return p, nil
}
