package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/console/chart"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/locale"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/reports"
)

// pageRows is how many rows a page shows.
const pageRows = 100

// layOut makes the view of a report: its charts, which show all rows, and one page of rows, per on a page.
func layOut(s *reports.Shared, l *locale.Locale, page, per int) reportView {
	read := time.Unix(s.RetrievedAt, 0).UTC()
	v := reportView{
		Frame: layout.Frame{Title: s.Title}, Desc: s.Desc, Controls: controls(s),
		Read: l.Moment(read) + " UTC", ReadAt: read.Format(time.RFC3339),
	}
	if s.Data == nil {
		return v
	}
	sh := shapeOf(s)
	for _, c := range s.Data.Columns {
		cell := layout.Cell{Title: c.Title, Class: show.CellClass(c.Type)}
		if c.Type == reports.TypeDatetime {
			cell.Title += " (UTC)"
		}
		v.Columns = append(v.Columns, cell)
	}
	page, pages := clampPage(page, per, len(s.Data.Rows))
	from := (page - 1) * per
	for _, row := range s.Data.Rows[from:min(from+per, len(s.Data.Rows))] {
		cells := make([]layout.Cell, len(row))
		for i, value := range row {
			text, none := sh.cell(l, s.Data, i, value)
			if cells[i] = (layout.Cell{Text: text, Class: v.Columns[i].Class}); none {
				cells[i].Class = "none"
			}
		}
		v.Rows = append(v.Rows, cells)
	}
	if s.Visual == "number" && len(s.Data.Rows) == 1 && len(sh.groups) == 0 && len(sh.measures) > 0 {
		for _, i := range sh.measures {
			v.Figures = append(v.Figures, layout.Cell{Title: v.Columns[i].Title, Text: v.Rows[0][i].Text})
		}
		return v
	}
	v.Charts = drawCharts(s, &sh, l)
	v.Count = countText(l, from, len(v.Rows), s.Data)
	if pages > 1 {
		v.Pages = pageLinks(l, page, pages)
	}
	return v
}

// clampPage returns the nearest existing page, and how many pages there are.
func clampPage(page, per, rows int) (nearest, pages int) {
	pages = max((rows+per-1)/per, 1)
	return min(max(page, 1), pages), pages
}

// pageLinks returns links to the first and the last page and to those near the current one. A link without an address
// stands for the pages between. The other addresses are page numbers, which the caller completes.
func pageLinks(l *locale.Locale, page, pages int) []site.Link {
	var all []site.Link
	shows := func(n int) bool { return n == 1 || n == pages || n >= page-1 && n <= page+1 }
	for n, before := 1, 0; n <= pages; n++ {
		if shows(n) || shows(n-1) && shows(n+1) { // a single page takes no more room than an ellipsis
			if before < n-1 {
				all = append(all, site.Link{Title: "…"})
			}
			before = n
			title := l.FmtNumber(float64(n), 0)
			all = append(all, site.Link{Title: title, Address: strconv.Itoa(n), Current: n == page})
		}
	}
	return all
}

// countText returns which rows are shown, and how many there are.
func countText(l *locale.Locale, from, shown int, d *reports.Data) string {
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
		return which + site.Capitalize(CutText(l, n, d.Total)) + " are shown."
	}
	return which + "The first " + number(n) + " rows are shown; there are more."
}

// CutText describes the rows of a report that was cut: "the first 1,000 of 14,807 rows".
func CutText(l *locale.Locale, rows, drawTotal int) string {
	if drawTotal > rows {
		return "the first " + l.FmtNumber(float64(rows), 0) + " of " + l.FmtNumber(float64(drawTotal), 0) + " rows"
	}
	return "the first " + l.FmtNumber(float64(rows), 0) + " rows of more"
}

// cell returns the text of a value in a column. none reports whether it is the name of a group without a value.
func (sh *shape) cell(l *locale.Locale, d *reports.Data, column int, v any) (text string, none bool) {
	if by := sh.by[column]; by != store.NoBucket {
		if bucket, ok := v.(string); ok {
			if t, ok := parseTime(bucket, by); ok {
				return l.Time(t, steps()[by]), false
			}
		}
	}
	if text = cellText(l, d.Columns[column].Type, v); text == "" && sh.grouped(column) {
		if v != nil {
			return emptyName, true
		}
		return missingName, true
	}
	return text, false
}

// cellText returns the text of a value of the type.
func cellText(l *locale.Locale, columnType string, v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case int64:
		if x > 1<<53 || x < -1<<53 { // a float would lose digits
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
		switch t, ok := parseTime(x, store.NoBucket); {
		case !ok:
			return x
		case columnType == reports.TypeDate:
			return l.Time(t, chart.Day)
		default:
			return l.Moment(t)
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
