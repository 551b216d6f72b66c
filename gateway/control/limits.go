package control

import (
	"context"
	"slices"
	"strings"

	"tenantry/internal/fault"
	"tenantry/internal/rate"
	"tenantry/operation"
	"tenantry/tenants"
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
	VisitorLimits
	Reset bool `json:"reset,omitempty" doc:"begin with the defaults again"`
}

// VisitorLimits are those of each address from which pages use a browser key.
type VisitorLimits struct {
	VisitorRate  *string `json:"visitor_rate,omitempty" doc:"the <limit> of each address from which pages use a browser key, against bursts"`
	VisitorQuota *string `json:"visitor_quota,omitempty" doc:"the <limit> of each such address over a longer period"`
}

// none refuses limits of visitors for a key that has none. Errors: *fault.Error.
func (l VisitorLimits) none() error {
	var faults fault.List
	for i, text := range []*string{l.VisitorRate, l.VisitorQuota} {
		if text != nil {
			faults.Add(keyLimitNames()[2+i], fault.Forbidden, "only browser keys have visitors; this key is of another kind")
		}
	}
	return faults.Err()
}

// KeyLimitsChange says the same of a key.
type KeyLimitsChange struct {
	KeyRef
	Rate  *string `json:"rate,omitempty" doc:"the <limit> against bursts"`
	Quota *string `json:"quota,omitempty" doc:"the <limit> over a longer period"`
	VisitorLimits
	Reset bool `json:"reset,omitempty" doc:"begin with the organization's limits for keys again"`
}

// RequestLimits are the request limits that hold for an organization, or for a key.
type RequestLimits struct {
	Org      string `json:"org,omitempty"`
	ID       string `json:"id,omitempty"`
	Name     string `json:"name,omitempty"`
	Rate     string `json:"rate"`
	Quota    string `json:"quota"`
	KeyRate  string `json:"key_rate,omitempty"`
	KeyQuota string `json:"key_quota,omitempty"`
	// Those of each address from which pages use the key, or any browser key.
	VisitorRate  string   `json:"visitor_rate,omitempty"`
	VisitorQuota string   `json:"visitor_quota,omitempty"`
	Own          []string `json:"own"` // the names of its own limits; the others are defaults, or of a key the organization's
}

// Cells returns what a table shows of a field: of a limit, whose it is too.
func (r RequestLimits) Cells(field string, shown any) []any {
	switch {
	case slices.Contains(r.Own, field):
		return []any{shown, "own"}
	case slices.Contains(orgLimitNames(), field):
		return []any{shown, inherit}
	}
	return []any{shown}
}

// orgLimitNames and keyLimitNames are the limits of an organization, and of a key, in the order of their handlers.
func orgLimitNames() []string {
	return []string{"rate", "quota", "key_rate", "key_quota", "visitor_rate", "visitor_quota"}
}

func keyLimitNames() []string { return []string{"rate", "quota", "visitor_rate", "visitor_quota"} }

// field returns where the limit of that name is told.
func (r *RequestLimits) field(name string) *string {
	return map[string]*string{
		"rate": &r.Rate, "quota": &r.Quota, "key_rate": &r.KeyRate, "key_quota": &r.KeyQuota, "visitor_rate": &r.VisitorRate, "visitor_quota": &r.VisitorQuota,
	}[name]
}

// alteration reads how limits are to be changed: nil where nothing is given. Errors: *fault.Error.
func alteration(reset bool, names []string, texts ...*string) (func(...*rate.Limit), error) {
	var faults fault.List
	wanted := make([]*rate.Limit, len(texts))
	for i, text := range texts {
		if reset {
			wanted[i] = &rate.Limit{}
		}
		switch {
		case text == nil:
			continue
		case *text == "":
			faults.Add(names[i], fault.Format, "it is empty; write it like 100/s, off or default")
		case *text == inherit:
			wanted[i] = &rate.Limit{}
		default:
			l, err := rate.Parse(*text)
			if err != nil {
				faults.Add(names[i], fault.Format, "%v", err)
			}
			wanted[i] = &l
		}
	}
	if !slices.ContainsFunc(wanted, func(l *rate.Limit) bool { return l != nil }) {
		return nil, faults.Err()
	}
	return func(set ...*rate.Limit) {
		for i, l := range set {
			if wanted[i] != nil {
				*l = *wanted[i]
			}
		}
	}, faults.Err()
}

// tell says which limits hold and which of them are set themselves, and notes all that where they changed.
func (r *RequestLimits) tell(c *call, changed bool, names []string, held, set []*rate.Limit) {
	r.Own = []string{}
	for i, name := range names[:len(held)] {
		to := r.field(name)
		*to = held[i].String()
		if set[i].IsSet() {
			r.Own = append(r.Own, name)
		}
		if changed {
			c.Note(name, *to)
			c.Note("own", strings.Join(r.Own, ","))
		}
	}
}

const howLimits = "\n\nA limit is written like 100/s, 6000/m, 20000/h or 100000/d, off where there shall be none, or default.\n" +
	"Without a flag that changes something the limits that hold are shown."

func (s *Server) orgLimits() Command {
	return command(Command{
		Line: "org limits SLUG", Short: "Show or set how many requests an organization and its keys may send",
		Long:    "Show or set how many requests an organization may send, and each of its keys that has no limits of its own." + howLimits,
		Example: "  tenantry org limits acme --rate 100/s --quota 100000/d --key-rate 20/s",
		Audit:   operation.AuditNoted, Table: "rate, quota, key_rate, key_quota, visitor_rate, visitor_quota",
	}, func(ctx context.Context, c *call, in LimitsChange) (RequestLimits, error) {
		all := func(s *rate.Set) []*rate.Limit {
			return []*rate.Limit{&s.Organization.Rate, &s.Organization.Quota, &s.Key.Rate, &s.Key.Quota, &s.Visitor.Rate, &s.Visitor.Quota}
		}
		t := c.Tenant
		alter, err := alteration(in.Reset, orgLimitNames(), in.Rate, in.Quota, in.KeyRate, in.KeyQuota, in.VisitorRate, in.VisitorQuota)
		if alter != nil && err == nil {
			t, err = s.Directory.Update(ctx, in.Org, func(o *tenants.Organization) error {
				alter(all(&o.RequestLimits)...)
				return nil
			})
		}
		if err != nil {
			return RequestLimits{}, err
		}
		out, held := RequestLimits{Org: in.Org}, t.Org.RequestLimits.Or(s.Limits)
		out.tell(c, alter != nil, orgLimitNames(), all(&held), all(&t.Org.RequestLimits))
		return out, nil
	})
}

func (s *Server) keyLimits() Command {
	return command(Command{
		Line: "key limits ID --org SLUG", Short: "Show or set how many requests an API key may send",
		Long: "Show or set how many requests an API key may send." + howLimits, Audit: operation.AuditNoted, Table: "id, name, rate, quota, visitor_rate?, visitor_quota?",
	}, func(ctx context.Context, c *call, in KeyLimitsChange) (RequestLimits, error) {
		alter, err := alteration(in.Reset, keyLimitNames(), in.Rate, in.Quota, in.VisitorRate, in.VisitorQuota)
		if err != nil {
			return RequestLimits{}, err
		}
		k, err := s.Keys.Get(ctx, c.Tenant, in.ID)
		if err == nil && k.Kind != tenants.Browser {
			if err := in.none(); err != nil {
				return RequestLimits{}, err
			}
		}
		if err == nil && alter != nil {
			k, err = s.Keys.SetLimits(ctx, c.Tenant, in.ID, func(own, visitors *rate.Pair) {
				alter(&own.Rate, &own.Quota, &visitors.Rate, &visitors.Quota)
			})
		}
		if err != nil {
			return RequestLimits{}, noKey(err, in.KeyRef)
		}
		if alter != nil {
			c.Note("key", k.ID)
		}
		out, held := RequestLimits{ID: k.ID, Name: k.Name}, k.Limits.Or(c.Tenant.Org.RequestLimits.Key).Or(s.Limits.Key)
		visitors := k.Visitors.Or(c.Tenant.Org.RequestLimits.Visitor).Or(s.Limits.Visitor)
		of := map[bool]int{true: 4, false: 2}[k.Kind == tenants.Browser] // others have no visitors
		out.tell(c, alter != nil, keyLimitNames(), []*rate.Limit{&held.Rate, &held.Quota, &visitors.Rate, &visitors.Quota}[:of],
			[]*rate.Limit{&k.Limits.Rate, &k.Limits.Quota, &k.Visitors.Rate, &k.Visitors.Quota})
		return out, nil
	})
}
