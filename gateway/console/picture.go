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

// pictures draws what running a report has answered, as its shared page does.
func (v *visit) pictures(report, answer strictjson.Value) []*chart.Chart {
	s := reports.Shared{Data: &reports.Data{}}
	if s.Visual = report.Get("visual").Text; s.Visual == "" {
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
	return layOut(&s, l, 1).Charts
}
