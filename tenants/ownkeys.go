package tenants

import (
	"context"
	"errors"
	"maps"
	"math"

	"tenantry/backends/store"
)

// ownNumber takes the place of an organization's number in what is bound to the data keys of the installation itself.
// No organization has it.
const ownNumber = math.MaxInt64

// Own returns the installation itself as a tenant. Its workspace is that of the control data, and it has data keys of
// its own but no people.
func (d *Directory) Own() *Tenant {
	return &Tenant{Org: Organization{OrgID: ownNumber}, workspace: d.control}
}

// wrappedKeys reads the wrapped data keys of an organization, or of the installation, from the store. Errors:
// ErrUnknownTenant, store.ErrUnavailable.
func (d *Directory) wrappedKeys(ctx context.Context, org int64) (map[string][]string, error) {
	if org != ownNumber {
		o, err := d.find(ctx, store.Eq("org_id", org))
		if err != nil {
			return nil, err
		}
		return o.DataKeys, nil
	}
	rec, err := d.installations.Get(ctx, ownKeysID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return rec.DataKeys, nil
}

// changeKeys changes the wrapped data keys of an organization, or of the installation, by alter, which may be called
// several times and returns errUnchanged to leave them as they are. Errors: as change, and those of alter.
func (d *Directory) changeKeys(ctx context.Context, org int64, alter func(keys map[string][]string) error) error {
	altered := func(keys map[string][]string) (map[string][]string, error) {
		if keys = maps.Clone(keys); keys == nil {
			keys = map[string][]string{}
		}
		return keys, alter(keys)
	}
	if org != ownNumber {
		_, err := d.change(ctx, store.Eq("org_id", org), func(o *Organization) (err error) {
			if o.State == Removed {
				return ErrUnknownTenant
			}
			o.DataKeys, err = altered(o.DataKeys)
			return err
		})
		return err
	}
	if _, err := insertOrGet(ctx, d.installations, &Installation{Meta: store.Meta{ID: ownKeysID}}); err != nil {
		return err
	}
	_, err := d.installations.Update(ctx, ownKeysID, func(i *Installation) (err error) {
		i.DataKeys, err = altered(i.DataKeys)
		return err
	})
	return err
}
