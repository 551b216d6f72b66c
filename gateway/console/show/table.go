package show

import (
	"slices"
	"strconv"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/reports"
)

// reportTable makes a table of the results of a report, or nil if columns is not a list. Numbers are in the locale of
// the reader.
func reportTable(v *visit.Visit, columns, results strictjson.Value) *Table {
	if columns.Is != strictjson.Array {
		return nil
	}
	table := &Table{}
	l := v.Locale()
	for _, c := range columns.Items {
		cell := layout.Cell{Title: c.Get("title").Text, Class: CellClass(c.Get("type").Text)}
		table.Columns = append(table.Columns, cell)
	}
	for _, r := range results.Items {
		row := make([]Value, len(r.Items))
		for i := range r.Items {
			row[i] = Present(r.Items[i], maxDepth)
			if x, err := strconv.ParseFloat(r.Items[i].Text, 64); err == nil && r.Items[i].Is == strictjson.Number {
				row[i].Text = l.Number(x)
			}
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// recordTable makes a table of records, without what all of them lack, or nil if there are none.
func recordTable(v *visit.Visit, p *site.Page, records strictjson.Value) *Table {
	if len(records.Items) == 0 || records.Items[0].Is != strictjson.Object {
		return nil
	}
	table := &Table{}
	fields := Without(records.Items[0], "id").Members // identifiers mean nothing to readers
	fields = slices.DeleteFunc(fields, func(m strictjson.Member) bool {
		said := func(r strictjson.Value) bool { return r.Get(m.Name).Is != strictjson.Text || r.Get(m.Name).Text != "" }
		return !slices.ContainsFunc(records.Items, said)
	})
	for _, m := range fields {
		table.Columns = append(table.Columns, layout.Cell{Title: p.FieldTitle(m.Name)})
	}
	for _, r := range records.Items {
		var row []Value
		for _, m := range fields {
			cell := Field(v, p, m.Name, r.Get(m.Name), maxDepth-1)
			cell.Text = Clip(cell.Text)
			row = append(row, cell)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// AddButtons adds to each row of the table a button that calls the operation. name is the parameter of its path that
// takes the key of the row.
func AddButtons(
	v *visit.Visit, table *Table, row *operation.Row, path map[string]string, name string, data strictjson.Value,
) {
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

// Table is a table of values.
type Table struct {
	Title   string // for readers who do not see it; empty: there are no other tables on the page
	Columns []layout.Cell
	Rows    [][]Value
}

// CellClass returns the CSS class of a column of that type.
func CellClass(columnType string) string {
	switch columnType {
	case reports.TypeNumber:
		return "number"
	case reports.TypeDate, reports.TypeDatetime:
		return "moment"
	}
	return ""
}
