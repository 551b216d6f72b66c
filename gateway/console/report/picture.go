package report

import (
	"encoding/json"
	"net/url"
	"strconv"

	"tenantry/gateway/console/chart"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/locale"
	"tenantry/gateway/console/show"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/reports"
)

// PageOf returns one page of an answer that has all rows of a report.
func PageOf(answer strictjson.Value, asked url.Values) strictjson.Value {
	results := answer.Get("results")
	if results.Is != strictjson.Array {
		return answer
	}
	rows := results.Items
	page, _ := strconv.Atoi(asked.Get("page"))
	page, pages := clampPage(page, perPageOf(asked), len(rows))
	from := (page - 1) * perPageOf(asked)
	results.Items = rows[from:min(from+perPageOf(asked), len(rows))]
	part := show.Without(answer, "results", "page", "pages", "count")
	for name, n := range map[string]int{"page": page, "pages": pages, "count": len(rows)} {
		part.Members = append(part.Members, strictjson.Member{Name: name, Value: show.Parse(n)})
	}
	part.Members = append(part.Members, strictjson.Member{Name: "results", Value: results})
	return part
}

// perPageOf returns how many rows a page shows. The operation has validated the parameter.
func perPageOf(asked url.Values) int {
	n, err := strconv.Atoi(asked.Get("per_page"))
	if err != nil {
		return show.PerPage
	}
	return min(max(n, 1), operation.MostPerPage)
}

// sharedFrom converts the answer to the run of a report into the form that the page of a shared report takes. ok is
// false if it is not an answer to the run of a report.
func sharedFrom(report, answer strictjson.Value) (s reports.Shared, ok bool) {
	if report.Get("query").Is != strictjson.Object || answer.Get("columns").Is != strictjson.Array ||
		json.Unmarshal(report.Get("query").Raw(), &s.Asked) != nil {
		return s, false
	}
	s.Visual = report.Get("visual").Text
	s.Data = &reports.Data{Total: show.Count(answer, "total"), Truncated: answer.Get("truncated").Is == strictjson.True}
	for _, c := range answer.Get("columns").Items {
		column := reports.Column{Name: c.Get("name").Text, Title: c.Get("title").Text, Type: c.Get("type").Text}
		s.Data.Columns = append(s.Data.Columns, column)
	}
	for _, r := range answer.Get("results").Items {
		row := make([]any, len(s.Data.Columns))
		for i := range min(len(row), len(r.Items)) {
			row[i] = r.Items[i].Any()
			if n := r.Items[i]; n.Is == strictjson.Number {
				if x, err := strconv.ParseInt(n.Text, 10, 64); err == nil {
					row[i] = x
				} else if x, err := strconv.ParseFloat(n.Text, 64); err == nil {
					row[i] = x
				}
			}
		}
		s.Data.Rows = append(s.Data.Rows, row)
	}
	return s, true
}

// Draw returns the figures or the charts of the run of a report, and formats the cells of its table as the page of a
// shared report does.
func Draw(
	l *locale.Locale, report, answer strictjson.Value, asked url.Values, table *show.Table,
) (figures []layout.Cell, charts []*chart.Chart) {
	s, ok := sharedFrom(report, answer)
	if !ok {
		return nil, nil
	}
	page, _ := strconv.Atoi(asked.Get("page"))
	laid := layOut(&s, l, page, perPageOf(asked))
	for i, row := range laid.Rows[:min(len(laid.Rows), len(table.Rows))] {
		for j, cell := range row {
			table.Rows[i][j] = show.Value{Text: cell.Text, Class: cell.Class}
		}
	}
	return laid.Figures, laid.Charts
}
