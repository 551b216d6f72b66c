package tenants

import (
	"context"
	"errors"
	"time"

	"tenantry/backends/store"
)

// sendsWebhooks is the value of Organization.Sends.
const sendsWebhooks = "webhooks"

// Sending is renewed that often, and forgotten no earlier than forgetSending later: a call that adds a webhook has ended
// by then.
const (
	renewSending  = 30 * time.Minute
	forgetSending = time.Hour
)

// NoteSending notes that the organization has webhooks, or is about to have one. Errors: ErrUnknownTenant,
// store.ErrUnavailable.
func (d *Directory) NoteSending(ctx context.Context, t *Tenant) error {
	now := d.now().UnixMilli()
	if t.Org.Sends != "" && now-t.Org.SendsSince < renewSending.Milliseconds() {
		return nil
	}
	_, err := d.change(ctx, store.Eq("org_id", t.Org.OrgID), func(o *Organization) error {
		o.Sends, o.SendsSince = sendsWebhooks, now
		return nil
	})
	return err
}

// ForgetSending notes that the organization has no webhooks, unless that was noted a short time ago or changed since the
// organization was read. Error: store.ErrUnavailable.
func (d *Directory) ForgetSending(ctx context.Context, org *Organization) error {
	if d.now().UnixMilli()-org.SendsSince < forgetSending.Milliseconds() {
		return nil
	}
	_, err := d.change(ctx, store.Eq("org_id", org.OrgID), func(o *Organization) error {
		if o.SendsSince != org.SendsSince {
			return errUnchanged
		}
		o.Sends, o.SendsSince = "", 0
		return nil
	})
	if errors.Is(err, errUnchanged) || errors.Is(err, ErrUnknownTenant) {
		return nil
	}
	return err
}

// Sending returns the active organizations that may have webhooks. Error: store.ErrUnavailable.
func (d *Directory) Sending(ctx context.Context) (all []Organization, err error) {
	err = d.orgs.Each(ctx, store.Eq("sends", sendsWebhooks), store.Live, func(o *Organization) error {
		if o.State == Active {
			all = append(all, *o)
		}
		return nil
	})
	return all, err
}
