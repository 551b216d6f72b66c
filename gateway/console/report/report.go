// Package report lays out what reports answer: the page of a shared report, which anybody with its address may see, and
// the charts and tables of the console's own pages of reports.
package report

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/crypto/secret"
	"tenantry/gateway/console/chart"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/locale"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

// Pages shows the reports that are shared.
type Pages struct {
	Reports *reports.Module
	Pages   *layout.Renderer
	Locales *locale.Set
	Log     *slog.Logger
}

// reportView is a shared report laid out for the page.
type reportView struct {
	layout.Frame
	Desc     string
	Problem  string // what is wrong with the values, where it is none alone
	Refused  bool   // nothing was asked, since a value is wrong
	Controls []controlView
	Kept     []controlView // what the form sends along
	Figures  []layout.Cell // of a report that shows numbers alone
	Charts   []*chart.Chart
	Columns  []layout.Cell
	Rows     [][]layout.Cell
	Count    string
	Pages    []site.Link
	Exports  []site.Link // files of all rows
	Read     string
	ReadAt   string
	Tabs     []site.Link
}

// controlView is an input of a form. Name is the one of the query parameter.
type controlView struct {
	ID, Name, Label, Type, Value, Problem string
	Choices                               []string // that there are; none: any value
}

// address reads a page's query as the operation of the same report does.
func address(raw string) (operation.Query, []string, error) {
	query, err := operation.ParseQuery(raw)
	if err != nil {
		return query, nil, err
	}
	c := operation.NewCall(&operation.Row{Contract: true, Teams: true, Params: []operation.Param{
		{Name: "token", In: operation.InQuery}, {Name: "provider", In: operation.InQuery}, {Name: "page", In: operation.InQuery}, {Name: "params", In: operation.InQuery, Shape: operation.Tree},
	}}, nil)
	if err := c.Bind(query); err != nil {
		return query, nil, err
	}
	teams, err := c.Teams()
	return query, teams, err
}

func (m *Pages) incomplete(w http.ResponseWriter) {
	m.Pages.Message(w, http.StatusBadRequest, "", "The address is not valid", "Copy the whole link and try again.")
}

func (m *Pages) noReport(w http.ResponseWriter, p *operation.Problem) {
	m.Pages.Message(w, http.StatusNotFound, "", "There is no such report", p.Message+".")
}

// Serve shows a shared report. Nobody's organization has none. What took long is shown to who may still read it.
func (m *Pages) Serve(w http.ResponseWriter, r *http.Request, v visit.Visitor) {
	began, t := time.Now(), v.Tenant
	query, teams, err := address(r.URL.RawQuery)
	if err != nil {
		m.incomplete(w)
		return
	}
	token, provider := query.Text("token"), query.Text("provider")
	pid, child := r.PathValue("pid"), r.PathValue("report_id")
	ask := reports.SharedRequest{
		PID: pid, ReportID: child, Token: secret.New(token), Provider: provider, Params: query.Tree("params"), Data: true, Teams: teams,
	}
	l := m.Locales.For(r.Header.Get("Accept-Language"))
	w.Header().Set("Vary", "Accept-Language")
	kept := url.Values{}
	for name, value := range map[string]string{"token": token, "provider": provider} {
		if value != "" {
			kept.Set(name, value)
		}
	}
	for _, team := range teams {
		kept.Add("teams[]", team)
	}
	shared, err := m.Reports.Open(r.Context(), t, ask)
	var view reportView
	code := http.StatusOK
	if err == nil {
		n, _ := strconv.Atoi(query.Text("page")) // anything else is the first
		view = layOut(&shared, l, n, pageRows)
	} else if wrong, ok := m.withoutData(r.Context(), t, ask, err, l); ok {
		view, shared, code, err = wrong.view, wrong.shared, http.StatusUnprocessableEntity, nil
		ask.Params = nil
	}
	if time.Since(began) >= visit.ConfirmAfter {
		if ended := m.confirm(r.Context(), v, ask, &shared); ended != nil {
			err = ended
		}
	}
	if err != nil {
		m.reportProblem(w, r, t, err, r.URL.Path+"?"+kept.Encode())
		return
	}
	if len(t.Org.FrameOrigins) > 0 {
		w.Header().Set("Content-Security-Policy", layout.ContentSecurityPolicy(t.Org.FrameOrigins...))
	}
	view.Organization = t.Org.Name
	for _, name := range []string{"token", "provider", "teams[]"} {
		for _, value := range kept[name] {
			view.Kept = append(view.Kept, controlView{Name: name, Value: value})
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(query.Tree("params")), func(p operation.Pair) bool { // the form sends the others too
		return len(p.Path) != 2 || p.Value == shared.Controls[p.Path[1]].Value
	})
	view.Tabs = tabs(pid, cmp.Or(child, shared.ID), kept, chosen, shared.Tabs)
	for _, p := range query.Tree("params") {
		kept.Set(p.Name, p.Value)
	}
	if shared.Exportable && len(view.Rows) > 0 {
		for _, format := range []string{"csv", "ndjson"} {
			kept.Set("format", format)
			u := url.URL{Path: strings.Replace(r.URL.Path, "/shared/reports/", "/api/reports/shared/", 1) + "/export", RawQuery: kept.Encode()}
			view.Exports = append(view.Exports, site.Link{Title: strings.ToUpper(format), Address: u.String()})
		}
		kept.Del("format")
	}
	for i := range view.Pages {
		if view.Pages[i].Address == "" {
			continue
		}
		kept.Set("page", view.Pages[i].Address)
		view.Pages[i].Address = "?" + kept.Encode()
	}
	m.Pages.Render(w, code, "report", view)
}

// confirm returns nil while the visitor may still read what a shared report was found to be. Errors: those of
// reports.Open.
func (m *Pages) confirm(ctx context.Context, v visit.Visitor, ask reports.SharedRequest, found *reports.Shared) error {
	now, err := v.Resolve(ctx)
	switch {
	case err != nil:
		return err
	case now.Org.ID != v.Tenant.Org.ID:
		return reports.NotFoundProblem()
	}
	return m.Reports.Confirm(ctx, now, ask, found)
}

type refused struct {
	view   reportView
	shared reports.Shared
}

// withoutData lays out a report whose reader gave a value that does not fit: what is wrong beside its
// field, the other values as they were given. It reports false where the error is about anything else.
func (m *Pages) withoutData(ctx context.Context, t *tenants.Tenant, ask reports.SharedRequest, err error, l *locale.Locale) (refused, bool) {
	var wrong *fault.Error
	if !errors.As(err, &wrong) {
		return refused{}, false
	}
	given := map[string]string{}
	for _, p := range ask.Params {
		if len(p.Path) == 2 {
			given["params["+p.Path[1]+"]"] = p.Value
		}
	}
	ask.Data, ask.Params = false, nil
	shared, err := m.Reports.Open(ctx, t, ask)
	if err != nil {
		return refused{}, false
	}
	view := layOut(&shared, l, 1, pageRows)
	view.Refused, view.HasProblems = true, true
	for i := range view.Controls {
		c := &view.Controls[i]
		if value, ok := given[c.Name]; ok {
			c.Value = value
			delete(given, c.Name)
		}
	}
	if len(given) > 0 { // an input that the reader may not set
		return refused{}, false
	}
	for _, f := range wrong.Faults {
		i := slices.IndexFunc(view.Controls, func(c controlView) bool { return c.Name == f.Field })
		switch {
		case i >= 0:
			c := &view.Controls[i]
			c.Problem = site.Sentence(strings.TrimPrefix(f.Message, f.Field+" "))
			if c.Type == reports.TypeNumber || c.Type == reports.TypeDate {
				c.Type = reports.TypeText // which shows any value
			}
		case f.Field == "params":
			view.Problem = "One of the values does not fit the report. Change or empty it, and try again."
		default:
			return refused{}, false
		}
	}
	return refused{view, shared}, true
}

// tabs lead to the reports at this address, where there is more than one, each with those of the values the reader
// chose that it takes.
func tabs(pid, current string, kept url.Values, chosen []operation.Pair, all []reports.Tab) []site.Link {
	if len(all) < 2 {
		return nil
	}
	views := make([]site.Link, len(all))
	for i, t := range all {
		query := maps.Clone(kept)
		for _, p := range chosen {
			if t.Takes(p.Path[1], p.Value) {
				query.Set(p.Name, p.Value)
			}
		}
		u := url.URL{Path: "/shared/reports/" + pid, RawQuery: query.Encode()}
		if i > 0 {
			u.Path += "/" + t.ID
		}
		views[i] = site.Link{Title: t.Title, Address: u.String(), Current: t.ID == current}
	}
	return views
}

// reportProblem says why there is no report; bare is its address without the values of inputs.
func (m *Pages) reportProblem(w http.ResponseWriter, r *http.Request, t *tenants.Tenant, err error, bare string) {
	switch p := operation.ProblemOf(err); {
	case errors.Is(err, reports.ErrNotShowable):
		m.Pages.Message(w, http.StatusConflict, t.Org.Name, "The report cannot be shown",
			"A field or a source that it uses was removed or changed since the report was made. Whoever gave you the link can have it mended.")
	case errors.Is(err, reports.ErrTooLong):
		m.Pages.Message(w, http.StatusServiceUnavailable, t.Org.Name, "The report took too long", p.Message+".")
	case p.Code == http.StatusOK:
		m.noReport(w, p)
	case p.Code == http.StatusForbidden:
		m.Pages.Message(w, http.StatusForbidden, t.Org.Name, "This link does not open the report", "It may have expired or been withdrawn. Ask whoever gave it to you for a new one.")
	case p.Code == http.StatusUnprocessableEntity, p.Code == http.StatusBadRequest:
		m.Pages.Render(w, p.Code, "message", layout.MessageView{
			Frame: layout.Frame{Title: "The report cannot be shown with these values", Organization: t.Org.Name},
			Text:  p.Message, Instead: site.Link{Title: "Show the report without them", Address: bare},
		})
	case p.Code == http.StatusTooManyRequests:
		m.Pages.TooMany(w, r, p)
	case p.Code == http.StatusServiceUnavailable:
		m.Log.WarnContext(r.Context(), "a shared report is unavailable", "error", err)
		m.Pages.Unavailable(w, t.Org.Name)
	default:
		m.Log.ErrorContext(r.Context(), "a shared report failed", "error", err)
		m.Pages.Message(w, http.StatusInternalServerError, t.Org.Name, "Something went wrong", "Please try again.")
	}
}

// controls returns the editable inputs in the order of their names.
func controls(s *reports.Shared) []controlView {
	var all []controlView
	for name, control := range s.Controls {
		c := controlView{Name: "params[" + name + "]", Label: control.Label, Type: control.Type, Value: s.Params[name], Choices: control.Choices}
		if _, err := time.Parse(time.DateOnly, c.Value); c.Type == reports.TypeDate && c.Value != "" && err != nil {
			c.Type = reports.TypeText // a field for days would show a moment as nothing
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b controlView) int { return strings.Compare(a.Name, b.Name) })
	for i := range all {
		all[i].ID = "control-" + strconv.Itoa(i)
	}
	return all
}

// Clocked reports whether a control of moments can show the value.
func (c controlView) Clocked() bool {
	return c.Type == reports.TypeDatetime && input.IsDatetimeLocal(c.Clock())
}

// Clock is the value as such a control takes it.
func (c controlView) Clock() string { return input.ToDatetimeLocal(c.Value) }

// Options are the choices of a control, also a value that is none of them.
func (c controlView) Options() []layout.Option { return layout.Options(c.Choices, c.Value) }
