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
	// MaxUID is the largest number that a new user can be given. The numbers after it are
	// left for the users that follow.
	MaxUID = 1<<31 - 1
	// lastUID is the largest integer that every JSON reader takes exactly.
	lastUID = 1<<53 - 1
	// maxEmail is how many bytes an address can have.
	maxEmail = 254
)

// NewUser is what CreateUser needs. Name and Email are required.
type NewUser struct {
	UID         int64 // at most MaxUID; 0: the next free one
	Name        string
	Email       string
	Roles       []string
	Permissions []tenants.Permission
	Teams       []string
	Inactive    bool
}

// CreateUser stores a new user, without a password, and invites it where it is active: see SetPassword and Invite.
func (s *Service) CreateUser(ctx context.Context, t *tenants.Tenant, n NewUser) (*User, error) {
	b := t.People().Batch()
	u := &User{
		UID: n.UID, Name: n.Name, Email: n.Email, Roles: n.Roles, Permissions: n.Permissions, Teams: n.Teams, Active: !n.Inactive,
	}
	if err := s.hold(ctx, t, &b.Preconditions, s.kinds.Users.Resource, u, nil); err != nil {
		return nil, fmt.Errorf("create a user: %w", err)
	}
	users := s.kinds.Users.In(t.People())
	if taken, err := users.Count(ctx, store.Eq("email_key", u.EmailKey)); err != nil {
		return nil, fmt.Errorf("create a user: %w", err)
	} else if taken > 0 { // before a number is spent; the index decides
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
		return keepAdmin(ctx, s.dir, s.kinds, t, u.UID, s.now(), remove) // others may have gone meanwhile, since there was this one
	}
	err := users.StageInsert(b, u)
	if err == nil {
		err = b.Commit(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("create user %d: %w", u.UID, named(err))
	}
	return u, nil
}

func duplicate(field string) error {
	return &store.DuplicateError{Kind: "users", Fields: []string{field}}
}

// named gives the fields of a duplicate the names that callers know.
func named(err error) error {
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

// EmailKey returns the form in which addresses are compared. Only ASCII letters lose
// their case: folding others would make different addresses equal.
func EmailKey(email string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, strings.TrimSpace(email))
}

// UpdateUser lets change alter name, email, roles, permissions, teams and activity; what
// it does to other fields is undone. It may be called several times. Where nothing
// changes no user is written. It returns the user as stored.
func (s *Service) UpdateUser(ctx context.Context, t *tenants.Tenant, uid int64, change func(*User) error) (*User, error) {
	return s.revise(ctx, t, uid, func(need *store.Preconditions, u *User) error {
		edited := *u
		edited.Roles, edited.Permissions, edited.Teams = slices.Clone(u.Roles), slices.Clone(u.Permissions), slices.Clone(u.Teams)
		if err := change(&edited); err != nil {
			return err
		}
		edited.UID = u.UID
		if err := s.hold(ctx, t, need, s.kinds.Users.Resource, &edited, u); err != nil {
			return err
		}
		u.Name, u.Email, u.EmailKey, u.Active = edited.Name, edited.Email, edited.EmailKey, edited.Active
		u.Roles, u.Permissions, u.Teams = edited.Roles, edited.Permissions, edited.Teams
		return nil
	})
}

// errTakesAdmin ends an update that must not be made without keepAdmin.
var errTakesAdmin = errors.New("takes an administrator away")

// errUnchanged ends an update that has nothing to write.
var errUnchanged = errors.New("nothing to change")

// update is revise for a change that requires nothing.
func (s *Service) update(ctx context.Context, t *tenants.Tenant, uid int64, change func(*User) error) (*User, error) {
	return s.revise(ctx, t, uid, func(_ *store.Preconditions, u *User) error { return change(u) })
}

// revise stores a change of a user; where rights or the password changed, cached
// identities become void. So they do where nothing changed: it may be the repetition of
// a change that was stored but not announced.
func (s *Service) revise(ctx context.Context, t *tenants.Tenant, uid int64, change func(*store.Preconditions, *User) error) (*User, error) {
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
			u.Turn(&before)
			if after = *u; equalUsers(&before, &after) {
				return errUnchanged
			}
			if before.ActiveAdmin() && !after.ActiveAdmin() && !guarded {
				return errTakesAdmin
			}
			return nil
		}, nil)
		return err
	}
	if err = write(); errors.Is(err, errTakesAdmin) {
		guarded = true
		err = keepAdmin(ctx, s.dir, s.kinds, t, uid, s.now(), write)
	}
	switch {
	case errors.Is(err, errUnchanged):
		return &after, s.bump(ctx, t)
	case err != nil:
		return nil, fmt.Errorf("update user %d: %w", uid, named(err))
	case sameRights(&before, &after):
		return rec, nil
	}
	return rec, s.bump(ctx, t)
}

// sameRights reports whether whoever is signed in as either may do the same.
func sameRights(a, b *User) bool {
	return a.SessionsFrom == b.SessionsFrom && slices.Equal(a.SignedOut, b.SignedOut) && a.Active == b.Active && a.PasswordRev == b.PasswordRev && slices.Equal(a.Roles, b.Roles) &&
		slices.Equal(a.Permissions, b.Permissions) && slices.Equal(a.Teams, b.Teams)
}

func equalUsers(a, b *User) bool {
	return sameRights(a, b) && a.Name == b.Name && a.Email == b.Email && a.PasswordHash == b.PasswordHash &&
		a.InviteHash == b.InviteHash && a.InviteExpiresAt == b.InviteExpiresAt
}

// Turn ends what was begun or sent to a user who was deactivated since was, or came back: sessions, and a link.
// Sessions would end by themselves only if they were used meanwhile. A link ends as well where the user may do more
// than when it was made, which whoever made it may not, or has another address, since it was sent to the one before.
func (u *User) Turn(was *User) {
	turned := u.Active != was.Active
	if turned {
		u.PasswordRev++
	}
	if turned || u.InviteHash == was.InviteHash && (u.EmailKey != was.EmailKey || u.beyond(was)) {
		u.endLink()
	}
}

// endLink ends the user's single-use link, if there is one.
func (u *User) endLink() { u.InviteHash, u.InviteExpiresAt, u.InviteHeld = "", 0, nil }

// beyond reports whether the user has a role, a permission or a team that was has not, or is limited to teams no more.
func (u *User) beyond(was *User) bool {
	return more(u.Roles, was.Roles) || more(u.Permissions, was.Permissions) || len(was.Teams) > 0 && (len(u.Teams) == 0 || more(u.Teams, was.Teams))
}

func more[T comparable](list, than []T) bool {
	return slices.ContainsFunc(list, func(one T) bool { return !slices.Contains(than, one) })
}

// Deactivate ends a person's access: the sessions die at their next request. Repeating
// it repeats the announcement. may, where set, is asked of the person as stored.
func (s *Service) Deactivate(ctx context.Context, t *tenants.Tenant, uid int64, may func(*User) error) (*User, error) {
	announced := false
	u, err := s.update(ctx, t, uid, func(u *User) error {
		if may != nil {
			if err := may(u); err != nil {
				return err
			}
		}
		announced = u.Active || u.InviteHash == "" // update does it, unless only the invitation goes
		u.Active = false
		u.endLink()
		return nil
	})
	if err != nil || announced {
		return u, err
	}
	return u, s.bump(ctx, t)
}

// FindUser returns the user of that number.
func (s *Service) FindUser(ctx context.Context, t *tenants.Tenant, uid int64) (*User, error) {
	return s.kinds.Users.In(t.People()).First(ctx, store.Query{Filter: store.Eq("uid", uid)})
}

// FindUserByEmail returns the user of that address, without regard to case.
func (s *Service) FindUserByEmail(ctx context.Context, t *tenants.Tenant, email string) (*User, error) {
	key := EmailKey(email)
	if key == "" || len(key) > maxEmail {
		return nil, fmt.Errorf("users: %w", store.ErrNotFound)
	}
	return s.kinds.Users.In(t.People()).First(ctx, store.Query{Filter: store.Eq("email_key", key)})
}

// Users returns users in order of their number, and how many there are.
func (s *Service) Users(ctx context.Context, t *tenants.Tenant, p Page) ([]User, int64, error) {
	return List(ctx, s.kinds.Users.In(t.People()), p, "uid")
}

// EffectivePermissions returns the user's own permissions and those of the roles, in the
// fixed order: all of them for an administrator.
func (s *Service) EffectivePermissions(ctx context.Context, t *tenants.Tenant, u *User) ([]tenants.Permission, error) {
	all, err := s.Permissions(ctx, t, []*User{u})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Permissions is EffectivePermissions of many users.
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

// PrincipalOf returns the user as a caller. An administrator is not limited to teams.
// Errors: tenants.ErrDenied where the user is not active, store.ErrUnavailable.
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
