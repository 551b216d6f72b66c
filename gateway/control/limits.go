package control

import (
	"context"
	"strings"

	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/keys"
	"tenantry/tenants/limits"
)

// inherit is how a limit is written that shall be the default's again.
const inherit = "default"

// LimitsChange says what request limits shall be, each written like 100/s, off or default;
// what is absent stays as it is. With nothing to change it only asks.
type LimitsChange struct {
	Org string `json:"org"`
	// Key is the identifier of the key the limits are of; empty: the organization's.
	Key   string  `json:"key,omitempty"`
	Rate  *string `json:"rate,omitempty"`
	Quota *string `json:"quota,omitempty"`
	// KeyRate and KeyQuota, of an organization, are those of every key without its own.
	KeyRate  *string `json:"key_rate,omitempty"`
	KeyQuota *string `json:"key_quota,omitempty"`
	// Reset makes all of them the defaults before the others are set.
	Reset bool `json:"reset,omitempty"`
}

func (r *LimitsChange) changes() bool {
	return r.Reset || r.Rate != nil || r.Quota != nil || r.KeyRate != nil || r.KeyQuota != nil
}

// RequestLimits are the request limits that hold for an organization.
type RequestLimits struct {
	Org      string `json:"org"`
	Rate     string `json:"rate"`
	Quota    string `json:"quota"`
	KeyRate  string `json:"key_rate"`
	KeyQuota string `json:"key_quota"`
	// Own names those that are the organization's own; the others are defaults.
	Own []string `json:"own"`
}

// KeyLimits are the request limits that hold for a key.
type KeyLimits struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Rate  string `json:"rate"`
	Quota string `json:"quota"`
	// Own names those that are the key's own; the others are the organization's for keys.
	Own []string `json:"own"`
}

// parseLimit reads a limit into a place, where there is one to read.
func parseLimit(faults *fault.List, field string, text *string, into *limits.Limit) {
	switch {
	case text == nil:
	case *text == inherit:
		*into = limits.Limit{}
	case *text == "":
		faults.Add(field, fault.Format, "it is empty; write it like 100/s, off or default")
	default:
		l, err := limits.Parse(*text)
		if err != nil {
			faults.Add(field, fault.Format, "%v", err)
			return
		}
		*into = l
	}
}

// own returns the names of the limits that are set, of names and limits side by side.
func own(names []string, set ...limits.Limit) []string {
	out := []string{}
	for i, l := range set {
		if l.IsSet() {
			out = append(out, names[i])
		}
	}
	return out
}

func (h *handler) limitOrganization(ctx context.Context, r *LimitsChange) (RequestLimits, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return RequestLimits{}, err
	}
	if !r.changes() {
		return h.requestLimits(&t.Org), nil
	}
	var faults fault.List
	apply := func(faults *fault.List, set *limits.Set) {
		if r.Reset {
			*set = limits.Set{}
		}
		parseLimit(faults, "rate", r.Rate, &set.Organization.Rate)
		parseLimit(faults, "quota", r.Quota, &set.Organization.Quota)
		parseLimit(faults, "key_rate", r.KeyRate, &set.Key.Rate)
		parseLimit(faults, "key_quota", r.KeyQuota, &set.Key.Quota)
	}
	if apply(&faults, &limits.Set{}); faults.Err() != nil {
		return RequestLimits{}, faults.Err()
	}
	t, err = h.Directory.Update(ctx, r.Org, func(o *tenants.Organization) error {
		apply(&fault.List{}, &o.RequestLimits) // was read without faults above
		return nil
	})
	if err != nil {
		return RequestLimits{}, err
	}
	out := h.requestLimits(&t.Org)
	return out, h.record(ctx, t, "org.limits", map[string]string{
		"rate": out.Rate, "quota": out.Quota, "key_rate": out.KeyRate, "key_quota": out.KeyQuota, "own": strings.Join(out.Own, ","),
	})
}

func (h *handler) requestLimits(o *tenants.Organization) RequestLimits {
	held, set := o.RequestLimits.Or(h.Limits), o.RequestLimits
	return RequestLimits{
		Org: o.Slug, Rate: held.Organization.Rate.String(), Quota: held.Organization.Quota.String(),
		KeyRate: held.Key.Rate.String(), KeyQuota: held.Key.Quota.String(),
		Own: own([]string{"rate", "quota", "key_rate", "key_quota"}, set.Organization.Rate, set.Organization.Quota, set.Key.Rate, set.Key.Quota),
	}
}

func (h *handler) limitKey(ctx context.Context, r *LimitsChange) (KeyLimits, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return KeyLimits{}, err
	}
	ref := &KeyRef{Org: r.Org, ID: r.Key}
	if !r.changes() {
		k, err := h.Keys.Get(ctx, t, r.Key)
		if err != nil {
			return KeyLimits{}, noKey(err, ref)
		}
		return h.keyLimits(t, k), nil
	}
	var faults fault.List
	if r.KeyRate != nil || r.KeyQuota != nil {
		faults.Add("key_rate", fault.Forbidden, "a key has a rate and a quota; key_rate and key_quota are an organization's")
	}
	apply := func(faults *fault.List, p *limits.Pair) {
		if r.Reset {
			*p = limits.Pair{}
		}
		parseLimit(faults, "rate", r.Rate, &p.Rate)
		parseLimit(faults, "quota", r.Quota, &p.Quota)
	}
	if apply(&faults, &limits.Pair{}); faults.Err() != nil {
		return KeyLimits{}, faults.Err()
	}
	k, err := h.Keys.SetLimits(ctx, t, r.Key, func(p *limits.Pair) { apply(&fault.List{}, p) })
	if err != nil {
		return KeyLimits{}, noKey(err, ref)
	}
	out := h.keyLimits(t, k)
	return out, h.record(ctx, t, "key.limits", map[string]string{
		"key": k.ID, "rate": out.Rate, "quota": out.Quota, "own": strings.Join(out.Own, ","),
	})
}

func (h *handler) keyLimits(t *tenants.Tenant, k *keys.Key) KeyLimits {
	held := k.Limits.Or(t.Org.RequestLimits.Key).Or(h.Limits.Key)
	return KeyLimits{
		ID: k.ID, Name: k.Name, Rate: held.Rate.String(), Quota: held.Quota.String(),
		Own: own([]string{"rate", "quota"}, k.Limits.Rate, k.Limits.Quota),
	}
}

// newKeyLimits reads the limits that a new key shall have. Errors: *fault.Error.
func newKeyLimits(r *NewKey) (limits.Pair, error) {
	var faults fault.List
	var p limits.Pair
	for _, l := range []struct {
		field, text string
		into        *limits.Limit
	}{{"rate", r.Rate, &p.Rate}, {"quota", r.Quota, &p.Quota}} {
		if l.text != "" {
			parseLimit(&faults, l.field, &l.text, l.into)
		}
	}
	return p, faults.Err()
}

// LimitOrganization changes, or without a change shows, an organization's request limits.
func (c *Client) LimitOrganization(ctx context.Context, r LimitsChange) (RequestLimits, error) {
	return call[RequestLimits](ctx, c, "org/limits", r)
}

// LimitKey changes, or without a change shows, the request limits of the key that r names.
func (c *Client) LimitKey(ctx context.Context, r LimitsChange) (KeyLimits, error) {
	return call[KeyLimits](ctx, c, "key/limits", r)
}
