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
)

// SignIn returns the active user with this address and password. An attempt is counted
// before the password is looked at, so that many at once cannot pass the bound. Known
// and unknown addresses answer alike, in what they say and how long they take; so does
// an organization that is nobody's (tenants.Directory.Anonymous). Errors: tenants.ErrDenied,
// ErrThrottled, tenants.ErrUnavailable; with the first two comes, for the audit log alone,
// the user whose address was given, nil where there is none.
func (s *Service) SignIn(ctx context.Context, t *tenants.Tenant, email string, password secret.String, remote netip.Addr) (*identity.User, error) {
	attempt, throttled := s.attempt(ctx, t, email, remote)
	if throttled != nil && !errors.Is(throttled, ErrThrottled) {
		return nil, throttled
	}
	u, err := s.people.FindUserByEmail(ctx, t, email)
	if throttled != nil {
		return u, throttled
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		attempt.unseen(ctx)
		return nil, unavailable("signing in", err)
	}
	ok, err := s.people.VerifyPassword(ctx, t, u, password)
	if err != nil {
		attempt.unseen(ctx)
		return nil, unavailable("signing in", err)
	}
	if !ok {
		return u, fmt.Errorf("sign-in refused: %w", tenants.ErrDenied)
	}
	attempt.succeeded(ctx)
	return u, nil
}

// AcceptInvite is identity.Service.AcceptInvite for callers nobody knows: an attempt is counted
// by its network address, with those to sign in, before the token is looked at. Further
// errors: ErrThrottled, tenants.ErrUnavailable.
func (s *Service) AcceptInvite(ctx context.Context, t *tenants.Tenant, token string, password secret.String, remote netip.Addr) (*identity.User, error) {
	return s.byLink(ctx, t, remote, func() (*identity.User, error) { return s.people.AcceptInvite(ctx, t, token, password) })
}

// UseLink is identity.Service.UseSignInLink, counted as AcceptInvite is. Further errors: as there.
func (s *Service) UseLink(ctx context.Context, t *tenants.Tenant, token string, remote netip.Addr) (*identity.User, error) {
	return s.byLink(ctx, t, remote, func() (*identity.User, error) { return s.people.UseSignInLink(ctx, t, token) })
}

func (s *Service) byLink(ctx context.Context, t *tenants.Tenant, remote netip.Addr, use func() (*identity.User, error)) (*identity.User, error) {
	attempt := s.named(t, "", remote)
	if err := attempt.count(ctx, false); err != nil {
		return nil, err
	}
	u, err := use()
	if err != nil {
		return nil, err
	}
	s.named(t, u.Email, remote).succeeded(ctx)
	return u, nil
}
