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

// defaultLimit is how callers write that a limit is to follow the default again.
const defaultLimit = "default"

// LimitsChange sets the request limits of an organization. Each is written like 100/s, off or default; absent limits
// stay as they are. Without any the current limits are shown.
type LimitsChange struct {
	Org      string  `json:"org" rule:"ref=organization" arg:"the organization's slug"`
	Rate     *string `json:"rate,omitempty" doc:"the <limit> of the whole organization against bursts"`
	Quota    *string `json:"quota,omitempty" doc:"the <limit> of the whole organization over a longer period"`
	KeyRate  *string `json:"key_rate,omitempty" doc:"the <limit> of each key, and of each person, against bursts"`
	KeyQuota *string `json:"key_quota,omitempty" doc:"the <limit> of each key, and of each person, over a longer period"`
	VisitorLimits
	Reset bool `json:"reset,omitempty" doc:"begin with the defaults again"`
}

// VisitorLimits are the limits of each address from which pages use a browser key.
type VisitorLimits struct {
	VisitorRate  *string `json:"visitor_rate,omitempty" doc:"the <limit> of each address from which pages use a browser key, against bursts"`
	VisitorQuota *string `json:"visitor_quota,omitempty" doc:"the <limit> of each such address over a longer period"`
}

// forbid returns an error if a limit of visitors is set, because the key has no visitors. Error: *fault.Error.
func (l VisitorLimits) forbid() error {
	var faults fault.List
	for i, text := range []*string{l.VisitorRate, l.VisitorQuota} {
		if text != nil {
			faults.Add(keyLimitNames()[2+i], fault.Forbidden, "only browser keys have visitors; this key is of another kind")
		}
	}
	return faults.Err()
}

// KeyLimitsChange sets the request limits of a key, like LimitsChange.
type KeyLimitsChange struct {
	KeyRef
	Rate  *string `json:"rate,omitempty" doc:"the <limit> against bursts"`
	Quota *string `json:"quota,omitempty" doc:"the <limit> over a longer period"`
	VisitorLimits
	Reset bool `json:"reset,omitempty" doc:"begin with the organization's limits for keys again"`
}

// RequestLimits are the request limits that apply to an organization or a key.
type RequestLimits struct {
	Org      string `json:"org,omitempty"`
	ID       string `json:"id,omitempty"`
	Name     string `json:"name,omitempty"`
	Rate     string `json:"rate"`
	Quota    string `json:"quota"`
	KeyRate  string `json:"key_rate,omitempty"`
	KeyQuota string `json:"key_quota,omitempty"`
	// The limits of each address from which pages use the key, or any browser key of the organization.
	VisitorRate  string `json:"visitor_rate,omitempty"`
	VisitorQuota string `json:"visitor_quota,omitempty"`
	// Own has the names of its own limits. The others are defaults, or, for a key, limits of the organization.
	Own []string `json:"own"`
}

// Cells returns what a table shows of a field: for a limit, also whether it is its own.
func (r RequestLimits) Cells(field string, shown any) []any {
	switch {
	case slices.Contains(r.Own, field):
		return []any{shown, "own"}
	case slices.Contains(orgLimitNames(), field):
		return []any{shown, defaultLimit}
	}
	return []any{shown}
}

// orgLimitNames returns the names of the limits of an organization, in the order of the arguments of parseChange.
func orgLimitNames() []string {
	return []string{"rate", "quota", "key_rate", "key_quota", "visitor_rate", "visitor_quota"}
}

// keyLimitNames returns the names of the limits of a key, in the same order.
func keyLimitNames() []string { return []string{"rate", "quota", "visitor_rate", "visitor_quota"} }

// field returns the field of the named limit.
func (r *RequestLimits) field(name string) *string {
	return map[string]*string{
		"rate": &r.Rate, "quota": &r.Quota, "key_rate": &r.KeyRate, "key_quota": &r.KeyQuota,
		"visitor_rate": &r.VisitorRate, "visitor_quota": &r.VisitorQuota,
	}[name]
}

// parseChange parses limits and returns a function that sets them, or nil if there is nothing to set. Absent limits
// stay as they are, or become unset with reset. Error: *fault.Error.
func parseChange(reset bool, names []string, texts ...*string) (func(...*rate.Limit), error) {
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
		case *text == defaultLimit:
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

// fill sets the limits that apply, and Own from the limits that are set. If they changed, it notes them for the audit
// log.
func (r *RequestLimits) fill(c *call, changed bool, names []string, effective, own []*rate.Limit) {
	r.Own = []string{}
	for i, name := range names[:len(effective)] {
		to := r.field(name)
		*to = effective[i].String()
		if own[i].IsSet() {
			r.Own = append(r.Own, name)
		}
		if changed {
			c.Note(name, *to)
			c.Note("own", strings.Join(r.Own, ","))
		}
	}
}

const limitSyntax = "\n\nA limit is written like 100/s, 6000/m, 20000/h or 100000/d, off for no limit, or default.\n" +
	"Without a flag that changes something, the limits that apply are shown."

func (s *Server) orgLimits() Command {
	return command(Command{
		Line: "org limits SLUG", Short: "Show or set how many requests an organization and its keys may send",
		Long:    "Show or set how many requests an organization may send, and each of its keys that has no limits of its own." + limitSyntax,
		Example: "  tenantry org limits acme --rate 100/s --quota 100000/d --key-rate 20/s",
		Audit:   operation.AuditNoted, Table: "rate, quota, key_rate, key_quota, visitor_rate, visitor_quota",
	}, func(ctx context.Context, c *call, in LimitsChange) (RequestLimits, error) {
		all := func(s *rate.Set) []*rate.Limit {
			return []*rate.Limit{
				&s.Organization.Rate, &s.Organization.Quota, &s.Key.Rate, &s.Key.Quota, &s.Visitor.Rate, &s.Visitor.Quota,
			}
		}
		t := c.Tenant
		change, err := parseChange(in.Reset, orgLimitNames(),
			in.Rate, in.Quota, in.KeyRate, in.KeyQuota, in.VisitorRate, in.VisitorQuota)
		if change != nil && err == nil {
			t, err = s.Directory.Update(ctx, in.Org, func(o *tenants.Organization) error {
				change(all(&o.RequestLimits)...)
				return nil
			})
		}
		if err != nil {
			return RequestLimits{}, err
		}
		out, effective := RequestLimits{Org: in.Org}, t.Org.RequestLimits.Or(s.Limits())
		out.fill(c, change != nil, orgLimitNames(), all(&effective), all(&t.Org.RequestLimits))
		return out, nil
	})
}

func (s *Server) keyLimits() Command {
	return command(Command{
		Line: "key limits ID --org SLUG", Short: "Show or set how many requests an API key may send",
		Long:  "Show or set how many requests an API key may send." + limitSyntax,
		Audit: operation.AuditNoted, Table: "id, name, rate, quota, visitor_rate?, visitor_quota?",
	}, func(ctx context.Context, c *call, in KeyLimitsChange) (RequestLimits, error) {
		change, err := parseChange(in.Reset, keyLimitNames(), in.Rate, in.Quota, in.VisitorRate, in.VisitorQuota)
		if err != nil {
			return RequestLimits{}, err
		}
		k, err := s.Keys.Get(ctx, c.Tenant, in.ID)
		if err == nil && k.Kind != tenants.Browser {
			if err := in.forbid(); err != nil {
				return RequestLimits{}, err
			}
		}
		if err == nil && change != nil {
			k, err = s.Keys.SetLimits(ctx, c.Tenant, in.ID, func(own, visitors *rate.Pair) {
				change(&own.Rate, &own.Quota, &visitors.Rate, &visitors.Quota)
			})
		}
		if err != nil {
			return RequestLimits{}, keyNotFound(err, in.KeyRef)
		}
		if change != nil {
			c.Note("key", k.ID)
		}
		out := RequestLimits{ID: k.ID, Name: k.Name}
		effective := k.Limits.Or(c.Tenant.Org.RequestLimits.Key).Or(s.Limits().Key)
		visitors := k.Visitors.Or(c.Tenant.Org.RequestLimits.Visitor).Or(s.Limits().Visitor)
		n := map[bool]int{true: 4, false: 2}[k.Kind == tenants.Browser] // keys of other kinds have no visitors
		out.fill(c, change != nil, keyLimitNames(),
			[]*rate.Limit{&effective.Rate, &effective.Quota, &visitors.Rate, &visitors.Quota}[:n],
			[]*rate.Limit{&k.Limits.Rate, &k.Limits.Quota, &k.Visitors.Rate, &k.Visitors.Quota})
		return out, nil
	})
}
