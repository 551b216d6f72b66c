package console

import (
	"strconv"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/reports"
)

// reported makes a table of what a report answers, with its numbers as the reader writes them; nil where that is none.
func (v *visit) reported(columns, results strictjson.Value) *tableView {
	if columns.Is != strictjson.Array {
		return nil
	}
	table := &tableView{}
	l := v.locale()
	for _, c := range columns.Items {
		table.Columns = append(table.Columns, layout.Cell{Title: c.Get("title").Text, Class: cellClass(c.Get("type").Text)})
	}
	for _, r := range results.Items {
		row := make([]shown, len(r.Items))
		for i := range r.Items {
			row[i] = present(r.Items[i], deepest)
			if x, err := strconv.ParseFloat(r.Items[i].Text, 64); err == nil && r.Items[i].Is == strictjson.Number {
				row[i].Text = l.Number(x)
			}
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// listed makes a table of records, nil where there is none.
func (v *visit) listed(p *site.Page, records strictjson.Value) *tableView {
	if len(records.Items) == 0 || records.Items[0].Is != strictjson.Object {
		return nil
	}
	table := &tableView{}
	fields := without(records.Items[0], "id").Members // which says nothing to people
	for _, m := range fields {
		table.Columns = append(table.Columns, layout.Cell{Title: p.FieldTitle(m.Name)})
	}
	for _, r := range records.Items {
		var row []shown
		for _, m := range fields {
			cell := v.field(p, m.Name, r.Get(m.Name), deepest-1)
			cell.Text = clip(cell.Text)
			row = append(row, cell)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// offer adds to each row of the table what can be done with it.
func (v *visit) offer(table *tableView, row *operation.Row, path map[string]string, name string, data strictjson.Value) {
	if table == nil {
		return
	}
	table.Columns = append(table.Columns, layout.Cell{Title: "Actions"})
	for i, record := range data.Get("results").Items {
		b := v.button(row, site.WithParameter(path, name, record.Get("id").Text), site.Verb(row))
		b.Danger = true
		table.Rows[i] = append(table.Rows[i], shown{Button: b})
	}
}

// tableView is an answer with columns and rows.
type tableView struct {
	Columns []layout.Cell
	Rows    [][]shown
}

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
