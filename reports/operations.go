package reports

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
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
	entitled, err := m.entitled(ctx, c, r.Report)
	if err != nil {
		return operation.Result{}, err
	}
	s := showing{c.BaseURL, c.Tenant.Org.Feature(tenants.FeatureTeams), entitled[0]}
	data, err := c.Encoded(r.made, s, func() (any, error) { return m.configurations(c)(r.Report, s.entitled), nil })
	return operation.Result{Data: data}, err
}

// shown returns reports as the caller sees them.
func (m *Module) shown(ctx context.Context, c *operation.Call, all ...*Report) ([]*Configuration, error) {
	entitled, err := m.entitled(ctx, c, all...)
	out, show := make([]*Configuration, len(all)), m.configurations(c)
	for i, r := range all {
		out[i] = show(r, entitled[i])
	}
	return out, err
}

// entitled returns for each report whether the caller may see everything that it and its children show, even if the
// request names fewer teams.
func (m *Module) entitled(ctx context.Context, c *operation.Call, all ...*Report) ([]bool, error) {
	scope := c.Principal.Scope(c.Tenant, nil)
	entitled := make([]bool, len(all))
	var ids []string
	for i, r := range all {
		if entitled[i] = covered(scope, r.Teams); entitled[i] && !scope.All {
			ids = append(ids, childIDs(r)...)
		}
	}
	slices.Sort(ids)
	found, err := m.reportsOf(ctx, c.Tenant, slices.Compact(ids))
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
		b := bundleOf(c.Tenant, r, nil)
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

// Share is a new share token.
type Share struct {
	ID        string `json:"id" doc:"The token's identifier, for lists and revoking"`
	Token     string `json:"token" doc:"The token; it is shown only this once"`
	URL       string `json:"url" doc:"The shared report page with the token"`
	ExpiresAt string `json:"expires_at" doc:"RFC 3339, UTC, milliseconds"`
}

// maintained returns the report that the path names if the caller may see everything that it and its children show. what
// completes the refusal: "shared", "changed".
func (m *Module) maintained(ctx context.Context, c *operation.Call, what string) (*Report, error) {
	r, err := m.byID(ctx, c)
	if err != nil {
		return nil, err
	}
	entitled, err := m.entitled(ctx, c, r)
	if err == nil && !entitled[0] {
		err = showsMore(what)
	}
	return r, err
}

// showsMore refuses a caller who is limited to teams because a report shows more than these.
func showsMore(what string) error { return fault.One("teams", fault.Forbidden, moreThanTeams, what) }

// shareable returns the report that the path names, if the caller may share it.
func (m *Module) shareable(ctx context.Context, c *operation.Call) (*Report, error) {
	r, err := m.maintained(ctx, c, "shared")
	if err == nil && !r.CanShare() {
		err = fault.One("shareable", fault.Forbidden, notShareable)
	}
	return r, err
}

// revocable returns the report that the path names, if the caller may revoke its share tokens.
func (m *Module) revocable(ctx context.Context, c *operation.Call) (*Report, error) {
	return m.maintained(ctx, c, "changed")
}

type shareInput struct {
	Params    map[string]any `json:"params" doc:"Values of locked inputs of the report or its children, by name: strings, numbers, true or false." ask:"Fixed values|A link shows the report with these.|locked" example:"{\"region\":\"EMEA\"}"`
	ExpiresIn int64          `json:"expires_in" rule:"min=1 max=31536000" default:"3600" doc:"Lifetime in seconds, from 1 to 31536000; default 3600." ask:"Lasts||span" example:"3600"`
}

func (m *Module) share(ctx context.Context, c *operation.Call, r *Report, in shareInput) (*Share, error) {
	token, id, ends, err := m.Issue(ctx, c.Tenant, r, c.Principal.Subject(), in.Params, time.Duration(in.ExpiresIn)*time.Second)
	if err != nil {
		return nil, err
	}
	c.Undo = func(ctx context.Context) error { return m.RevokeToken(ctx, c.Tenant, r, id) }
	c.Header.Set("Cache-Control", "no-store")
	c.Note("report", r.ID)
	c.Note("token_id", id)
	return &Share{
		ID: id, Token: token, URL: shareURL(c.BaseURL, r.PID) + "?token=" + token,
		ExpiresAt: ends.Format(texts.TimeLayout),
	}, nil
}

// covered reports whether readers of a report with those teams see no more than the scope.
func covered(scope store.Scope, teams []string) bool {
	if scope.All {
		return true
	}
	return len(teams) > 0 && !slices.ContainsFunc(teams, func(team string) bool { return !slices.Contains(scope.Teams, team) })
}

// IssuedShare is a valid share token in lists.
type IssuedShare struct {
	ID        string `json:"id" doc:"The token's identifier"`
	CreatedAt string `json:"created_at" doc:"RFC 3339, UTC, milliseconds"`
	ExpiresAt string `json:"expires_at" doc:"RFC 3339, UTC, milliseconds"`
	IssuedBy  string `json:"issued_by" doc:"Who issued it: user:<id> or key:<id>"`

	Params map[string]any `json:"params" doc:"The values of locked inputs; empty for a caller limited to teams if the report shows more, and for tokens of versions that did not store them"`
}

// SharePage is a page of a report's share tokens.
type SharePage operation.Part[IssuedShare]

type sharesInput struct {
	operation.Following
	Sort string `json:"sort" rule:"enum=created_at|-created_at" default:"-created_at" doc:"Order; - is descending."`
}

func (m *Module) listShares(
	ctx context.Context, c *operation.Call, r *Report, in sharesInput,
) (out SharePage, err error) {
	of, err := m.validFilter(ctx, c.Tenant, r)
	if err != nil {
		return out, err
	}
	q, further := store.Query{Filter: of, Sort: []store.Order{store.Desc("created_at"), store.Desc("id")}}, store.OpLt
	if in.Sort == "created_at" {
		q.Sort, further = []store.Order{store.Asc("created_at")}, store.OpGt
	}
	var errs fault.List
	follows := in.Span(c, &q, &errs, func(place string) (store.Filter, bool) {
		moment, id, _ := strings.Cut(place, "-")
		ms, err := strconv.ParseInt(moment, 10, 64)
		return store.AnyOf(
			store.Where(store.F("created_at"), further, ms),
			store.All(store.Eq("created_at", ms), store.Where(store.F("id"), further, id)),
		), err == nil && store.ValidID(id)
	})
	if err := errs.Err(); err != nil {
		return out, err
	}
	entitled, err := m.entitled(ctx, c, r)
	if err != nil {
		return out, err
	}
	page, count, err := m.Issued.In(c.Workspace).Page(ctx, q, of)
	if err != nil {
		return out, err
	}
	found := page.Records
	shares := make([]IssuedShare, len(found))
	for i, s := range found {
		shares[i] = IssuedShare{
			ID: s.TokenID, Params: map[string]any{}, CreatedAt: texts.Time(s.CreatedAt),
			ExpiresAt: time.Unix(s.Expires, 0).UTC().Format(texts.TimeLayout), IssuedBy: s.By,
		}
		if entitled[0] && s.Params != nil {
			shares[i].Params = s.Params
		}
	}
	part, err := operation.PartOf(c, in.Following, follows, count, shares, page.Left, page.Cut, func(last int) string {
		return fmt.Sprintf("%d-%s", found[last].CreatedAt, found[last].ID)
	})
	return SharePage(part), err
}

// Revoked says which tokens are void.
type Revoked struct {
	ID      string `json:"id" doc:"Identifier of the report"`
	TokenID string `json:"token_id,omitempty" doc:"The token, if only one was revoked"`
}

func (m *Module) revokeAll(ctx context.Context, c *operation.Call, r *Report, _ struct{}) (*Revoked, error) {
	c.Note("report", r.ID)
	return &Revoked{ID: r.ID}, m.RevokeAll(ctx, c.Tenant, r.PID)
}

type revokeInput struct {
	TokenID string `json:"token_id" doc:"The token's identifier, as sharing and the list of shares answer it; it is the token's jti claim." example:"0-1N9lXo4VjYwq2bTt0cJ8sKfZgRm"`
}

func (m *Module) revokeOne(ctx context.Context, c *operation.Call, r *Report, in revokeInput) (*Revoked, error) {
	if !plainText(in.TokenID) {
		return nil, operation.NotFound("Share not found")
	}
	c.Note("report", r.ID)
	c.Note("token_id", in.TokenID)
	return &Revoked{ID: r.ID, TokenID: in.TokenID}, m.RevokeToken(ctx, c.Tenant, r, in.TokenID)
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

	notShareable   = "the report is set not to be shareable"
	moreThanTeams  = "the report, or a child of it, shows more than your teams; only a report that, with its children, is limited to your teams can be %s by you"
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
		Target: operation.Target{Revised: true},
		Docs: operation.Docs{
			Summary:     "Get a custom report",
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
			Description: "Writes the rows of an exportable shared report for anyone who may read it: all rows of its query, or up to 100,000 of a list without a limit. " +
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

func (m *Module) shareOperation() operation.Row {
	return on(operation.Row{
		Name: "reports.share", Method: http.MethodPost, Path: "/api/custom-reports/{id}/share",
		Policy: operation.Policy{
			Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageReports),
			Audit: operation.AuditAlways,
		},
		Request: operation.Request{BodyLimit: 64 << 10},
		Response: operation.Response{
			Once:    true,
			Message: "Share created",
			Example: Share{
				ID: exampleTokenID, Token: "<TOKEN>", URL: "https://acme.example.com/shared/reports/" + examplePID + "?token=<TOKEN>", ExpiresAt: "2026-03-01T10:30:00.000Z",
			},
			Failures: []operation.Failure{operation.Refuses(http.StatusUnprocessableEntity, "the input is not acceptable, the report is not shareable, or it shows more than the caller's teams",
				"shareable", fault.Forbidden, notShareable)},
		},
		Target: operation.Target{Action: operation.ShareAction},
		Docs: operation.Docs{
			Summary: "Issue a share token",
			Description: "Issues a token that lets its holder read the shared report with the given values of locked inputs. " +
				"A locked input that is not given takes the report's own value; if the report has none, it is required.",
		},
	}, m.shareable, m.share)
}

func (m *Module) listSharesOperation() operation.Row {
	return on(operation.Row{
		Name: "reports.list_shares", Method: http.MethodGet, Path: "/api/custom-reports/{id}/shares",
		Policy: operation.Policy{Kinds: operation.ServerKeys, Rule: operation.Needs(tenants.ManageReports)},
		Response: operation.Response{
			Message: "Shares found",
			Example: SharePage(operation.OnePage(IssuedShare{
				ID: exampleTokenID, CreatedAt: "2026-03-01T09:30:00.000Z", ExpiresAt: "2026-03-01T10:30:00.000Z", IssuedBy: "user:7", Params: map[string]any{"region": "EMEA"},
			})),
			Failures: []operation.Failure{{
				Code: http.StatusUnprocessableEntity, Message: "Validation failed: sort must be created_at or -created_at", When: "a parameter has an unacceptable value",
			}},
		},
		Docs: operation.Docs{
			Summary: "List the share tokens of a report",
			Description: "Lists the valid tokens of the report, without their text. " +
				"Tokens of versions that did not store them are missing.",
		},
	}, m.byID, m.listShares)
}

// notWhole documents the refusal of revocable.
func notWhole() operation.Failure {
	return operation.Refuses(
		http.StatusUnprocessableEntity, "the report, or a child of it, shows more than the caller's teams", "teams",
		fault.Forbidden, fmt.Sprintf(moreThanTeams, "changed"),
	)
}

func (m *Module) revokeAllOperation() operation.Row {
	return on(operation.Row{
		Name: "reports.revoke_shares", Method: http.MethodDelete, Path: "/api/custom-reports/{id}/shares",
		Policy: operation.Policy{
			Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageReports),
			Audit: operation.AuditAlways,
		},
		Response: operation.Response{
			Message: "Share deleted", Example: Revoked{ID: exampleID},
			Failures: []operation.Failure{notWhole()},
		},
		Docs: operation.Docs{
			Summary:     "Revoke all share tokens of a report",
			Description: "Voids every share token issued for the report so far, at once. Tokens issued later are valid.",
		},
	}, m.revocable, m.revokeAll)
}

func (m *Module) revokeOperation() operation.Row {
	return on(operation.Row{
		Name: "reports.revoke_share", Method: http.MethodDelete,
		Path: "/api/custom-reports/{id}/shares/{token_id}",
		Policy: operation.Policy{
			Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageReports),
			Audit: operation.AuditAlways,
		},
		Response: operation.Response{
			Message: "Share deleted", Example: Revoked{ID: exampleID, TokenID: exampleTokenID},
			Failures: []operation.Failure{
				{
					Code: http.StatusNotFound, Message: "Share not found",
					When: "no valid or revoked token of the report has that identifier; tokens of versions that did not store them can only be revoked together",
				},
				notWhole(),
			},
		},
		Docs: operation.Docs{
			Summary:     "Revoke one share token",
			Description: "Voids one share token of the report at once and for good. Revoking it again changes nothing.",
		},
	}, m.revocable, m.revokeOne)
}
