package console

import (
	"encoding/json"
	"strconv"
	"strings"

	"tenantry/gateway/console/chart"
	"tenantry/internal/strictjson"
	"tenantry/reports"
)

// recordAbove returns the record that the page is below of.
func (v *visit) recordAbove(p *page, path map[string]string) (record strictjson.Value) {
	for _, above := range v.site.pages {
		for _, below := range above.below {
			if below != p || above.list || !strings.HasPrefix(p.path, above.path+"/") || !may(above.shows, v.who, v.t) {
				continue
			}
			if a, err := v.read(above.shows, path, ""); err == nil && a.ok() {
				record = a.data
			}
		}
	}
	return record
}

// draw draws what running a report has answered, and writes it into the table, as its shared page does.
func (v *visit) draw(report, answer strictjson.Value, table *tableView) []*chart.Chart {
	s := reports.Shared{Data: &reports.Data{}}
	s.Visual = report.Get("visual").Text
	if report.Get("query").Is != strictjson.Object || answer.Get("columns").Is != strictjson.Array {
		return nil
	}
	if err := json.Unmarshal(report.Get("query").Raw(), &s.Asked); err != nil {
		return nil // the table shows it all
	}
	for _, c := range answer.Get("columns").Items {
		s.Data.Columns = append(s.Data.Columns, reports.Column{Name: c.Get("name").Text, Title: c.Get("title").Text, Type: c.Get("type").Text})
	}
	for _, r := range answer.Get("results").Items {
		row := make([]any, len(s.Data.Columns))
		for i := range min(len(row), len(r.Items)) {
			row[i] = r.Items[i].Any()
			if n := r.Items[i]; n.Is == strictjson.Number {
				if x, err := strconv.ParseFloat(n.Text, 64); err == nil {
					row[i] = x
				}
			}
		}
		s.Data.Rows = append(s.Data.Rows, row)
	}
	l := v.pages.readers.of(v.r.Header.Get("Accept-Language"))
	laid := layOut(&s, l, 1)
	for i, row := range laid.Rows {
		for j, cell := range row {
			table.Rows[i][j] = shown{Text: cell.Text, Class: cell.Class}
		}
	}
	if s.Visual == "" {
		return nil
	}
	return laid.Charts
}
