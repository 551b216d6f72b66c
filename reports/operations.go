package reports

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/internal/declare"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/operation/export"
	"tenantry/tenants"
)

const tag = "Reports"

// Configuration is a custom report as its maintainers see it.
type Configuration struct {
	ID            string           `json:"id"`
	PID           string           `json:"pid" doc:"Public identifier of the report; empty for a caller limited to teams if the report, or a child of it, shows more than these"`
	Title         string           `json:"title"`
	Class         string           `json:"class" doc:"Contacts, Records, Submissions, Files or Campaigns"`
	Secure        bool             `json:"secure" doc:"Whether the shared report needs a token"`
	PortalVisible bool             `json:"portal_visible"`
	Teams         *[]string        `json:"teams,omitempty" doc:"Absent without the teams feature"`
	Input         map[string]Input `json:"input" doc:"Inputs by name"`
	ShareURL      string           `json:"share_url" doc:"Address of the shared report page; empty if pid is"`

	Desc         string         `json:"desc"`
	Source       string         `json:"source" doc:"The custom object (by name) or form (by id), if the class needs one"`
	Query        Query          `json:"query"`
	Shareable    bool           `json:"shareable" doc:"Whether it can be shared"`
	Exportable   bool           `json:"exportable"`
	Visual       string         `json:"visual" doc:"table, number, bar, line, area, pie or heat"`
	VisualProps  map[string]any `json:"visual_props"`
	Folder       string         `json:"folder"`
	Parent       string         `json:"parent"`
	RowKey       string         `json:"row_key"`
	Actions      map[string]any `json:"actions"`
	ChildReports []string       `json:"child_reports" doc:"Identifiers of further reports of the bundle"`
	CreatedAt    string         `json:"created_at" doc:"RFC 3339, UTC, milliseconds"`
	UpdatedAt    string         `json:"updated_at" doc:"RFC 3339, UTC, milliseconds"`
}

// showing is what the answer about a report depends on, in addition to the report.
type showing struct {
	baseURL  string
	teams    bool // the organization has the feature
	entitled bool // the caller may see all that the report shows
}

// Complete sets the defaults of the report.
func (c *Configuration) Complete(rec any) {
	r := rec.(*Report)
	c.Shareable, c.Visual = r.CanShare(), visualOf(r)
}

// configurations returns a function that shows a report to its maintainers. entitled says that the caller may see
// everything that the report shows.
func (m *Module) configurations(c *operation.Call) func(r *Report, entitled bool) *Configuration {
	show := crud.As[Configuration](m.Reports.Resource)
	return func(r *Report, entitled bool) *Configuration {
		shown := show(r, c.Tenant)
		if shown.ShareURL = shareURL(c.BaseURL, r.PID); !entitled { // the address alone may open the report
			shown.PID, shown.ShareURL = "", ""
		}
		return &shown
	}
}

func shareURL(baseURL, pid string) string { return baseURL + "/shared/reports/" + pid }

func (m *Module) get(ctx context.Context, c *operation.Call, r peeked, _ struct{}) (operation.Result, error) {
	c.Revision = r.Rev
	entitled, err := m.entitled(ctx, c.Tenant, c.Principal, r.Report)
	if err != nil {
		return operation.Result{}, err
	}
	s := showing{c.BaseURL, c.Tenant.Org.Feature(tenants.FeatureTeams), entitled[0]}
	data, err := c.Encoded(r.made, s, func() (any, error) { return m.configurations(c)(r.Report, s.entitled), nil })
	return operation.Result{Data: data}, err
}

// shown returns reports as the caller sees them.
func (m *Module) shown(ctx context.Context, c *operation.Call, all ...*Report) ([]*Configuration, error) {
	entitled, err := m.entitled(ctx, c.Tenant, c.Principal, all...)
	out, show := make([]*Configuration, len(all)), m.configurations(c)
	for i, r := range all {
		out[i] = show(r, entitled[i])
	}
	return out, err
}

// entitled returns for each report whether somebody may see everything that it and its children show, whatever teams a
// request names.
func (m *Module) entitled(ctx context.Context, t *tenants.Tenant, p *tenants.Principal, all ...*Report) ([]bool, error) {
	scope := p.Scope(t, nil)
	entitled := make([]bool, len(all))
	var ids []string
	for i, r := range all {
		if entitled[i] = covered(scope, r.Teams); entitled[i] && !scope.All {
			ids = append(ids, childIDs(r)...)
		}
	}
	slices.Sort(ids)
	found, err := m.reportsOf(ctx, t, slices.Compact(ids))
	more := map[string]*Report{} // reports that show more than the caller may see
	for i := range found {
		if !covered(scope, found[i].Teams) {
			more[found[i].ID] = &found[i]
		}
	}
	if len(more) == 0 {
		return entitled, err
	}
	for i, r := range all {
		b := bundleOf(t, r, nil)
		entitled[i] = entitled[i] && !slices.ContainsFunc(childIDs(r), func(id string) bool { return more[id] != nil && b.sees(more[id]) })
	}
	return entitled, err
}

// sharedRequest returns the request of a reader, and keeps the answer out of caches and search engines.
func sharedRequest(c *operation.Call) (SharedRequest, error) {
	c.Header.Set("Cache-Control", "no-store")
	c.Header.Set("Referrer-Policy", "no-referrer")
	c.Header.Set("X-Content-Type-Options", "nosniff")
	c.Header.Set("X-Robots-Tag", "noindex")
	teams, err := c.Teams()
	return SharedRequest{
		PID: c.Path("pid"), ReportID: c.Path("report_id"), Token: secret.New(c.Query.Text("token")),
		Provider: c.Query.Text("provider"), Params: c.Query.Tree("params"), Data: c.Query.Text("data") == "1", Teams: teams,
	}, err
}

func (m *Module) shared(ctx context.Context, c *operation.Call) (operation.Result, error) {
	ask, err := sharedRequest(c)
	if err != nil {
		return operation.Result{}, err
	}
	s, err := m.Open(ctx, c.Tenant, ask)
	if c.TookLong() {
		c.Recheck = m.recheck(ask, s.read, false)
	}
	if err != nil {
		return operation.Result{}, err
	}
	return operation.Result{Data: &s}, nil
}

// covered reports whether readers of a report with those teams see no more than the scope.
func covered(scope store.Scope, teams []string) bool {
	if scope.All {
		return true
	}
	return len(teams) > 0 && !slices.ContainsFunc(teams, func(team string) bool { return !slices.Contains(scope.Teams, team) })
}

// on completes a row about the report that the path names.
func on[Rec, In, Out any](
	o operation.Row, find func(context.Context, *operation.Call) (Rec, error),
	do func(context.Context, *operation.Call, Rec, In) (Out, error),
) operation.Row {
	o.Tag, o.Credentials, o.Teams = tag, operation.Key|operation.Session, true
	o.Params = []operation.Param{{
		Name: "id", In: operation.InPath, Shape: operation.Text, Required: true, Description: "Identifier of the custom report.", Example: exampleID,
	}}
	o.Failures = append([]operation.Failure{
		{
			Code: http.StatusNotFound, Message: "Custom Report not found",
			When: "there is no such report in the caller's teams",
		},
	}, o.Failures...)
	return operation.On(o, find, do)
}

const (
	exampleID  = "66f0a1b2c3d4e5f601234567"
	examplePID = "8Jw2kq0yT1u4c7ZbXhNn3A"

	notShareable  = "the report is set not to be shareable"
	moreThanTeams = "the report, or a child of it, shows more than your teams; only a report that, with its children, " +
		"is limited to your teams can be %s by you"
	exampleTokenID = "0-1N9lXo4VjYwq2bTt0cJ8sKfZgRm"
)

func (m *Module) getOperation() operation.Row {
	return on(operation.Row{
		Name: "reports.get", Method: http.MethodGet, Path: "/api/custom-reports/{id}",
		Policy:  operation.Policy{Kinds: operation.ServerKeys, Rule: operation.AnyCaller()},
		Request: operation.Request{Contract: true},
		Response: operation.Response{
			Message: "Custom Report found", Data: &Configuration{},
			Example: Configuration{
				ID: exampleID, PID: examplePID, Title: "Contacts by country", Class: "Contacts", Teams: &[]string{},
				Input: map[string]Input{"status": {
					Rule: Editable, Value: "active", Label: "Status", Type: TypeText,
				}},
				ShareURL: "https://acme.example.com/shared/reports/" + examplePID,
				Query: Query{raw: []byte(`{"filter":{"status":{"input":"status"}},"group_by":[{"field":"country"}],` +
					`"measures":[{"op":"count"}],"sort":["-count"],"limit":100}`)},
				Shareable: true, Exportable: true, Visual: "bar", VisualProps: map[string]any{}, Actions: map[string]any{},
				ChildReports: []string{}, CreatedAt: "2026-03-01T09:30:00.000Z", UpdatedAt: "2026-03-01T09:30:00.000Z",
			},
		},
		Target: operation.Target{Revised: true, Logged: crud.Logged(m.Reports.Resource)},
		Docs: operation.Docs{
			Summary: "Get a custom report", Title: "Custom report",
			Description: "Returns the configuration of one custom report.",
		},
	}, m.peek, m.get)
}

func (m *Module) sharedOperation() operation.Row {
	return operation.Row{
		Name: "reports.shared", Method: http.MethodGet, Path: "/api/reports/shared/{pid}",
		Aliases: []string{"/api/reports/shared/{pid}/{report_id}"},
		Policy: operation.Policy{
			AnyHost: true, Weight: operation.Heavy,
			Credentials: operation.Open, Kinds: operation.Browser, Rule: operation.AnyCaller(),
		},
		Request: operation.Request{
			Contract: true,
			Teams:    true,
			Params: []operation.Param{
				{
					Name: "pid", In: operation.InPath, Shape: operation.Text, Required: true,
					Description: "Public identifier of the report.", Example: examplePID,
				},
				{
					Name: "report_id", In: operation.InPath, Shape: operation.Text,
					Description: "Identifier of the report itself or of one of its child reports.", Example: exampleID,
				},
				{
					Name: "token", In: operation.InQuery, Shape: operation.Text, Secret: true,
					Description: "Share token. Required if the report is secure.",
				},
				{
					Name: "data", In: operation.InQuery, Shape: operation.Text,
					Description: "1 includes the rows; without it data is absent.", Example: "1",
				},
				{
					Name: "provider", In: operation.InQuery, Shape: operation.Text, Default: BuiltIn,
					Description: "Name of one of the organization's report providers. Cannot be chosen for secure reports.",
				},
				{
					Name: "params", In: operation.InQuery, Shape: operation.Tree, Document: "inputs",
					Ask:         operation.Ask{Kind: declare.Inputs},
					Description: "Values of editable inputs: params[<name>]=<value>. An empty value leaves out the conditions on the input.",
					Example:     "params[status]=active",
				},
			},
		},
		Response: operation.Response{
			Data:    Shared{},
			Message: "Shared Report found",
			Example: Shared{
				ID: exampleID, Title: "Contacts by country", Visual: "bar",
				Fields: map[string]SharedField{"country": {"Country", TypeText}, "count": {"Count", TypeNumber}},
				Controls: map[string]Control{"status": {
					Label: "Status", Type: TypeText, Value: "active", Rule: Editable,
				}},
				ChildReports: []ChildReport{}, Exportable: true, Shareable: true, Params: map[string]string{"status": "active"},
				Data: &Data{
					Columns: []Column{{"country", "Country", TypeText}, {"count", "Count", TypeNumber}},
					Rows:    [][]any{{"DE", 120}, {"FR", 80}}, Total: 2,
				},
				RetrievedAt: 1_772_357_400, VisualProps: map[string]any{},
			},
			Failures: []operation.Failure{
				{
					Code: http.StatusOK, Message: NotFoundProblem().Message,
					When: "there is no such report, or report_id is not of its bundle",
				},
				{
					Code: http.StatusOK, Message: "The report took too long",
					When: "the run was stopped at its time limit; the message names the limit",
				},
				{
					Code: http.StatusOK, Message: notShowableMessage,
					When: "its source or a field of it is gone, or now has another type",
				},
				{
					Code: http.StatusForbidden, Message: operation.DeniedMessage,
					When: "the token is missing, expired, revoked, wrong, or lacks a locked value",
				},
			},
		},
		Docs: operation.Docs{
			IDs: []string{"getSharedReport", "getSharedReportOfBundle"}, Tag: tag,
			Summary: "Get a shared report",
			Description: "Returns a report to anyone with its public identifier and, if the report is secure, a token. " +
				"The answer covers what the report's own teams may see; teams[] can only narrow it. " +
				"Rows are reused for about a second for the same request; retrieved_at says when they were read. " +
				"A given token is always checked, even if none is needed. " +
				"Locked inputs take their values only from the token, so a report with locked inputs cannot be read without one. " +
				"An input that the report locks is also locked in its children.",
		},
		Handler: m.shared,
	}
}

// exportSharedOperation returns the row that writes a shared report as a file, with the same access as the report.
func (m *Module) exportSharedOperation() operation.Row {
	read := m.sharedOperation()
	row := operation.Row{
		Name: "reports.export_shared", Path: "/api/reports/shared/{pid}/export",
		Aliases: []string{"/api/reports/shared/{pid}/{report_id}/export"},
		Policy: operation.Policy{
			AnyHost:     true,
			Credentials: read.Credentials, Kinds: read.Kinds, Rule: read.Rule,
		},
		Request: operation.Request{Teams: true},
		Response: operation.Response{
			Message: read.Message,
			Data:    map[string]any{}, Example: map[string]any{"country": "DE", "count": 120},
			Failure: exportProblem,
			Failures: []operation.Failure{
				{
					Code: http.StatusNotFound, Message: NotFoundProblem().Message,
					When: "there is no such report, or report_id is not of its bundle",
				},
				{
					Code: http.StatusConflict, Message: notShowableMessage,
					When: "its source or a field of it is gone, or now has another type",
				},
				{
					Code: http.StatusServiceUnavailable, Message: "The report took too long: it was stopped after 5s",
					When: "a part of the run was stopped at its time limit",
				},
				{
					Code: http.StatusForbidden, Message: operation.DeniedMessage,
					When: "the token is missing, expired, revoked, wrong, or lacks a locked value",
				},
				{
					Code:    http.StatusUnprocessableEntity,
					Message: "Validation failed: the report is set not to be exportable",
					When:    "the report is not exportable, has more rows than an export may have, or a value does not fit",
				},
			},
		},
		Docs: operation.Docs{
			IDs: []string{"exportSharedReport", "exportSharedReportOfBundle"}, Tag: tag,
			Summary: "Export the rows of a shared report",
			Description: "Writes the rows of an exportable shared report for anyone who may read it: all rows of its query, " +
				"or up to 100,000 of a list without a limit. " +
				"Token, values and teams are those of the shared report itself.",
		},
	}
	for _, p := range read.Params {
		if p.Name != "data" {
			row.Params = append(row.Params, p)
		}
	}
	export.Row(&row)
	row.Timeout = 5 * time.Minute // slow readers without an account must not occupy room for long
	return operation.Typed(row, m.exportShared)
}

// exportProblem answers why there is no file with a suitable code, because a 200 would be taken for a file.
func exportProblem(p *operation.Problem) *operation.Problem {
	if p.Code != http.StatusOK {
		return p
	}
	told := *p
	switch {
	case errors.Is(p, ErrTooLong):
		return later(p)
	case errors.Is(p, ErrNotShowable):
		told.Code = http.StatusConflict
	default:
		told.Code = http.StatusNotFound
	}
	return &told
}
