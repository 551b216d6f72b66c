// Package campaigns keeps campaigns and counts the contacts that they address.
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

// Contacts is what campaigns need of the contacts module.
type Contacts interface {
	// CatalogOf returns the fields that a filter on contacts may name if the organization has defined these.
	CatalogOf(defined schema.Fields) filters.Catalog
	// Catalog returns the fields that a filter may name in an organization.
	Catalog(ctx context.Context, ws *store.Workspace) (filters.Catalog, error)
	// Count returns how many contacts match, among those that the workspace shows.
	Count(ctx context.Context, ws *store.Workspace, f store.Filter) (int64, error)
	// ListRow returns a row that lists contacts.
	ListRow() operation.Row
}

// Deps are the dependencies of the module.
type Deps struct{ Contacts Contacts }

// maxPrefetch bounds how many campaigns are remembered as needing a Catalog.
const maxPrefetch = 4096

// Module serves the campaigns of all organizations. Safe for concurrent use.
type Module struct {
	Kinds
	contacts Contacts
	standard filters.Catalog // the fields of every contact; a filter on these alone needs no Catalog
	// prefetch holds the campaigns whose own filter needed a Catalog when it was last read: the Catalog is then read
	// together with the campaign.
	prefetch *cache.Map[prefetchKey, struct{}]
}

// New returns the module.
func New(deps Deps) *Module {
	m := &Module{
		Kinds: NewKinds(), contacts: deps.Contacts, standard: deps.Contacts.CatalogOf(nil),
		prefetch: cache.New[prefetchKey, struct{}](maxPrefetch),
	}
	m.Campaigns.Ask = func(c *record.Checking, rec any) {
		defined, _ := c.Known.Fields(definer, "")
		rec.(*Campaign).expr(c.Errs).Bind(m.contacts.CatalogOf(defined), nil, c.Errs)
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
				{
					Name: "id", In: operation.InPath, Shape: operation.Text,
					Description: "The campaign. If it is left out, the filter alone decides.",
					Example:     "65f1a2b3c4d5e6f708192a3b",
				},
				m.filterParam(),
			},
		},
		Response: operation.Response{
			Message: "success", Example: Counted{Count: 42},
			Failures: []operation.Failure{
				{
					Code: http.StatusOK, Message: messageUndefined,
					When: "The identifier does not name a campaign that the caller sees.",
				},
				{Code: http.StatusUnprocessableEntity, Message: `Validation failed: filters[age]: there is no field "age" to filter on`,
					When: "The filter, or the campaign's own, names an unknown or encrypted field, an unknown operator or a value of the wrong type."},
			},
		},
		Docs: operation.Docs{
			Aside: true,
			IDs:   []string{"countCampaignContacts", "countContacts"},
			Tag:   "Campaigns", Summary: "Count the contacts that a campaign would match",
			Description: "Counts contacts within the caller's teams and the teams the request names; the campaign's own " +
				"teams decide who sees the campaign and do not narrow the count. " +
				"The filter in the query replaces the campaign's own. A present but falsy filter (empty, 0, false, null, [] or {}) means all contacts. " +
				"Without the parameter the campaign's own filter applies; without a campaign, all contacts count. " + filterSyntax(),
		},
	}, m.handleCount)
}

// filterParam returns the parameter that filters contacts, as the list of contacts has it.
func (m *Module) filterParam() operation.Param {
	for _, p := range m.contacts.ListRow().Params {
		if p.Name == "filters" {
			p.Example = "filters[country]=DE"
			return p
		}
	}
	return operation.Param{Name: "filters", In: operation.InQuery, Shape: operation.Tree}
}

func filterSyntax() string {
	return fmt.Sprintf("Operators are %s. A field given several times, or with [], must have one of the values. "+
		"filters[or][<n>][<field>] are alternatives; "+
		"everything else must hold together. At most %d conditions. Numbers are written as in JSON, booleans true or "+
		"false, times as RFC 3339 or as a date "+
		"(the start of that day in UTC; with eq, ne, in and nin the whole day); a stored date is the start of its day. "+
		"contains and starts_with ignore case, contains_exact and starts_with_exact do not; all other comparisons of text "+
		"are exact. ne and nin also match contacts without a value. "+
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

// filter returns the filter for the contacts of the campaign that the path names, or for expr if the caller gave one.
// Errors: store.ErrNotFound, a *fault.Error.
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
			m.notePrefetch(c.Workspace, id, expr)
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

// preview returns the row that lists the contacts of a campaign. It needs the permission to manage campaigns.
func (m *Module) preview() operation.Row {
	const missing = "Campaign not found"
	row := m.contacts.ListRow()
	row.Handler = crud.Only(func(ctx context.Context, c *operation.Call) (store.Filter, error) {
		f, err := m.filter(ctx, c, filters.Expr{}, false)
		return f, operation.OrMissing(err, missing)
	})(row.Handler)
	row.Name, row.Path, row.IDs, row.Tag = "campaigns.preview", "/api/campaigns/{id}/preview", nil, "Campaigns"
	row.Resource, row.Lists, row.Action = m.Campaigns.Name, row.Resource, operation.OtherAction
	row.Title = "Contacts of a campaign"
	row.Summary, row.Rule = "List the contacts of a campaign", operation.Needs(tenants.ManageCampaigns)
	row.Description = "Lists the contacts that the campaign addresses, as the list of contacts does. " + row.Description
	row.Params = append([]operation.Param{{
		Name: "id", In: operation.InPath, Shape: operation.Text, Required: true, Description: "The campaign.",
		Example: "65f1a2b3c4d5e6f708192a3b",
	}}, row.Params...)
	row.Failures = append(row.Failures, operation.Failure{
		Code: http.StatusNotFound, Message: missing, When: "no such campaign in this organization and scope",
	})
	return row
}

// campaign reads the campaign. On a remote store it reads the catalog at the same time if the filter probably needs
// one: the given filter, or the campaign's own as last read.
func (m *Module) campaign(
	ctx context.Context, fields *catalog, id string, given filters.Expr, isGiven bool,
) (campaign *Campaign, err error) {
	questions := []func() error{func() (err error) {
		campaign, err = m.Campaigns.In(fields.ws).Get(ctx, id)
		return err
	}}
	prefetch := isGiven && m.needsCatalog(given)
	if !isGiven {
		_, prefetch = m.prefetch.Get(prefetchKey{fields.ws.Org(), id})
	}
	if prefetch && fields.ws.Remote() {
		questions = append(questions, func() error {
			fields.read(ctx)
			return nil // bind reports its error if the filter needs it
		})
	}
	return campaign, together.Do(true, questions...)
}

// prefetchKey names a campaign of an organization.
type prefetchKey struct {
	org int64
	id  string
}

func (m *Module) notePrefetch(ws *store.Workspace, id string, own filters.Expr) {
	key := prefetchKey{ws.Org(), id}
	_, prefetch := m.prefetch.Get(key)
	switch needs := m.needsCatalog(own); {
	case needs && !prefetch:
		m.prefetch.Put(key, struct{}{})
	case prefetch && !needs:
		m.prefetch.Delete(key)
	}
}

// needsCatalog reports whether the filter names fields that are not standard.
func (m *Module) needsCatalog(expr filters.Expr) bool {
	return slices.ContainsFunc(expr.Fields(), func(name string) bool {
		_, ok := m.standard.Field(name)
		return !ok
	})
}

// catalog reads the contact fields of an organization at most once.
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

// Broken returns the identifiers of the campaigns, among those that the workspace shows, that could be counted with
// the contact fields before a change but cannot with those after it. It reads every campaign.
func (m *Module) Broken(
	ctx context.Context, ws *store.Workspace, of, _ string, before, after schema.Fields,
) (ids []string, err error) {
	if of != definer {
		return nil, nil
	}
	was, is := m.contacts.CatalogOf(before), m.contacts.CatalogOf(after)
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
