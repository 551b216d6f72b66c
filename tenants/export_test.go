package tenants

import (
	"context"

	"tenantry/backends/store"
)

// Hold leaves an organization as a mover does that stopped while writes were held.
func (d *Directory) Hold(ctx context.Context, slug, to string) error {
	m, err := d.beginMove(ctx, slug, to)
	if err != nil {
		return err
	}
	_, err = m.change(ctx, func(o *Organization) error {
		o.Move.Phase = store.Held
		o.Move.Holds++
		return nil
	})
	return err
}

// ReleaseSeen ends a hold like a replica that saw it and waited too long for its end.
func (d *Directory) ReleaseSeen(ctx context.Context, seen *Organization) error {
	return d.release(ctx, seen.OrgID, func(o *Organization) bool { return o.Move.hold() == seen.Move.hold() })
}

// SpoilDataKeys replaces the organization's data keys by those of another.
func (d *Directory) SpoilDataKeys(ctx context.Context, of, by int64) error {
	other, err := d.find(ctx, store.Eq("org_id", by))
	if err != nil {
		return err
	}
	_, err = d.change(ctx, store.Eq("org_id", of), func(o *Organization) error {
		o.DataKeys = other.DataKeys
		return nil
	})
	return err
}
