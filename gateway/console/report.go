package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/gateway/console/chart"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

// sharedReports shows the reports that are shared.
type sharedReports struct {
	reports *reports.Module
	pages   *renderer
	locales *readers
	log     *slog.Logger
}

// reportView is a shared report laid out for the page.
type reportView struct {
	frame
	Desc     string
	Problem  string // what is wrong with the values, where it is none alone
	Refused  bool   // nothing was asked, since a value is wrong
	Controls []controlView
	Kept     []controlView // what the form sends along
	Figures  []cellView    // of a report that shows numbers alone
	Charts   []*chart.Chart
	Columns  []cellView
	Rows     [][]cellView
	Count    string
	Pages    []linkView
	Exports  []linkView // files of all rows
	Read     string
	ReadAt   string
	Tabs     []linkView
}

// controlView is an input of a form. Name is the one of the query parameter.
type controlView struct {
	ID, Name, Label, Type, Value, Problem string
	Choices                               []string // that there are; none: any value
}

type cellView struct{ Title, Text, Class string }

// cellClass returns how a column of the type looks.
func cellClass(columnType string) string {
	switch columnType {
	case reports.TypeNumber:
		return "number"
	case reports.TypeDate, reports.TypeDatetime:
		return "moment"
	}
	return ""
}

type linkView struct {
	Title, Address string
	Icon           string // a path in a square of 16; empty: none
	Current        bool
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

// timed leads what a form says of moments on to the address of the page, whose inputs have them as calls do: utc[day]=2024-05-17T10:00, as
// browsers write it, is params[day]=2024-05-17T10:00:00Z.
func timed(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		said := url.Values{}
		for name, values := range query {
			if rest, is := strings.CutPrefix(name, "utc["); is && len(values) == 1 {
				said.Set("params["+rest, inUTC(values[0]))
				query.Del(name)
			}
		}
		if err != nil || len(said) == 0 {
			page(w, r)
			return
		}
		maps.Copy(query, said)
		http.Redirect(w, r, r.URL.EscapedPath()+"?"+query.Encode(), http.StatusSeeOther) //nolint:gosec // the same page: ServeHTTP takes no path that begins with two slashes
	}
}

func (m *sharedReports) incomplete(w http.ResponseWriter) {
	m.pages.message(w, http.StatusBadRequest, "", "The address is not complete", "Copy the whole link and try again.")
}

func (m *sharedReports) noReport(w http.ResponseWriter, p *operation.Problem) {
	m.pages.message(w, http.StatusNotFound, "", "There is no such report", p.Message+".")
}

// page shows a shared report. Nobody's organization has none. What took long is shown to who may still read it.
func (m *sharedReports) page(w http.ResponseWriter, r *http.Request, v Visitor) {
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
	l := m.locales.of(r.Header.Get("Accept-Language"))
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
	shared, err := m.reports.Open(r.Context(), t, ask)
	var view reportView
	code := http.StatusOK
	if err == nil {
		n, _ := strconv.Atoi(query.Text("page")) // anything else is the first
		view = layOut(&shared, l, n, pageRows)
	} else if wrong, ok := m.withoutData(r.Context(), t, ask, err, l); ok {
		view, shared, code, err = wrong.view, wrong.shared, http.StatusUnprocessableEntity, nil
		ask.Params = nil
	}
	if time.Since(began) >= confirmed {
		if ended := m.confirm(r.Context(), v, ask, &shared); ended != nil {
			err = ended
		}
	}
	if err != nil {
		m.reportProblem(w, r, t, err, r.URL.Path+"?"+kept.Encode())
		return
	}
	if len(t.Org.FrameOrigins) > 0 {
		w.Header().Set("Content-Security-Policy", policy(t.Org.FrameOrigins...))
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
			view.Exports = append(view.Exports, linkView{Title: strings.ToUpper(format), Address: u.String()})
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
	m.pages.render(w, code, "report", view)
}

// confirmed is how long a page may take whose reader is not asked for once more.
const confirmed = 500 * time.Millisecond

// confirm returns nil while the visitor may still read what a shared report was found to be. Errors: those of reports.Open.
func (m *sharedReports) confirm(ctx context.Context, v Visitor, ask reports.SharedRequest, found *reports.Shared) error {
	now, err := v.Resolve(ctx)
	switch {
	case err != nil:
		return err
	case now.Org.ID != v.Tenant.Org.ID:
		return reports.NotFoundProblem()
	}
	return m.reports.Confirm(ctx, now, ask, found)
}

type refused struct {
	view   reportView
	shared reports.Shared
}

// withoutData lays out a report whose reader gave a value that does not fit: what is wrong beside its
// field, the other values as they were given. It reports false where the error is about anything else.
func (m *sharedReports) withoutData(ctx context.Context, t *tenants.Tenant, ask reports.SharedRequest, err error, l *locale) (refused, bool) {
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
	shared, err := m.reports.Open(ctx, t, ask)
	if err != nil {
		return refused{}, false
	}
	view := layOut(&shared, l, 1, pageRows)
	view.Refused, view.Faulty = true, true
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
			c.Problem = sentence(strings.TrimPrefix(f.Message, f.Field+" "))
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

// tabs lead to the reports at this address, where there is more than one, each with those of the values the reader chose that it takes.
func tabs(pid, current string, kept url.Values, chosen []operation.Pair, all []reports.Tab) []linkView {
	if len(all) < 2 {
		return nil
	}
	views := make([]linkView, len(all))
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
		views[i] = linkView{Title: t.Title, Address: u.String(), Current: t.ID == current}
	}
	return views
}

// reportProblem says why there is no report; bare is its address without the values of inputs.
func (m *sharedReports) reportProblem(w http.ResponseWriter, r *http.Request, t *tenants.Tenant, err error, bare string) {
	switch p := operation.ProblemOf(err); {
	case errors.Is(err, reports.ErrNotShowable):
		m.pages.message(w, http.StatusConflict, t.Org.Name, "The report cannot be shown",
			"A field or a source that it uses was removed or changed since the report was made. Whoever gave you the link can have it mended.")
	case errors.Is(err, reports.ErrTooLong):
		m.pages.message(w, http.StatusServiceUnavailable, t.Org.Name, "The report took too long", p.Message+".")
	case p.Code == http.StatusOK:
		m.noReport(w, p)
	case p.Code == http.StatusForbidden:
		m.pages.message(w, http.StatusForbidden, t.Org.Name, "This link does not open the report", "It may have expired or been withdrawn. Ask whoever gave it to you for a new one.")
	case p.Code == http.StatusUnprocessableEntity, p.Code == http.StatusBadRequest:
		m.pages.render(w, p.Code, "message", messageView{
			frame: frame{Title: "The report cannot be shown with these values", Organization: t.Org.Name},
			Text:  p.Message, Instead: linkView{Title: "Show the report without them", Address: bare},
		})
	case p.Code == http.StatusTooManyRequests:
		m.pages.refuse(w, r, p)
	case p.Code == http.StatusServiceUnavailable:
		m.log.WarnContext(r.Context(), "a shared report is unavailable", "error", err)
		m.pages.unavailable(w, t.Org.Name)
	default:
		m.log.ErrorContext(r.Context(), "a shared report failed", "error", err)
		m.pages.message(w, http.StatusInternalServerError, t.Org.Name, "Something went wrong", "Please try again.")
	}
}

// pageRows is how many rows a page shows.
const pageRows = 100

// layOut lays out a page of so many rows of a report: its picture, which is of all rows, and the rows of the page.
func layOut(s *reports.Shared, l *locale, page, per int) reportView {
	read := time.Unix(s.RetrievedAt, 0).UTC()
	v := reportView{
		frame: frame{Title: s.Title}, Desc: s.Desc, Controls: controls(s),
		Read: l.moment(read) + " UTC", ReadAt: read.Format(time.RFC3339),
	}
	if s.Data == nil {
		return v
	}
	sh := shapeOf(s)
	for _, c := range s.Data.Columns {
		cell := cellView{Title: c.Title, Class: cellClass(c.Type)}
		if c.Type == reports.TypeDatetime {
			cell.Title += " (UTC)"
		}
		v.Columns = append(v.Columns, cell)
	}
	page, pages := within(page, per, len(s.Data.Rows))
	from := (page - 1) * per
	for _, row := range s.Data.Rows[from:min(from+per, len(s.Data.Rows))] {
		cells := make([]cellView, len(row))
		for i, value := range row {
			text, none := sh.cell(l, s.Data, i, value)
			if cells[i] = (cellView{Text: text, Class: v.Columns[i].Class}); none {
				cells[i].Class = "none"
			}
		}
		v.Rows = append(v.Rows, cells)
	}
	if s.Visual == "number" && len(s.Data.Rows) == 1 && len(sh.groups) == 0 && len(sh.measures) > 0 {
		for _, i := range sh.measures {
			v.Figures = append(v.Figures, cellView{Title: v.Columns[i].Title, Text: v.Rows[0][i].Text})
		}
		return v
	}
	v.Charts = drawings(s, &sh, l)
	v.Count = countText(l, from, len(v.Rows), s.Data)
	if pages > 1 {
		v.Pages = pageLinks(l, page, pages)
	}
	return v
}

// within returns the nearest page that there is of so many rows, and how many pages there are.
func within(page, per, rows int) (nearest, pages int) {
	pages = max((rows+per-1)/per, 1)
	return min(max(page, 1), pages), pages
}

// pageLinks leads to the other pages: the first, the last, those near; one without an address stands for those between. The addresses are
// numbers yet.
func pageLinks(l *locale, page, pages int) []linkView {
	var all []linkView
	shows := func(n int) bool { return n == 1 || n == pages || n >= page-1 && n <= page+1 }
	for n, before := 1, 0; n <= pages; n++ {
		if shows(n) || shows(n-1) && shows(n+1) { // one alone takes no more room than what would stand for it
			if before < n-1 {
				all = append(all, linkView{Title: "…"})
			}
			before = n
			all = append(all, linkView{Title: l.FmtNumber(float64(n), 0), Address: strconv.Itoa(n), Current: n == page})
		}
	}
	return all
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
func (c controlView) Clocked() bool { return c.Type == reports.TypeDatetime && clocked(c.Clock()) }

// Clock is the value as such a control takes it.
func (c controlView) Clock() string { return onClock(c.Value) }

// Options are the choices of a control, also a value that is none of them.
func (c controlView) Options() []choiceView { return asOptions(c.Choices, c.Value) }

// countText says which of how many rows are shown.
func countText(l *locale, from, shown int, d *reports.Data) string {
	number := func(n int) string { return l.FmtNumber(float64(n), 0) }
	n := len(d.Rows)
	which := ""
	if shown < n {
		which = "Rows " + number(from+1) + " to " + number(from+shown) + ". "
	}
	switch {
	case !d.Truncated && n == 1:
		return which + "1 row."
	case !d.Truncated:
		return which + number(n) + " rows."
	case d.Total > n:
		return which + capital(cutText(l, n, d.Total)) + " are shown."
	}
	return which + "The first " + number(n) + " rows are shown; there are more."
}

// cutText says which rows are there of a report that has more: the first 1,000 of 14,807 rows.
func cutText(l *locale, rows, total int) string {
	if total > rows {
		return "the first " + l.FmtNumber(float64(rows), 0) + " of " + l.FmtNumber(float64(total), 0) + " rows"
	}
	return "the first " + l.FmtNumber(float64(rows), 0) + " rows of more"
}

// cell writes a value of a column, and reports whether it is a group's that is missing.
func (sh *shape) cell(l *locale, d *reports.Data, column int, v any) (text string, none bool) {
	if by := sh.by[column]; by != store.NoBucket {
		if bucket, ok := v.(string); ok {
			if t, ok := moment(bucket, by); ok {
				return l.Time(t, steps()[by]), false
			}
		}
	}
	if text = cellText(l, d.Columns[column].Type, v); text == "" && sh.grouped(column) {
		if v != nil {
			return empty, true
		}
		return missing, true
	}
	return text, false
}

func cellText(l *locale, columnType string, v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case int64:
		if x > 1<<53 || x < -1<<53 { // more than a float holds
			return strconv.FormatInt(x, 10)
		}
		return l.FmtNumber(float64(x), 0)
	case float64:
		return l.Number(x)
	case bool:
		if x {
			return "yes"
		}
		return "no"
	case string:
		if columnType != reports.TypeDate && columnType != reports.TypeDatetime {
			return x
		}
		switch t, ok := moment(x, store.NoBucket); {
		case !ok:
			return x
		case columnType == reports.TypeDate:
			return l.Time(t, chart.Day)
		default:
			return l.moment(t)
		}
	case []any:
		words := make([]string, len(x))
		for i := range x {
			words[i] = cellText(l, columnType, x[i])
		}
		return strings.Join(words, ", ")
	case []string:
		return strings.Join(x, ", ")
	}
	return fmt.Sprint(v)
}
