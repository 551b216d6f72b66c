package control

import (
	"context"
	"slices"
	"strings"

	"tenantry/backends/api"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/keys"
	"tenantry/tenants/limits"
)

// inherit is how a limit is written that shall be the default's again.
const inherit = "default"

// LimitsChange says what request limits an organization shall have, each written like 100/s, off or
// default; what is absent stays as it is. With nothing to change it only asks.
type LimitsChange struct {
	Org      string  `json:"org" rule:"ref=organization" arg:"the organization's slug"`
	Rate     *string `json:"rate,omitempty" doc:"the <limit> of the whole organization against bursts"`
	Quota    *string `json:"quota,omitempty" doc:"the <limit> of the whole organization over a longer period"`
	KeyRate  *string `json:"key_rate,omitempty" doc:"the <limit> of each key, and of each person, against bursts"`
	KeyQuota *string `json:"key_quota,omitempty" doc:"the <limit> of each key, and of each person, over a longer period"`
	Reset    bool    `json:"reset,omitempty" doc:"begin with the defaults again"`
}

// KeyLimitsChange says the same of a key.
type KeyLimitsChange struct {
	Org   string  `json:"org" rule:"ref=organization"`
	Key   string  `json:"key" arg:"the key's identifier"`
	Rate  *string `json:"rate,omitempty" doc:"the <limit> against bursts"`
	Quota *string `json:"quota,omitempty" doc:"the <limit> over a longer period"`
	Reset bool    `json:"reset,omitempty" doc:"begin with the organization's limits for keys again"`
}

// RequestLimits are the request limits that hold for an organization.
type RequestLimits struct {
	Org      string `json:"org"`
	Rate     string `json:"rate"`
	Quota    string `json:"quota"`
	KeyRate  string `json:"key_rate"`
	KeyQuota string `json:"key_quota"`
	Owned
}

// KeyLimits are the request limits that hold for a key.
type KeyLimits struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Rate  string `json:"rate"`
	Quota string `json:"quota"`
	Owned
}

// Owned names the limits that are one's own. The others are defaults, or of a key the organization's.
type Owned struct {
	Own []string `json:"own"`
}

// Cells returns what a table shows of a field: of a limit, whose it is too.
func (o Owned) Cells(field, text string) []string {
	switch {
	case slices.Contains(o.Own, field):
		return []string{text, "own"}
	case slices.Contains(limitNames(), field):
		return []string{text, inherit}
	}
	return []string{text}
}

// limitNames are the limits of an organization in the order of its handler; a key has the first two.
func limitNames() []string { return []string{"rate", "quota", "key_rate", "key_quota"} }

// alteration reads how limits are to be changed: nil where nothing is given. Errors: *fault.Error.
func alteration(reset bool, texts ...*string) (func(...*limits.Limit), error) {
	var faults fault.List
	wanted := make([]*limits.Limit, len(texts))
	for i, text := range texts {
		switch {
		case text == nil:
			continue
		case *text == "":
			faults.Add(limitNames()[i], fault.Format, "it is empty; write it like 100/s, off or default")
		case *text == inherit:
			wanted[i] = &limits.Limit{}
		default:
			l, err := limits.Parse(*text)
			if err != nil {
				faults.Add(limitNames()[i], fault.Format, "%v", err)
			}
			wanted[i] = &l
		}
	}
	if !reset && !slices.ContainsFunc(texts, func(text *string) bool { return text != nil }) {
		return nil, nil //nolint:nilnil // nothing is to be changed
	}
	return func(set ...*limits.Limit) {
		for i, l := range set {
			if reset {
				*l = limits.Limit{}
			}
			if wanted[i] != nil {
				*l = *wanted[i]
			}
		}
	}, faults.Err()
}

// told returns limits as texts by name, and which of them are set themselves, and notes all that where they changed.
func told(c *call, changed bool, held, set []limits.Limit) (texts []string, own Owned) {
	own.Own = []string{}
	for i, name := range limitNames()[:len(held)] {
		texts = append(texts, held[i].String())
		if set[i].IsSet() {
			own.Own = append(own.Own, name)
		}
		if changed {
			c.Note(name, texts[i])
		}
	}
	if changed {
		c.Note("own", strings.Join(own.Own, ","))
	}
	return texts, own
}

const howLimits = "\n\nA limit is written like 100/s, 6000/m, 20000/h or 100000/d, off where there shall be none, or default.\n" +
	"Without a flag that changes something the limits that hold are shown."

func (s *Server) orgLimits() Command {
	return command(Command{
		Line: "org limits SLUG", Short: "Show or set how many requests an organization and its keys may send",
		Long:    "Show or set how many requests an organization may send, and each of its keys that has no limits of its own." + howLimits,
		Example: "  tenantry org limits acme --rate 100/s --quota 100000/d --key-rate 20/s",
		Audit:   api.AuditNoted, Table: "rate, quota, key_rate, key_quota",
	}, func(ctx context.Context, c *call, in LimitsChange) (RequestLimits, error) {
		t := c.Tenant
		alter, err := alteration(in.Reset, in.Rate, in.Quota, in.KeyRate, in.KeyQuota)
		if alter != nil && err == nil {
			t, err = s.Directory.Update(ctx, in.Org, func(o *tenants.Organization) error {
				r := &o.RequestLimits
				alter(&r.Organization.Rate, &r.Organization.Quota, &r.Key.Rate, &r.Key.Quota)
				return nil
			})
		}
		if err != nil {
			return RequestLimits{}, err
		}
		four := func(s limits.Set) []limits.Limit {
			return []limits.Limit{s.Organization.Rate, s.Organization.Quota, s.Key.Rate, s.Key.Quota}
		}
		texts, own := told(c, alter != nil, four(t.Org.RequestLimits.Or(s.Limits)), four(t.Org.RequestLimits))
		return RequestLimits{in.Org, texts[0], texts[1], texts[2], texts[3], own}, nil
	})
}

func (s *Server) keyLimits() Command {
	return command(Command{
		Line: "key limits ID --org SLUG", Short: "Show or set how many requests an API key may send",
		Long: "Show or set how many requests an API key may send." + howLimits, Audit: api.AuditNoted, Table: "id, name, rate, quota",
	}, func(ctx context.Context, c *call, in KeyLimitsChange) (KeyLimits, error) {
		alter, err := alteration(in.Reset, in.Rate, in.Quota)
		if err != nil {
			return KeyLimits{}, err
		}
		var k *keys.Key
		if alter == nil {
			k, err = s.Keys.Get(ctx, c.Tenant, in.Key)
		} else if k, err = s.Keys.SetLimits(ctx, c.Tenant, in.Key, func(p *limits.Pair) { alter(&p.Rate, &p.Quota) }); err == nil {
			c.Note("key", k.ID)
		}
		if err != nil {
			return KeyLimits{}, noKey(err, KeyRef{in.Org, in.Key})
		}
		held := k.Limits.Or(c.Tenant.Org.RequestLimits.Key).Or(s.Limits.Key)
		texts, own := told(c, alter != nil, []limits.Limit{held.Rate, held.Quota}, []limits.Limit{k.Limits.Rate, k.Limits.Quota})
		return KeyLimits{k.ID, k.Name, texts[0], texts[1], own}, nil
	})
}
