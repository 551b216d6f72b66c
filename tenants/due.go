package tenants

import (
	"context"
	"errors"
	"time"

	"tenantry/backends/store"
)

// Work that is due sooner than dueSettled after it was noted is looked for each dueAgain until then: a call that stores
// what is due has ended by then.
const (
	dueSettled = time.Hour
	dueAgain   = time.Minute
)

// NoteDue notes that work of the organization is due at a time, or is about to be stored that is. Errors:
// ErrUnknownTenant, store.ErrUnavailable.
func (d *Directory) NoteDue(ctx context.Context, t *Tenant, at time.Time) error {
	_, err := d.change(ctx, store.Eq("org_id", t.Org.OrgID), func(o *Organization) error {
		if ms := at.UnixMilli(); o.DueAt == 0 || ms < o.DueAt {
			o.DueAt = ms
		}
		o.DueSince = d.now().UnixMilli()
		return nil
	})
	return err
}

// SetDue notes when the next work of an organization is due; zero: there is none. It does nothing if something was noted
// since the organization was read. Error: store.ErrUnavailable.
func (d *Directory) SetDue(ctx context.Context, org *Organization, next time.Time) error {
	now := d.now()
	at := int64(0)
	if !next.IsZero() {
		at = next.UnixMilli()
	}
	if again := now.Add(dueAgain).UnixMilli(); now.UnixMilli()-org.DueSince < dueSettled.Milliseconds() && (at == 0 || again < at) {
		at = again
	}
	if at == org.DueAt {
		return nil
	}
	_, err := d.change(ctx, store.Eq("org_id", org.OrgID), func(o *Organization) error {
		if o.DueSince != org.DueSince || o.DueAt != org.DueAt {
			return errUnchanged
		}
		o.DueAt = at
		return nil
	})
	if errors.Is(err, errUnchanged) || errors.Is(err, ErrUnknownTenant) {
		return nil
	}
	return err
}

// Due returns active organizations whose work is due, those first that have waited longest, at most that many. Error:
// store.ErrUnavailable.
func (d *Directory) Due(ctx context.Context, limit int) ([]Organization, error) {
	return d.orgs.Find(ctx, store.Query{
		Filter: store.All(
			store.Eq("state", string(Active)), store.Where(store.F("due_at"), store.OpGt, 0),
			store.Where(store.F("due_at"), store.OpLte, d.now().UnixMilli()),
		),
		Sort: []store.Order{store.Asc("due_at")}, Limit: limit,
	})
}
