package identity

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// Recover gives the active user with that address an Invitation that is valid for the duration life, which replaces an
// open one, and returns the user. The password and the sessions stay as they are until the invitation is used. Errors:
// store.ErrNotFound if no active user has the address, store.ErrConflict, store.ErrUnavailable.
func (s *Service) Recover(ctx context.Context, t *tenants.Tenant, email string, life time.Duration) (*User, error) {
	found, err := s.FindUserByEmail(ctx, t, email)
	if err != nil {
		return nil, err
	}
	var made *Invitation
	u, err := s.update(ctx, t, found.UID, func(u *User) error {
		if !u.Active || u.EmailKey != EmailKey(email) {
			return store.ErrNotFound
		}
		expires := s.now().Add(life)
		token, err := s.link(ctx, t, u, invitePrefix, expires)
		made = &Invitation{Token: token, ExpiresAt: expires.UTC().Truncate(time.Second)}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("recover the password of user %d: %w", found.UID, err)
	}
	u.Invitation = made
	return u, nil
}

// Admins returns active administrators of the organization, at most the given number, by their numbers.
func (s *Service) Admins(ctx context.Context, t *tenants.Tenant, most int) ([]User, error) {
	all, err := s.kinds.Users.In(t.People()).Find(ctx, store.Query{Filter: store.Eq("roles", AdminRole), Limit: store.MaxLimit})
	all = slices.DeleteFunc(all, func(u User) bool { return !u.ActiveAdmin() })
	return all[:min(len(all), most)], err
}
