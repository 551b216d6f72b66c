package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/tenants"
)

// paging reports whether a parameter says which of the rows are asked for.
func paging(name string) bool {
	return slices.Contains([]string{"page", "per_page", "after", whole}, name)
}

// facts lays an answer out: what has rows as a table, the rest by its members.
func (v *visit) facts(p *page, path map[string]string, data strictjson.Value) (facts []pair, table *tableView) {
	if results := data.Get("results"); results.Is == strictjson.Array {
		if table = v.reported(data.Get("columns"), results); table == nil {
			table = v.listed(p, results)
		}
		if data.Get("columns").Is == strictjson.Array { // what is cut is said beside the rows
			data = without(data, "columns", "total", "truncated")
		}
		data = without(data, "results", "page", "pages", "count")
	}
	if data.Is != strictjson.Object {
		if data.Is == strictjson.Array && len(data.Items) == 0 {
			return nil, table
		}
		return []pair{{"Answer", present(data, 0)}}, table
	}
	for _, m := range data.Members {
		if m.Name == "org_id" { // which the page says
			continue
		}
		if m.Name == p.shows.Defined.Values && m.Name != "" && m.Value.Is == strictjson.Object {
			facts = append(facts, v.definedFacts(p, path, m.Value)...)
			continue
		}
		value := v.field(p, m.Name, m.Value, 0)
		if results, count := m.Value.Get("results"), m.Value.Get("count"); results.Is == strictjson.Array && count.Is == strictjson.Number { // a page of what lies in it
			value = v.field(p, m.Name, results, 0)
			if n, _ := strconv.Atoi(count.Text); n > len(results.Items) {
				facts = append(facts, pair{p.called(m.Name) + " in all", shown{Text: v.whole(n), Class: "number"}})
			}
		}
		if m.Name == "share_url" || m.Name == "url" {
			value.Href = webAddress(m.Value.Text)
		}
		facts = append(facts, pair{p.called(m.Name), value})
	}
	return facts, table
}

// definedFacts lays out the values of fields that the organization defined, in their order and under their titles. What is encrypted is
// not shown.
func (v *visit) definedFacts(p *page, path map[string]string, values strictjson.Value) (facts []pair) {
	var known []string
	for _, d := range v.defined(p.shows, path) {
		if known = append(known, d.key); d.kind == schema.Encrypted {
			continue
		}
		value := v.ownValue(d.kind, values.Get(d.key), 0)
		if d.kind == schema.URL {
			value.Href = webAddress(values.Get(d.key).Text)
		}
		facts = append(facts, pair{cmp.Or(d.title, label(d.key)), value})
	}
	for _, m := range without(values, known...).Members {
		facts = append(facts, pair{label(m.Name), present(m.Value, 1)})
	}
	return facts
}

// ownValue shows a value of a field that the organization defined.
func (v *visit) ownValue(kind string, value strictjson.Value, depth int) shown {
	s := present(value, depth)
	if value.Is == strictjson.Number {
		s.Text = v.grouped(value.Text)
	}
	return s
}

// grouped writes a number as the reader does, with all its digits; what is too long for that as it is.
func (v *visit) grouped(text string) string {
	n, err := strconv.ParseFloat(text, 64)
	whole, part, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	if err != nil || strings.ContainsAny(text, "eE") || len(whole)+len(part) > 15 { // more than a float holds
		return text
	}
	return v.locale().FmtNumber(n, uint64(len(part)))
}

// field shows what a record has by that name: who it is of by name, and what lies in it by names that lead there.
func (v *visit) field(p *page, name string, value strictjson.Value, depth int) shown {
	s := member(name, value, depth)
	switch value.Is {
	case strictjson.Number:
		if s.Time != "" {
			break
		}
		s.Text = v.figure(p, name, value.Text)
	case strictjson.Text:
		if value.Text != "" && s.Time == "" {
			s.Text = v.word(p, name, value.Text)
		}
	}
	for i, item := range value.Items {
		if depth == deepest && len(item.Members) > 0 && item.Members[0].Value.Is == strictjson.Text && i < len(s.List) { // there is room for its name
			first := item.Members[0]
			s.List[i] = v.subject(first.Name, nameOf(item, first.Value.Text))
		}
	}
	for i, one := range s.List { // as forms call them
		if s.List[i] = v.word(p, name, one); strings.HasSuffix(name, "permissions") {
			s.List[i] = label(one)
		}
	}
	ref := ""
	switch s.Href, ref = v.leads(p, name, value); {
	case s.Href == "":
	case name == "user_id":
		s.Class, s.Text = "", v.whoIs("user:"+value.Text)
	default:
		s.Text = cmp.Or(v.calledBy(ref, value.Text), s.Text)
	}
	s.Text = v.subject(name, s.Text)
	list := v.site.called(name)
	if list == nil || len(value.Items) == 0 || value.Items[0].Is != strictjson.Object || keyOf(list.each, value.Items[0]) == "" || !v.may(list.each.shows) {
		return s
	}
	s = shown{}
	for i, item := range value.Items {
		s.Links = append(s.Links, linkView{Title: clip(nameOf(item, "Entry "+itoa(i+1))), Address: list.each.address(map[string]string{list.each.key(): keyOf(list.each, item)})})
	}
	return s
}

// figure writes a number as people do whose unit its name says, or that counts: a list whose records have no page is of figures.
func (v *visit) figure(p *page, name, text string) string {
	n, err := strconv.ParseFloat(text, 64)
	l := v.locale()
	in := func(units ...string) string {
		at := 0
		for ; n >= 1000 && at < len(units)-1; at++ {
			n /= 1000
		}
		if at == 0 {
			return l.Number(n) + " " + units[0]
		}
		return l.FmtNumber(n, 1) + " " + units[at]
	}
	switch {
	case err != nil:
		return text
	case name == "bytes" || strings.HasSuffix(name, "_bytes"):
		return in("bytes", "kB", "MB", "GB", "TB")
	case strings.HasSuffix(name, "_us"):
		return in("µs", "ms", "s")
	case strings.HasSuffix(name, "_ms"):
		return in("ms", "s")
	case p.list && p.leads == nil:
		return l.Number(n)
	case name != "id" && name != "code" && !strings.HasSuffix(name, "_id"): // which count nothing
		return v.grouped(text)
	}
	return text
}

// referred are the names of records by their keys, as far as they were looked up.
type referred struct {
	names map[string]string
	all   bool
}

// referred returns the names of the records of a resource, as far as the person may see them, of many but the first.
func (v *visit) referred(resource string) referred {
	known, ok := v.refs[resource]
	if !ok {
		lacked := v.lacked // without the names the page is whole
		options, all := v.options(resource)
		v.lacked, known = lacked, referred{make(map[string]string, len(options)), all || options == nil}
		for _, o := range options {
			known.names[o.Value] = o.Title
		}
		if v.refs == nil {
			v.refs = map[string]referred{}
		}
		v.refs[resource] = known
	}
	return known
}

// calledBy returns the name of a record, empty where the person may not see it, or there is none.
func (v *visit) calledBy(resource, key string) string {
	known := v.referred(resource)
	name, found := known.names[key]
	if list := v.site.listOf(resource); !found && !known.all && v.may(list.each.shows) {
		lacked := v.lacked
		if a, err := v.read(list.each.shows, map[string]string{list.each.key(): key}, ""); err == nil && a.ok() {
			name = clip(nameOf(a.data, ""))
		}
		v.lacked, known.names[key] = lacked, name
	}
	return name
}

// called returns the list of records that is called so, and lies beneath no other record.
func (s *site) called(name string) *page {
	for _, p := range s.pages {
		if p.list && p.each != nil && !strings.Contains(p.path, "{") && p.segments[len(p.segments)-1] == name {
			return p
		}
	}
	return nil
}

// reported makes a table of what a report answers, with its numbers as the reader writes them; nil where that is none.
func (v *visit) reported(columns, results strictjson.Value) *tableView {
	if columns.Is != strictjson.Array {
		return nil
	}
	table := &tableView{}
	l := v.locale()
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
func (v *visit) listed(p *page, records strictjson.Value) *tableView {
	if len(records.Items) == 0 || records.Items[0].Is != strictjson.Object {
		return nil
	}
	table := &tableView{}
	fields := without(records.Items[0], "id").Members // which says nothing to people
	for _, m := range fields {
		table.Columns = append(table.Columns, cellView{Title: p.called(m.Name)})
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

// lacking returns the parameter of the operation's path that names one of the rows of a page.
func lacking(row *operation.Row, path map[string]string) string {
	for _, p := range row.Params {
		if _, has := path[p.Name]; p.In == operation.InPath && !has {
			return p.Name
		}
	}
	return ""
}

// offer adds to each row of the table what can be done with it.
func (v *visit) offer(table *tableView, row *operation.Row, path map[string]string, name string, data strictjson.Value) {
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

// operation returns what people call what was done: the summary of the operation, the words of a command.
func (v *visit) operation(name string) string {
	if row := cmp.Or(v.site.rows[name], v.own[name]); row != nil {
		return row.Summary
	}
	return "Command: " + strings.ReplaceAll(name, ".", " ")
}

// subject returns the name of whoever did something, where the field says that as user:7, and of what was done.
func (v *visit) subject(field, text string) string {
	switch {
	case field == "operation" && text != "":
		return v.operation(text)
	case !slices.Contains([]string{"subject", "by", "issued_by"}, field):
		return text
	case text == (&tenants.Principal{}).Subject():
		return nobodyKnown
	case text == "command":
		return "a command"
	}
	return cmp.Or(v.whoIs(text), text)
}

// webAddress returns the text where it is the address of a page, else nothing.
func webAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return text
}
