package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/passwords"
	"tenantry/crypto/secret"
	"tenantry/crypto/tokens"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// InviteLifetime is how long an invitation is valid.
const InviteLifetime = 72 * time.Hour

// Prefixes of the tokens in links.
const (
	invitePrefix = "inv" // allows choosing a password
	signInPrefix = "sin" // signs in
)

// SetPassword gives the user a new password. Every session and an open link of the user end. Further error:
// passwords.ErrBusy.
func (s *Service) SetPassword(ctx context.Context, t *tenants.Tenant, uid int64, password secret.String) error {
	hash, err := s.hash(ctx, t, password)
	if err != nil {
		return fmt.Errorf("set the password of user %d: %w", uid, err)
	}
	_, err = s.update(ctx, t, uid, func(u *User) error {
		s.setPassword(u, hash)
		return nil
	})
	return err
}

// ReplacePassword is SetPassword for a caller that has proven the password which u had when it was read. It returns the
// user. Further error: tenants.ErrDenied if the user is not active or the password was changed since.
func (s *Service) ReplacePassword(
	ctx context.Context, t *tenants.Tenant, u *User, password secret.String,
) (*User, error) {
	hash, err := s.hash(ctx, t, password)
	if err != nil {
		return nil, fmt.Errorf("replace the password of user %d: %w", u.UID, err)
	}
	shown := u.PasswordRev
	return s.update(ctx, t, u.UID, func(u *User) error {
		if !u.Active || u.PasswordRev != shown {
			return fmt.Errorf("the password of user %d was changed meanwhile: %w", u.UID, tenants.ErrDenied)
		}
		s.setPassword(u, hash)
		return nil
	})
}

func (s *Service) setPassword(u *User, hash string) {
	u.PasswordHash = hash
	u.PasswordRev++
	u.PasswordChangedAt = s.now().UnixMilli()
	u.endLink()
}

func (s *Service) hash(ctx context.Context, t *tenants.Tenant, password secret.String) (string, error) {
	hash, err := s.hasher.Hash(ctx, t.Org.OrgID, password)
	switch {
	case errors.Is(err, passwords.ErrTooShort), errors.Is(err, passwords.ErrTooLong):
		return "", fault.One("password", fault.Length, "%s", err)
	case errors.Is(err, passwords.ErrInvalidText):
		return "", fault.One("password", fault.Format, "%s", err)
	}
	return hash, err
}

// VerifyPassword reports whether the password is the user's. u may be nil: the check takes as long and the result is
// false. A hash with outdated parameters, or of another Unicode form of the password, is replaced. Errors:
// passwords.ErrBusy, that of ctx.
func (s *Service) VerifyPassword(
	ctx context.Context, t *tenants.Tenant, u *User, password secret.String,
) (bool, error) {
	hash := ""
	if u != nil && u.Active {
		hash = u.PasswordHash
	}
	ok, again, err := s.hasher.Verify(ctx, t.Org.OrgID, hash, password)
	if !ok || err != nil {
		return false, err
	}
	if again {
		s.rehash(ctx, t, u, hash, password)
	}
	return true, nil
}

// rehash hashes the password again with the current parameters. Errors are ignored: the next sign-in tries again.
func (s *Service) rehash(ctx context.Context, t *tenants.Tenant, u *User, old string, password secret.String) {
	hash, err := s.hasher.Hash(ctx, t.Org.OrgID, password)
	if err != nil {
		return
	}
	_, _ = s.update(ctx, t, u.UID, func(u *User) error {
		if u.PasswordHash == old {
			u.PasswordHash = hash
		}
		return nil
	})
}

// Invitation is a single-use token that allows a user to set a password. Only its hash is stored.
type Invitation struct {
	Token     secret.String // empty if the user is not active
	ExpiresAt time.Time
	Mailed    bool // the token was also mailed to the user
	// TakeBack undoes the change that created the invitation, for callers that cannot deliver the token. Errors:
	// store.ErrConflict if the user was changed since, store.ErrUnavailable.
	TakeBack func(context.Context) error
}

// Link returns the address that opens the token, below the organization's address, or "" without a token. The token is
// the fragment, because browsers send that neither to servers nor to other sites.
func (i *Invitation) Link(baseURL string) string {
	if i.Token.Reveal() == "" {
		return ""
	}
	return baseURL + "/welcome#" + i.Token.Reveal()
}

// invitation creates an invitation in the user, which the caller stores.
func (s *Service) invitation(ctx context.Context, t *tenants.Tenant, u *User) (*Invitation, error) {
	expires := s.now().Add(InviteLifetime)
	token, err := s.link(ctx, t, u, invitePrefix, expires)
	return &Invitation{Token: token, ExpiresAt: expires.UTC().Truncate(time.Second)}, err
}

// link creates a single-use link in the user, which the caller stores, and notes the permissions that the user holds
// now: see checkInvite.
func (s *Service) link(
	ctx context.Context, t *tenants.Tenant, u *User, prefix string, until time.Time,
) (secret.String, error) {
	held, err := s.EffectivePermissions(ctx, t, u)
	token, hash := tokens.NewOpaque(prefix)
	u.InviteHash, u.InviteExpiresAt, u.InviteHeld = hash, until.UnixMilli(), append([]tenants.Permission{}, held...)
	return token, err
}

// Invite gives the user an Invitation, which replaces an earlier one, and returns the user. check, unless nil, gets the
// user as stored and may refuse.
func (s *Service) Invite(ctx context.Context, t *tenants.Tenant, uid int64, check func(*User) error) (*User, error) {
	var made *Invitation
	var was User
	u, err := s.update(ctx, t, uid, func(u *User) error {
		was = *u
		if !u.Active {
			return fault.One("id", fault.Forbidden, "user %d is not active", uid)
		}
		var err error
		if made, err = s.invitation(ctx, t, u); err != nil {
			return err
		}
		if check != nil {
			return check(u)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("invite: %w", err)
	}
	ours := u.InviteHash
	made.TakeBack = func(ctx context.Context) error {
		_, err := s.update(ctx, t, uid, func(u *User) error {
			if u.InviteHash != ours {
				return store.ErrConflict
			}
			u.InviteHash, u.InviteExpiresAt, u.InviteHeld = was.InviteHash, was.InviteExpiresAt, was.InviteHeld
			return nil
		})
		return err
	}
	u.Invitation = made
	return u, nil
}

// Invited returns the user of an unused invitation. Errors: tenants.ErrDenied, store.ErrUnavailable.
func (s *Service) Invited(ctx context.Context, t *tenants.Tenant, token string) (*User, error) {
	return s.findByLink(ctx, t, invitePrefix, token)
}

func (s *Service) findByLink(ctx context.Context, t *tenants.Tenant, prefix, token string) (*User, error) {
	hash, ok := tokens.HashOpaque(prefix, token)
	if !ok {
		return nil, fmt.Errorf("malformed link: %w", tenants.ErrDenied)
	}
	u, err := s.kinds.Users.In(t.People()).First(ctx, store.Query{Filter: store.Eq("invite_hash", hash)})
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("unknown or used invitation: %w", tenants.ErrDenied)
	}
	if err != nil {
		return nil, err
	}
	return u, s.checkInvite(ctx, t, u, hash)
}

// checkInvite refuses a link that is used or expired. It also refuses one whose user has gained permissions since it
// was created, because the creator may have kept the link and need not hold what a role was given since.
func (s *Service) checkInvite(ctx context.Context, t *tenants.Tenant, u *User, hash string) error {
	if !u.Active || u.InviteHash != hash || s.now().UnixMilli() >= u.InviteExpiresAt {
		return fmt.Errorf("invitation of user %d is used or expired: %w", u.UID, tenants.ErrDenied)
	}
	held, err := s.EffectivePermissions(ctx, t, u)
	if err == nil && hasExtra(held, u.InviteHeld) {
		err = fmt.Errorf("user %d may do more than when the link was made: %w", u.UID, tenants.ErrDenied)
	}
	return err
}

// AcceptInvite sets the password of the invited user and uses the invitation up. Of concurrent calls with one token,
// one succeeds. Errors: tenants.ErrDenied; *fault.Error for a password that is refused, after which the invitation
// stays valid; passwords.ErrBusy.
func (s *Service) AcceptInvite(
	ctx context.Context, t *tenants.Tenant, token string, password secret.String,
) (*User, error) {
	invited, err := s.Invited(ctx, t, token)
	if err != nil {
		return nil, err
	}
	hash, err := s.hash(ctx, t, password)
	if err != nil {
		return nil, err
	}
	inviteHash := invited.InviteHash
	return s.update(ctx, t, invited.UID, func(u *User) error {
		if err := s.checkInvite(ctx, t, u, inviteHash); err != nil {
			return err
		}
		s.setPassword(u, hash)
		return nil
	})
}

// SignInLink returns a single-use token that signs in as the user, without the password, until the given time. An open
// invitation ends. Only the token's hash is stored. Errors: store.ErrNotFound, store.ErrUnavailable, *fault.Error if
// the user is not active.
func (s *Service) SignInLink(
	ctx context.Context, t *tenants.Tenant, uid int64, until time.Time,
) (secret.String, error) {
	var token secret.String
	_, err := s.update(ctx, t, uid, func(u *User) (err error) {
		if !u.Active {
			return fault.One("id", fault.Forbidden, "user %d is not active", uid)
		}
		token, err = s.link(ctx, t, u, signInPrefix, until)
		return err
	})
	return token, err
}

// UseSignInLink uses up the token of a SignInLink and returns its user. Of concurrent calls with one token, one
// succeeds. Errors: tenants.ErrDenied, store.ErrUnavailable.
func (s *Service) UseSignInLink(ctx context.Context, t *tenants.Tenant, token string) (*User, error) {
	linked, err := s.findByLink(ctx, t, signInPrefix, token)
	if err != nil {
		return nil, err
	}
	return s.update(ctx, t, linked.UID, func(u *User) error {
		if err := s.checkInvite(ctx, t, u, linked.InviteHash); err != nil {
			return err
		}
		u.endLink()
		return nil
	})
}
