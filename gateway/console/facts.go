package console

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/site"
	"tenantry/internal/strictjson"
)

// paging reports whether a parameter says which of the rows are asked for.
func paging(name string) bool {
	return slices.Contains([]string{"page", "per_page", "after", whole}, name)
}

// facts lays an answer out: what has rows as a table, the rest by its members.
func (v *visit) facts(p *site.Page, path map[string]string, data strictjson.Value) (facts []pair, table *tableView) {
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
		if m.Name == p.Shows.Defined.Values && m.Name != "" && m.Value.Is == strictjson.Object {
			facts = append(facts, v.definedFacts(p, path, m.Value)...)
			continue
		}
		value := v.field(p, m.Name, m.Value, 0)
		if results, count := m.Value.Get("results"), m.Value.Get("count"); results.Is == strictjson.Array && count.Is == strictjson.Number { // a page of what lies in it
			value = v.field(p, m.Name, results, 0)
			if n, _ := strconv.Atoi(count.Text); n > len(results.Items) {
				facts = append(facts, pair{p.FieldTitle(m.Name) + " in all", shown{Text: v.whole(n), Class: "number"}})
			}
		}
		if m.Name == "share_url" || m.Name == "url" {
			value.Href = webAddress(m.Value.Text)
		}
		facts = append(facts, pair{p.FieldTitle(m.Name), value})
	}
	return facts, table
}

// definedFacts lays out the values of fields that the organization defined, in their order and under their titles. What is encrypted is
// not shown.
func (v *visit) definedFacts(p *site.Page, path map[string]string, values strictjson.Value) (facts []pair) {
	var known []string
	for _, d := range v.defined(p.Shows, path) {
		if known = append(known, d.key); d.kind == schema.Encrypted {
			continue
		}
		value := v.ownValue(d.kind, values.Get(d.key), 0)
		if d.kind == schema.URL {
			value.Href = webAddress(values.Get(d.key).Text)
		}
		facts = append(facts, pair{cmp.Or(d.title, site.Label(d.key)), value})
	}
	for _, m := range without(values, known...).Members {
		facts = append(facts, pair{site.Label(m.Name), present(m.Value, 1)})
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
func (v *visit) field(p *site.Page, name string, value strictjson.Value, depth int) shown {
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
			s.List[i] = site.Label(one)
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
	list := v.site.ListNamed(name)
	if list == nil || len(value.Items) == 0 || value.Items[0].Is != strictjson.Object || keyOf(list.Each, value.Items[0]) == "" || !v.may(list.Each.Shows) {
		return s
	}
	s = shown{}
	for i, item := range value.Items {
		s.Links = append(s.Links, site.Link{Title: clip(nameOf(item, "Entry "+itoa(i+1))), Address: list.Each.Address(map[string]string{list.Each.Key(): keyOf(list.Each, item)})})
	}
	return s
}

// figure writes a number as people do whose unit its name says, or that counts: a list whose records have no page is of figures.
func (v *visit) figure(p *site.Page, name, text string) string {
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
	case p.List && p.Leads == nil:
		return l.Number(n)
	case name != "id" && name != "code" && !strings.HasSuffix(name, "_id"): // which count nothing
		return v.grouped(text)
	}
	return text
}

// whole is the parameter by which running a report answers all its rows, of which its picture is drawn.
const whole = "whole"
