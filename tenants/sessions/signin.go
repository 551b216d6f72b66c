package sessions

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/limits"
)

// SignIn returns the active user with this address and password. The attempt is counted before the password is checked,
// so that concurrent attempts cannot exceed the limit. Known and unknown addresses give the same answer after the same
// time, and so does an organization that does not exist (tenants.Directory.Anonymous). Errors: tenants.ErrDenied and
// ErrThrottled, with the user of the address, or nil, for the audit log only; tenants.ErrUnavailable.
func (s *Service) SignIn(
	ctx context.Context, t *tenants.Tenant, email string, password secret.String, remote netip.Addr,
) (*identity.User, error) {
	attempt, throttled := s.countAttempt(ctx, t, email, remote)
	if throttled != nil && !errors.Is(throttled, ErrThrottled) {
		return nil, throttled
	}
	u, err := s.people.FindUserByEmail(ctx, t, email)
	if throttled != nil {
		return u, throttled
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		attempt.undo(ctx)
		return nil, unavailable("signing in", err)
	}
	ok, err := s.people.VerifyPassword(ctx, t, u, password)
	if err != nil {
		attempt.undo(ctx)
		return nil, unavailable("signing in", err)
	}
	if !ok {
		return u, fmt.Errorf("sign-in refused: %w", tenants.ErrDenied)
	}
	attempt.succeeded(ctx)
	return u, nil
}

// AcceptInvite is identity.Service.AcceptInvite for callers without credentials: before the token is looked up, the
// attempt is counted against the network address, together with attempts to sign in. Further errors: ErrThrottled,
// tenants.ErrUnavailable.
func (s *Service) AcceptInvite(
	ctx context.Context, t *tenants.Tenant, token string, password secret.String, remote netip.Addr,
) (*identity.User, error) {
	return s.byLink(ctx, t, remote, func() (*identity.User, error) {
		return s.people.AcceptInvite(ctx, t, token, password)
	})
}

// UseLink is identity.Service.UseSignInLink, counted like AcceptInvite. Further errors: as AcceptInvite.
func (s *Service) UseLink(
	ctx context.Context, t *tenants.Tenant, token string, remote netip.Addr,
) (*identity.User, error) {
	return s.byLink(ctx, t, remote, func() (*identity.User, error) { return s.people.UseSignInLink(ctx, t, token) })
}

// CountRecovery counts an attempt to ask for a new password against the network address and the e-mail address, apart
// from attempts to sign in. Errors: ErrThrottled, tenants.ErrUnavailable.
func (s *Service) CountRecovery(ctx context.Context, t *tenants.Tenant, email string, remote netip.Addr) error {
	a := s.newAttempt(t, "recovery of "+identity.EmailKey(email), remote)
	a.address = s.dir.RedisPrefix() + "signin:r:" + limits.Network(remote).String()
	return a.count(ctx, true)
}

func (s *Service) byLink(
	ctx context.Context, t *tenants.Tenant, remote netip.Addr, use func() (*identity.User, error),
) (*identity.User, error) {
	attempt := s.newAttempt(t, "", remote)
	if err := attempt.count(ctx, false); err != nil {
		return nil, err
	}
	u, err := use()
	if err != nil {
		return nil, err
	}
	s.newAttempt(t, u.Email, remote).succeeded(ctx)
	return u, nil
}
