package console

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/api"
	"tenantry/crypto/secret"
	"tenantry/reports"
	"tenantry/tenants"
)

// reportView is a shared report laid out for the page.
type reportView struct {
	frame
	Desc     string
	Controls []controlView
	Kept     []controlView // what the form sends along
	Figure   *cellView     // of a report that shows one number
	Columns  []cellView
	Rows     []rowView
	BarTitle string // the column that is drawn; empty: none is
	Count    string
	Read     string
	ReadAt   string
	Children []linkView
}

// controlView is an input of a form. Name is the one of the query parameter.
type controlView struct{ ID, Name, Label, Type, Value string }

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

type rowView struct {
	Cells []cellView
	Bar   string // width in percent
}

type linkView struct {
	Title, Address string
	Current        bool
}

// address reads a page's query as the operation of the same report does.
func address(raw string) (api.Query, []string, error) {
	query, err := api.ParseQuery(raw)
	if err != nil {
		return query, nil, err
	}
	c := api.NewCall(&api.Operation{Contract: true, Teams: true, Params: []api.Param{
		{Name: "token", In: api.InQuery}, {Name: "provider", In: api.InQuery}, {Name: "params", In: api.InQuery, Shape: api.Tree},
	}}, nil)
	if err := c.Bind(query); err != nil {
		return query, nil, err
	}
	teams, err := c.Teams()
	return query, teams, err
}

// reportOfNobody answers as an organization does that has no such report.
func (m *Module) reportOfNobody(w http.ResponseWriter, r *http.Request, _ error) {
	if _, _, err := address(r.URL.RawQuery); err != nil {
		m.incomplete(w)
		return
	}
	m.noReport(w, reports.NotFoundProblem())
}

func (m *Module) incomplete(w http.ResponseWriter) {
	m.message(w, http.StatusBadRequest, "", "The address is not complete", "Copy the whole link and try again.")
}

func (m *Module) noReport(w http.ResponseWriter, p *api.Problem) {
	m.message(w, http.StatusNotFound, "", "There is no such report", p.Message+".")
}

func (m *Module) reportPage(w http.ResponseWriter, r *http.Request, t *tenants.Tenant) {
	query, teams, err := address(r.URL.RawQuery)
	if err != nil {
		m.incomplete(w)
		return
	}
	token, provider := query.Text("token"), query.Text("provider")
	pid, child := r.PathValue("pid"), r.PathValue("report_id")
	shared, err := m.Reports.Open(r.Context(), t, reports.SharedRequest{
		PID: pid, ReportID: child, Token: secret.New(token), Provider: provider, Params: query.Tree("params"), Data: true, Teams: teams,
	})
	if err != nil {
		m.reportProblem(r.Context(), w, t, err)
		return
	}
	view := layOut(&shared)
	view.Organization = t.Org.Name
	kept := url.Values{}
	for _, p := range []controlView{{Name: "token", Value: token}, {Name: "provider", Value: provider}} {
		if p.Value != "" {
			view.Kept = append(view.Kept, p)
			kept.Set(p.Name, p.Value)
		}
	}
	view.Children = links(pid, child, kept, shared.ChildReports)
	m.render(w, http.StatusOK, "report", view)
}

// links lead to the other reports at this address.
func links(pid, current string, kept url.Values, children []reports.ChildReport) []linkView {
	at := func(segments ...string) string {
		u := url.URL{Path: "/shared/reports/" + strings.Join(segments, "/"), RawQuery: kept.Encode()}
		return u.String()
	}
	var all []linkView
	if current != "" {
		all = append(all, linkView{Title: "Back to the start", Address: at(pid)})
	}
	for _, c := range children {
		all = append(all, linkView{Title: c.Title, Address: at(pid, c.ID), Current: c.ID == current})
	}
	return all
}

func (m *Module) reportProblem(ctx context.Context, w http.ResponseWriter, t *tenants.Tenant, err error) {
	switch p := api.ProblemOf(err); {
	case errors.Is(err, reports.ErrNotShowable):
		m.message(w, http.StatusConflict, t.Org.Name, "The report cannot be shown",
			"A field or a source that it uses was removed or changed since the report was made. Whoever gave you the link can have it mended.")
	case errors.Is(err, reports.ErrTooLong):
		m.message(w, http.StatusServiceUnavailable, t.Org.Name, "The report took too long", p.Message+".")
	case p.Code == http.StatusOK:
		m.noReport(w, p)
	case p.Code == http.StatusForbidden:
		m.message(w, http.StatusForbidden, t.Org.Name, "This link does not open the report", "It may have expired or been withdrawn. Ask whoever gave it to you for a new one.")
	case p.Code == http.StatusUnprocessableEntity, p.Code == http.StatusBadRequest:
		m.message(w, p.Code, t.Org.Name, "The report cannot be shown with these values", p.Message)
	case p.Code == http.StatusServiceUnavailable:
		m.Log.WarnContext(ctx, "a shared report is unavailable", "error", err)
		m.unavailable(w, t.Org.Name)
	default:
		m.Log.ErrorContext(ctx, "a shared report failed", "error", err)
		m.message(w, http.StatusInternalServerError, t.Org.Name, "Something went wrong", "Please try again.")
	}
}

func layOut(s *reports.Shared) reportView {
	read := time.Unix(s.RetrievedAt, 0).UTC()
	v := reportView{
		frame: frame{Title: s.Title}, Desc: s.Desc, Controls: controls(s),
		Read: read.Format("2006-01-02 15:04 UTC"), ReadAt: read.Format(time.RFC3339),
	}
	if s.Data == nil {
		return v
	}
	last := -1 // the last column of numbers is the measure that is drawn
	for i, c := range s.Data.Columns {
		cell := cellView{Title: c.Title, Class: cellClass(c.Type)}
		if c.Type == reports.TypeDatetime {
			cell.Title += " (UTC)"
		}
		if c.Type == reports.TypeNumber {
			last = i
		}
		v.Columns = append(v.Columns, cell)
	}
	drawn := last >= 0 && slices.Contains([]string{"bar", "line", "pie"}, s.Visual)
	most := 0.0
	for _, row := range s.Data.Rows {
		cells := make([]cellView, len(row))
		for i, value := range row {
			cells[i] = cellView{Text: cellText(s.Data.Columns[i].Type, value), Class: v.Columns[i].Class}
		}
		v.Rows = append(v.Rows, rowView{Cells: cells})
		if drawn {
			most = max(most, asNumber(row[last]))
		}
	}
	if drawn {
		v.BarTitle = v.Columns[last].Title
		for i, row := range s.Data.Rows {
			if n := asNumber(row[last]); n > 0 {
				v.Rows[i].Bar = strconv.FormatFloat(100*n/most, 'f', 1, 64)
			}
		}
	}
	if s.Visual == "number" && len(v.Rows) == 1 && last >= 0 {
		v.Figure = &cellView{Title: v.Columns[last].Title, Text: v.Rows[0].Cells[last].Text}
	} else {
		v.Count = countText(len(v.Rows), s.Data)
	}
	return v
}

// controls returns the editable inputs in the order of their names.
func controls(s *reports.Shared) []controlView {
	var all []controlView
	for name, control := range s.Controls {
		c := controlView{Name: "params[" + name + "]", Label: control.Label, Type: control.Type, Value: s.Params[name]}
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

func countText(shown int, d *reports.Data) string {
	switch {
	case !d.Truncated && shown == 1:
		return "1 row."
	case !d.Truncated:
		return grouped(shown) + " rows."
	case d.Total > shown:
		return "The first " + grouped(shown) + " of " + grouped(d.Total) + " rows are shown."
	}
	return "The first " + grouped(shown) + " rows are shown; there are more."
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func asNumber(v any) float64 {
	switch n := v.(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

func cellText(columnType string, v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case float64:
		return floatText(x)
	case bool:
		if x {
			return "yes"
		}
		return "no"
	case string:
		if moment, err := time.Parse(time.RFC3339, x); columnType == reports.TypeDatetime && err == nil {
			return moment.UTC().Format("2006-01-02 15:04")
		}
		return x
	case []any:
		words := make([]string, len(x))
		for i := range x {
			words[i] = cellText(columnType, x[i])
		}
		return strings.Join(words, ", ")
	case []string:
		return strings.Join(x, ", ")
	}
	return fmt.Sprint(v)
}

// floatText writes a number with at most four decimals, but never a small one as nothing.
func floatText(x float64) string {
	switch size := math.Abs(x); {
	case size >= 1e15 || (size < 0.001 && x != 0):
		return strconv.FormatFloat(x, 'g', -1, 64)
	case x == math.Trunc(x):
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(x, 'f', 4, 64), "0"), ".")
}
