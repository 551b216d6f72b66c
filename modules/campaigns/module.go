// Package campaigns keeps campaigns and counts the contacts they address.
package campaigns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/cache"
	"tenantry/internal/fault"
	"tenantry/internal/together"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/operation/filters"
	"tenantry/tenants"
)

// Contacts is what campaigns need to know of contacts.
type Contacts interface {
	// Askable returns the fields that a filter on contacts may name where the organization has defined those.
	Askable(defined schema.Fields) filters.Catalog
	// Catalog returns those that it may name in an organization.
	Catalog(ctx context.Context, ws *store.Workspace) (filters.Catalog, error)
	// Count returns how many contacts match, as far as the workspace shows them.
	Count(ctx context.Context, ws *store.Workspace, f store.Filter) (int64, error)
	// Listing returns a row that lists the contacts which match.
	Listing(which func(context.Context, *operation.Call) (store.Filter, error)) operation.Row
}

// Deps are what the module needs.
type Deps struct{ Contacts Contacts }

// maxAhead is of how many campaigns it is remembered that they need a Catalog.
const maxAhead = 4096

// Module is the campaigns of all organizations. It is safe for concurrent use.
type Module struct {
	Kinds
	contacts Contacts
	standard filters.Catalog // of fields that every contact has: a filter that names no other needs no Catalog
	// ahead has the campaigns whose own filter needed a Catalog when it was last read: it is
	// then read along with the campaign.
	ahead *cache.Map[place, struct{}]
}

// New returns the module.
func New(deps Deps) *Module {
	m := &Module{Kinds: NewKinds(), contacts: deps.Contacts, standard: deps.Contacts.Askable(nil), ahead: cache.New[place, struct{}](maxAhead)}
	m.Campaigns.Ask = func(c *record.Checking, rec any) {
		defined, _ := c.Known.Fields(definer, "")
		rec.(*Campaign).expr(c.Errs).Bind(m.contacts.Askable(defined), nil, c.Errs)
	}
	return m
}

// Operations returns the module's rows.
func (m *Module) Operations() []operation.Row {
	return append([]operation.Row{m.count(), m.preview()}, crud.Rows(m.Campaigns.Resource, crud.Options{
		Path: "/api/campaigns", Things: "Campaigns", Search: []string{"name"},
		Read: operation.AnyCaller(), Write: operation.Needs(tenants.ManageCampaigns),
	})...)
}

// Counted is the answer of campaigns.count.
type Counted struct {
	Count int64 `json:"count" doc:"How many contacts match."`
}

const messageUndefined = "undefined error"

func (m *Module) count() operation.Row {
	return operation.Typed(operation.Row{
		Name: "campaigns.count", Method: http.MethodGet, Path: "/api/campaigns/count/{id}",
		Aliases: []string{"/api/campaigns/count"},
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.AnyCaller(),
		},
		Request: operation.Request{
			Contract: true,
			Teams:    true,
			Params: []operation.Param{
				{Name: "id", In: operation.InPath, Shape: operation.Text, Description: "The campaign. Left out, the filter alone counts.", Example: "65f1a2b3c4d5e6f708192a3b"},
				m.asks(),
			},
		},
		Response: operation.Response{
			Message: "success", Example: Counted{Count: 42},
			Failures: []operation.Failure{
				{Code: http.StatusOK, Message: messageUndefined, When: "The identifier does not lead to a campaign that the caller sees."},
				{Code: http.StatusUnprocessableEntity, Message: `Validation failed: filters[age]: there is no field "age" to filter on`,
					When: "The filter, or the campaign's own, names an unknown or encrypted field, an unknown operator or a value of the wrong type."},
			},
		},
		Docs: operation.Docs{
			Aside: true,
			IDs:   []string{"countCampaignContacts", "countContacts"},
			Tag:   "Campaigns", Summary: "Count the contacts that a campaign would match",
			Description: "Counts contacts within the caller's teams and the teams the request names; the campaign's own teams say who sees the campaign and do not narrow the count. " +
				"The filter in the query replaces the campaign's own. A present but falsy filter (empty, 0, false, null, [] or {}) means all contacts. " +
				"Without the parameter the campaign's own filter holds, and all contacts without a campaign. " + filterSyntax(),
		},
	}, m.handleCount)
}

// asks returns the parameter that filters contacts, as their list has it.
func (m *Module) asks() operation.Param {
	for _, p := range m.contacts.Listing(nil).Params {
		if p.Name == "filters" {
			p.Example = "filters[country]=DE"
			return p
		}
	}
	return operation.Param{Name: "filters", In: operation.InQuery, Shape: operation.Tree}
}

func filterSyntax() string {
	return fmt.Sprintf("Operators are %s. A field given several times, or with [], must have one of the values. filters[or][<n>][<field>] are alternatives; "+
		"everything else must hold together. At most %d conditions. Numbers are written as in JSON, booleans true or false, times as RFC 3339 or as a date "+
		"(the start of that day in UTC; with eq, ne, in and nin the whole day); a stored date is the start of its day. contains and starts_with find letters of any case, contains_exact and starts_with_exact those as written; all else of text compares exactly. ne and nin also match contacts without a value. "+
		"Encrypted fields cannot be filtered on.", strings.Join(filters.Operators(), ", "), filters.MaxConditions)
}

func (m *Module) handleCount(ctx context.Context, c *operation.Call, _ struct{}) (Counted, error) {
	var errs fault.List
	expr, given := filters.FromQuery(c.Query.Tree("filters"), &errs)
	if len(errs) > 0 {
		if _, err := (&catalog{m: m, ws: c.Workspace}).bind(ctx, expr, &errs); err != nil {
			return Counted{}, err
		}
		return Counted{}, errs.Err()
	}
	filter, err := m.filter(ctx, c, expr, given)
	if errors.Is(err, store.ErrNotFound) {
		return Counted{}, operation.Failed(messageUndefined, nil)
	}
	if err != nil {
		return Counted{}, err
	}
	n, err := m.contacts.Count(ctx, c.Workspace, filter)
	return Counted{Count: n}, err
}

// filter returns what matches the contacts of the campaign that the path names, or of the filter where
// one is given. Errors: store.ErrNotFound, a *fault.Error.
func (m *Module) filter(ctx context.Context, c *operation.Call, expr filters.Expr, given bool) (store.Filter, error) {
	var errs fault.List
	fields := catalog{m: m, ws: c.Workspace}
	stored := false
	if id := c.Path("id"); id != "" {
		campaign, err := m.campaign(ctx, &fields, id, expr, given)
		if err != nil {
			return store.Filter{}, err
		}
		if !given {
			stored, expr = true, campaign.expr(&errs)
			m.remember(c.Workspace, id, expr)
		}
	}
	filter, err := fields.bind(ctx, expr, &errs)
	if err != nil {
		return store.Filter{}, err
	}
	if stored {
		for i := range errs {
			errs[i].Message = "the campaign's own " + errs[i].Message
		}
	}
	return filter, errs.Err()
}

// preview lists the contacts of a campaign. Whoever manages campaigns sees whom they address.
func (m *Module) preview() operation.Row {
	const missing = "Campaign not found"
	row := m.contacts.Listing(func(ctx context.Context, c *operation.Call) (store.Filter, error) {
		f, err := m.filter(ctx, c, filters.Expr{}, false)
		return f, operation.OrMissing(err, missing)
	})
	row.Name, row.Path, row.IDs, row.Tag = "campaigns.preview", "/api/campaigns/{id}/preview", nil, "Campaigns"
	row.Resource, row.Lists, row.Action = m.Campaigns.Name, row.Resource, operation.OtherAction
	row.Summary, row.Rule = "List the contacts of a campaign", operation.Needs(tenants.ManageCampaigns)
	row.Description = "Lists the contacts that the campaign addresses, as the list of contacts does. " + row.Description
	row.Params = append([]operation.Param{{Name: "id", In: operation.InPath, Shape: operation.Text, Required: true, Description: "The campaign.", Example: "65f1a2b3c4d5e6f708192a3b"}}, row.Params...)
	row.Failures = append(row.Failures, operation.Failure{Code: http.StatusNotFound, Message: missing, When: "no such campaign in this organization and scope"})
	return row
}

// campaign reads the campaign, and along with it the catalog where the filter needs one:
// the given filter, or the campaign's own when it was read last.
func (m *Module) campaign(ctx context.Context, fields *catalog, id string, given filters.Expr, isGiven bool) (campaign *Campaign, err error) {
	questions := []func() error{func() (err error) {
		campaign, err = m.Campaigns.In(fields.ws).Get(ctx, id)
		return err
	}}
	ahead := isGiven && m.needsCatalog(given)
	if !isGiven {
		_, ahead = m.ahead.Get(place{fields.ws.Org(), id})
	}
	if ahead && fields.ws.Remote() {
		questions = append(questions, func() error {
			fields.read(ctx)
			return nil // only the filter needs it
		})
	}
	return campaign, together.Do(true, questions...)
}

// place is where a campaign is.
type place struct {
	org int64
	id  string
}

func (m *Module) remember(ws *store.Workspace, id string, own filters.Expr) {
	key := place{ws.Org(), id}
	_, ahead := m.ahead.Get(key)
	switch needs := m.needsCatalog(own); {
	case needs && !ahead:
		m.ahead.Put(key, struct{}{})
	case ahead && !needs:
		m.ahead.Delete(key)
	}
}

// needsCatalog reports whether the filter names other fields than the standard ones.
func (m *Module) needsCatalog(expr filters.Expr) bool {
	return slices.ContainsFunc(expr.Fields(), func(name string) bool {
		_, ok := m.standard.Field(name)
		return !ok
	})
}

// catalog reads an organization's contact fields at most once.
type catalog struct {
	m      *Module
	ws     *store.Workspace
	fields filters.Catalog
	err    error
}

func (c *catalog) read(ctx context.Context) {
	c.fields, c.err = c.m.contacts.Catalog(ctx, c.ws)
}

// bind returns the filter over the organization's contact fields.
func (c *catalog) bind(ctx context.Context, expr filters.Expr, errs *fault.List) (store.Filter, error) {
	if expr.IsEmpty() {
		return store.Filter{}, nil
	}
	fields := c.m.standard
	if c.m.needsCatalog(expr) {
		if c.fields == nil && c.err == nil {
			c.read(ctx)
		}
		if c.err != nil {
			return store.Filter{}, c.err
		}
		fields = c.fields
	}
	return expr.Bind(fields, nil, errs), nil
}

// Broken returns the identifiers of the campaigns, among those that the workspace shows, which could be counted
// over the contact fields before a change of them and cannot be over those after it. Every campaign is read.
func (m *Module) Broken(ctx context.Context, ws *store.Workspace, of, _ string, before, after schema.Fields) (ids []string, err error) {
	if of != definer {
		return nil, nil
	}
	was, is := m.contacts.Askable(before), m.contacts.Askable(after)
	err = m.Campaigns.In(ws).Each(ctx, store.Filter{}, store.Live, func(c *Campaign) error {
		var counted, counts fault.List
		expr := c.expr(&counted)
		expr.Bind(was, nil, &counted)
		if expr.Bind(is, nil, &counts); len(counted) == 0 && len(counts) > 0 {
			ids = append(ids, c.ID)
		}
		return nil
	})
	return ids, err
}

// expr reads the campaign's own filter.
func (c *Campaign) expr(errs *fault.List) filters.Expr {
	if raw := bytes.TrimSpace(c.Filter); string(raw) != "null" {
		return filters.FromJSON(raw, errs)
	}
	return filters.Expr{}
}
