// Package report makes the page of a shared report, which is open to everybody with its link, and the charts and tables
// of reports on the other pages of the console.
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

// Pages serves the pages of shared reports. Safe for concurrent use.
type Pages struct {
	Reports *reports.Module
	Pages   *layout.Renderer
	Locales *locale.Set
	Log     *slog.Logger
}

// reportView is the page of a shared report.
type reportView struct {
	layout.Frame
	Desc     string
	Problem  string // faults that concern no single input
	Refused  bool   // the report was not run because a value is wrong
	Controls []controlView
	Kept     []controlView // hidden parameters that the form sends along
	Figures  []layout.Cell // the numbers of a report that shows only numbers
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

// controlView is an input of the form. Name is the name of the query parameter.
type controlView struct {
	ID, Name, Label, Type, Value, Problem string
	Choices                               []string // empty if any value is allowed
}

// address parses the query of a page as the operation that reads the same report does.
func address(raw string) (operation.Query, []string, error) {
	query, err := operation.ParseQuery(raw)
	if err != nil {
		return query, nil, err
	}
	c := operation.NewCall(&operation.Row{
		Request: operation.Request{Contract: true, Teams: true, Params: []operation.Param{
			{Name: "token", In: operation.InQuery},
			{Name: "provider", In: operation.InQuery},
			{Name: "page", In: operation.InQuery},
			{Name: "params", In: operation.InQuery, Shape: operation.Tree},
		}},
	}, nil)
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

// Serve answers with the page of a shared report. If the report takes long, it confirms that the visitor may still read
// it.
func (m *Pages) Serve(w http.ResponseWriter, r *http.Request, v visit.Visitor) {
	start, t := time.Now(), v.Tenant
	query, teams, err := address(r.URL.RawQuery)
	if err != nil {
		m.incomplete(w)
		return
	}
	token, provider := query.Text("token"), query.Text("provider")
	pid, child := r.PathValue("pid"), r.PathValue("report_id")
	ask := reports.SharedRequest{
		PID: pid, ReportID: child, Token: secret.New(token), Provider: provider,
		Params: query.Tree("params"), Data: true, Teams: teams,
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
		n, _ := strconv.Atoi(query.Text("page")) // the first page if it is not a number
		view = layOut(&shared, l, n, pageRows)
	} else if refused, ok := m.withoutData(r.Context(), t, ask, err, l); ok {
		view, shared, code, err = refused.view, refused.shared, http.StatusUnprocessableEntity, nil
		ask.Params = nil
	}
	if time.Since(start) >= visit.ConfirmAfter {
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
	// The form sends every input. Only values that differ from the defaults are the reader's choice.
	chosen := slices.DeleteFunc(slices.Clone(query.Tree("params")), func(p operation.Pair) bool {
		return len(p.Path) != 2 || p.Value == shared.Controls[p.Path[1]].Value
	})
	view.Tabs = tabs(pid, cmp.Or(child, shared.ID), kept, chosen, shared.Tabs)
	for _, p := range query.Tree("params") {
		kept.Set(p.Name, p.Value)
	}
	if shared.Exportable && len(view.Rows) > 0 {
		for _, format := range []string{"csv", "ndjson"} {
			kept.Set("format", format)
			path := strings.Replace(r.URL.Path, "/shared/reports/", "/api/reports/shared/", 1) + "/export"
			u := url.URL{Path: path, RawQuery: kept.Encode()}
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

// confirm returns nil if the visitor may still read the shared report that was found. Errors: those of
// reports.Module.Open.
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

// refusedView is a report that was not run.
type refusedView struct {
	view   reportView
	shared reports.Shared
}

// withoutData makes the page of a report whose reader gave an invalid value: with the fault beside its input, and the
// other values as they were given. It returns false if err is not about the values of inputs.
func (m *Pages) withoutData(
	ctx context.Context, t *tenants.Tenant, ask reports.SharedRequest, err error, l *locale.Locale,
) (refusedView, bool) {
	var invalid *fault.Error
	if !errors.As(err, &invalid) {
		return refusedView{}, false
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
		return refusedView{}, false
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
	if len(given) > 0 { // the reader may not set an input
		return refusedView{}, false
	}
	for _, f := range invalid.Faults {
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
			return refusedView{}, false
		}
	}
	return refusedView{view, shared}, true
}

// tabs returns links to the reports at an address, if there are several. Each link keeps the values that the reader has
// chosen and that its report takes.
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

// reportProblem answers with the reason why a report cannot be shown. bare is its address without the values of inputs.
func (m *Pages) reportProblem(w http.ResponseWriter, r *http.Request, t *tenants.Tenant, err error, bare string) {
	switch p := operation.ProblemOf(err); {
	case errors.Is(err, reports.ErrNotShowable):
		m.Pages.Message(w, http.StatusConflict, t.Org.Name, "The report cannot be shown",
			"A field or a source that it uses has been removed or changed. "+
				"Ask the person who gave you the link to have it fixed.")
	case errors.Is(err, reports.ErrTooLong):
		m.Pages.Message(w, http.StatusServiceUnavailable, t.Org.Name, "The report took too long", p.Message+".")
	case p.Code == http.StatusOK:
		m.noReport(w, p)
	case p.Code == http.StatusForbidden:
		m.Pages.Message(w, http.StatusForbidden, t.Org.Name, "This link does not open the report",
			"It may have expired or been withdrawn. Ask the person who gave it to you for a new one.")
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
		c := controlView{
			Name: "params[" + name + "]", Label: control.Label, Type: control.Type,
			Value: s.Params[name], Choices: control.Choices,
		}
		if _, err := time.Parse(time.DateOnly, c.Value); c.Type == reports.TypeDate && c.Value != "" && err != nil {
			c.Type = reports.TypeText // a date input would not show a value that is not a date
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b controlView) int { return strings.Compare(a.Name, b.Name) })
	for i := range all {
		all[i].ID = "control-" + strconv.Itoa(i)
	}
	return all
}

// Clocked reports whether an input of type datetime-local can show the value.
func (c controlView) Clocked() bool {
	return c.Type == reports.TypeDatetime && input.IsDatetimeLocal(c.Clock())
}

// Clock returns the value for an input of type datetime-local.
func (c controlView) Clock() string { return input.ToDatetimeLocal(c.Value) }

// Options returns the choices of the control. A value that is not among them is added.
func (c controlView) Options() []layout.Option { return layout.Options(c.Choices, c.Value) }
