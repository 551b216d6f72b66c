package keys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/tokens"
	"tenantry/tenants"
)

// Find searches all organizations for the key with that token, current or rotated, in any state. It returns the key and
// the slug of its organization. Errors: tokens.ErrMalformedKey, store.ErrNotFound, store.ErrUnavailable.
func (s *Service) Find(ctx context.Context, token string) (*Key, string, error) {
	if _, err := tokens.ParseAPIKey(token); err != nil {
		return nil, "", err
	}
	hash := tokens.HashAPIKey(token)
	for after := ""; ; {
		page, err := s.dir.List(ctx, after, 0)
		if err != nil {
			return nil, "", err
		}
		if len(page) == 0 {
			return nil, "", store.ErrNotFound
		}
		for i := range page {
			after = page[i].Slug
			switch k, err := s.byHash(ctx, s.dir.PeopleOf(page[i].OrgID), hash); {
			case err == nil:
				return k, after, nil
			case !errors.Is(err, store.ErrNotFound):
				return nil, "", fmt.Errorf("looking for a key in organization %s: %w", after, err)
			}
		}
	}
}

// maxExpiring bounds the keys that Expiring returns.
const maxExpiring = 100

// Expiring returns keys of the organization that expire after the first time and not after the second, and are not
// revoked, those that expire first. Error: store.ErrUnavailable.
func (s *Service) Expiring(ctx context.Context, t *tenants.Tenant, after, until time.Time) ([]Key, error) {
	found, err := s.kinds.Keys.In(t.People()).Find(ctx, store.Query{
		Filter: store.All(
			store.Where(store.F("expires_at"), store.OpGt, after.UnixMilli()),
			store.Where(store.F("expires_at"), store.OpLte, until.UnixMilli()), store.Eq("revoked_at", int64(0)),
		),
		Sort: []store.Order{store.Asc("expires_at")}, Limit: maxExpiring,
	})
	return found, err
}
