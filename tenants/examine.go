package tenants

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"tenantry/backends/store"
)

// Examine reads every document of an organization and opens its data keys with the keyring. It returns the number of
// documents. Errors: store.ErrUnavailable, which may wrap *driver.DamagedError; keyring.ErrUnknownVersion,
// keyring.ErrCorrupt; that of ctx.
func (d *Directory) Examine(ctx context.Context, org *Organization) (documents int64, err error) {
	asked := time.Now()
	// The caller may have read org long ago, and a placement must be fresh.
	org, err = d.find(ctx, store.Eq("org_id", org.OrgID))
	if err != nil || org.State == Removed {
		return 0, err
	}
	documents, err = d.store.Examine(ctx, org.OrgID, d.placement(org, asked))
	if err != nil {
		return documents, err
	}
	for purpose, wrapped := range org.DataKeys {
		if _, err := d.openDataKeys(vaultKey{org.OrgID, purpose}, wrapped); err != nil {
			return documents, fmt.Errorf("its data keys for %s: %w", purpose, err)
		}
	}
	return documents, nil
}

// SlugOf returns the slug of an organization, or its number if the slug cannot be read.
func (d *Directory) SlugOf(ctx context.Context, org int64) string {
	if slug := d.slugs.Get(org); slug != nil {
		return *slug
	}
	found, err := d.find(ctx, store.Eq("org_id", org))
	if err != nil {
		return strconv.FormatInt(org, 10)
	}
	return found.Slug
}
