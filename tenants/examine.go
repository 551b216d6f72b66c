package tenants

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"tenantry/backends/store"
)

// Examine reads everything of an organization and tries the keyring on its data keys. It returns
// how many documents there are. Errors: store.ErrUnavailable, in it *driver.DamagedError;
// keyring.ErrUnknownVersion, keyring.ErrCorrupt; the context's own.
func (d *Directory) Examine(ctx context.Context, org *Organization) (documents int64, err error) {
	asked := time.Now()
	org, err = d.find(ctx, store.Eq("org_id", org.OrgID)) // one that was read a while ago must not count as a look at where it is
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

// SlugOf returns the slug of an organization, or its number where the slug cannot be read.
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
