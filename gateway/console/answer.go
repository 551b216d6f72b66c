package console

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/api"
	"tenantry/internal/strictjson"
)

// paging reports whether a parameter says which of the rows are asked for.
func paging(name string) bool { return slices.Contains([]string{"page", "per_page", "after"}, name) }

// facts lays an answer out: what has rows as a table, the rest by its members.
func (v *visit) facts(p *page, data strictjson.Value) (facts []pair, table *tableView) {
	if results := data.Get("results"); results.Is == strictjson.Array {
		if table = v.reported(data.Get("columns"), results); table == nil {
			table = v.listed(results)
		}
		data = without(data, "columns", "results", "page", "pages", "count")
		if data.Get("truncated").Is == strictjson.False {
			data = without(data, "truncated")
		}
	}
	if data.Is != strictjson.Object {
		if data.Is == strictjson.Array && len(data.Items) == 0 {
			return nil, table
		}
		return []pair{{"Answer", present(data, 0)}}, table
	}
	for _, m := range data.Members {
		value := present(m.Value, 0)
		if results, count := m.Value.Get("results"), m.Value.Get("count"); results.Is == strictjson.Array && count.Is == strictjson.Number { // a page of what lies in it
			value = present(results, 0)
			if n, _ := strconv.Atoi(count.Text); n > len(results.Items) {
				facts = append(facts, pair{label(m.Name) + " in all", shown{Text: v.whole(n), Class: "number"}})
			}
		}
		value.Href = v.leads(p, m.Name, m.Value)
		if m.Name == "share_url" || m.Name == "url" {
			value.Href = webAddress(m.Value.Text)
		}
		value.Text = v.subject(m.Name, value.Text)
		facts = append(facts, pair{label(m.Name), value})
	}
	return facts, table
}

// reported makes a table of what a report answers, with its numbers as the reader writes them; nil where that is none.
func (v *visit) reported(columns, results strictjson.Value) *tableView {
	if columns.Is != strictjson.Array {
		return nil
	}
	table := &tableView{}
	l := v.pages.readers.of(v.r.Header.Get("Accept-Language"))
	for _, c := range columns.Items {
		table.Columns = append(table.Columns, cellView{Title: c.Get("title").Text, Class: cellClass(c.Get("type").Text)})
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
func (v *visit) listed(records strictjson.Value) *tableView {
	if len(records.Items) == 0 || records.Items[0].Is != strictjson.Object {
		return nil
	}
	table := &tableView{}
	for _, m := range records.Items[0].Members {
		table.Columns = append(table.Columns, cellView{Title: label(m.Name)})
	}
	for _, r := range records.Items {
		var row []shown
		for _, m := range records.Items[0].Members {
			cell := present(r.Get(m.Name), deepest)
			cell.Text = clip(v.subject(m.Name, cell.Text))
			row = append(row, cell)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// lacking returns the parameter of the operation's path that names one of the rows of a page.
func lacking(row *api.Operation, path map[string]string) string {
	for _, p := range row.Params {
		if _, has := path[p.Name]; p.In == api.InPath && !has {
			return p.Name
		}
	}
	return ""
}

// offer adds to each row of the table what can be done with it.
func (v *visit) offer(table *tableView, row *api.Operation, path map[string]string, name string, data strictjson.Value) {
	if table == nil {
		return
	}
	table.Columns = append(table.Columns, cellView{Title: "Actions"})
	for i, record := range data.Get("results").Items {
		b := v.button(row, merged(path, name, record.Get("id").Text), verb(row))
		b.Danger = true
		table.Rows[i] = append(table.Rows[i], shown{Button: b})
	}
}

// subject returns the name of whoever did something, where the field says that as user:7.
func (v *visit) subject(field, text string) string {
	if !slices.Contains([]string{"subject", "by", "issued_by"}, field) || !strings.Contains(text, ":") {
		return text
	}
	if name := v.called("")[text]; name != "" {
		return name
	}
	return text
}

// webAddress returns the text where it is the address of a page, else nothing.
func webAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return text
}
