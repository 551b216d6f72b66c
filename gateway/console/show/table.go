package show

import (
	"strconv"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/reports"
)

// reported makes a table of what a report answers, with its numbers as the reader writes them; nil where that is none.
func reported(v *visit.Visit, columns, results strictjson.Value) *Table {
	if columns.Is != strictjson.Array {
		return nil
	}
	table := &Table{}
	l := v.Locale()
	for _, c := range columns.Items {
		table.Columns = append(table.Columns, layout.Cell{Title: c.Get("title").Text, Class: CellClass(c.Get("type").Text)})
	}
	for _, r := range results.Items {
		row := make([]Value, len(r.Items))
		for i := range r.Items {
			row[i] = Present(r.Items[i], deepest)
			if x, err := strconv.ParseFloat(r.Items[i].Text, 64); err == nil && r.Items[i].Is == strictjson.Number {
				row[i].Text = l.Number(x)
			}
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// listed makes a table of records, nil where there is none.
func listed(v *visit.Visit, p *site.Page, records strictjson.Value) *Table {
	if len(records.Items) == 0 || records.Items[0].Is != strictjson.Object {
		return nil
	}
	table := &Table{}
	fields := Without(records.Items[0], "id").Members // which says nothing to people
	for _, m := range fields {
		table.Columns = append(table.Columns, layout.Cell{Title: p.FieldTitle(m.Name)})
	}
	for _, r := range records.Items {
		var row []Value
		for _, m := range fields {
			cell := Field(v, p, m.Name, r.Get(m.Name), deepest-1)
			cell.Text = Clip(cell.Text)
			row = append(row, cell)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// AddButtons adds to each row of the table what can be done with it.
func AddButtons(v *visit.Visit, table *Table, row *operation.Row, path map[string]string, name string, data strictjson.Value) {
	if table == nil {
		return
	}
	table.Columns = append(table.Columns, layout.Cell{Title: "Actions"})
	for i, record := range data.Get("results").Items {
		b := v.Button(row, site.WithParameter(path, name, record.Get("id").Text), site.Verb(row))
		b.Danger = true
		table.Rows[i] = append(table.Rows[i], Value{Button: b})
	}
}

// Table is an answer with columns and rows.
type Table struct {
	Columns []layout.Cell
	Rows    [][]Value
}

// CellClass returns how a column of the type looks.
func CellClass(columnType string) string {
	switch columnType {
	case reports.TypeNumber:
		return "number"
	case reports.TypeDate, reports.TypeDatetime:
		return "moment"
	}
	return ""
}
