package keys

import (
	"context"
	"errors"
	"fmt"

	"tenantry/backends/store"
	"tenantry/crypto/tokens"
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
