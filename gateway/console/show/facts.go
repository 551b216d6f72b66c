package show

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
)

// Paging reports whether a parameter says which of the rows are asked for.
func Paging(name string) bool {
	return slices.Contains([]string{"page", "per_page", "after", Whole}, name)
}

// Facts lays an answer out: what has rows as a table, the rest by its members.
func Facts(v *visit.Visit, p *site.Page, path map[string]string, data strictjson.Value) (facts []Pair, table *Table) {
	if results := data.Get("results"); results.Is == strictjson.Array {
		if table = reported(v, data.Get("columns"), results); table == nil {
			table = listed(v, p, results)
		}
		if data.Get("columns").Is == strictjson.Array { // what is cut is said beside the rows
			data = Without(data, "columns", "total", "truncated")
		}
		data = Without(data, "results", "page", "pages", "count")
	}
	if data.Is != strictjson.Object {
		if data.Is == strictjson.Array && len(data.Items) == 0 {
			return nil, table
		}
		return []Pair{{"Answer", Present(data, 0)}}, table
	}
	for _, m := range data.Members {
		if m.Name == "org_id" { // which the page says
			continue
		}
		if m.Name == p.Shows.Defined.Values && m.Name != "" && m.Value.Is == strictjson.Object {
			facts = append(facts, definedFacts(v, p, path, m.Value)...)
			continue
		}
		value := Field(v, p, m.Name, m.Value, 0)
		if results, count := m.Value.Get("results"), m.Value.Get("count"); results.Is == strictjson.Array && count.Is == strictjson.Number { // a page of what lies in it
			value = Field(v, p, m.Name, results, 0)
			if n, _ := strconv.Atoi(count.Text); n > len(results.Items) {
				facts = append(facts, Pair{p.FieldTitle(m.Name) + " in all", Value{Text: v.Whole(n), Class: "number"}})
			}
		}
		if m.Name == "share_url" || m.Name == "url" {
			value.Href = webAddress(m.Value.Text)
		}
		facts = append(facts, Pair{p.FieldTitle(m.Name), value})
	}
	return facts, table
}

// definedFacts lays out the values of fields that the organization defined, in their order and under their titles. What
// is encrypted is not shown.
func definedFacts(v *visit.Visit, p *site.Page, path map[string]string, values strictjson.Value) (facts []Pair) {
	var known []string
	for _, d := range Defined(v, p.Shows, path) {
		if known = append(known, d.Key); d.Kind == schema.Encrypted {
			continue
		}
		value := ownValue(v, d.Kind, values.Get(d.Key), 0)
		if d.Kind == schema.URL {
			value.Href = webAddress(values.Get(d.Key).Text)
		}
		facts = append(facts, Pair{cmp.Or(d.Title, site.Label(d.Key)), value})
	}
	for _, m := range Without(values, known...).Members {
		facts = append(facts, Pair{site.Label(m.Name), Present(m.Value, 1)})
	}
	return facts
}

// ownValue shows a value of a field that the organization defined.
func ownValue(v *visit.Visit, kind string, value strictjson.Value, depth int) Value {
	s := Present(value, depth)
	if value.Is == strictjson.Number {
		s.Text = grouped(v, value.Text)
	}
	return s
}

// grouped writes a number as the reader does, with all its digits; what is too long for that as it is.
func grouped(v *visit.Visit, text string) string {
	n, err := strconv.ParseFloat(text, 64)
	whole, part, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	if err != nil || strings.ContainsAny(text, "eE") || len(whole)+len(part) > 15 { // more than a float holds
		return text
	}
	return v.Locale().FmtNumber(n, uint64(len(part)))
}

// Field shows what a record has by that name: who it is of by name, and what lies in it by names that lead there.
func Field(v *visit.Visit, p *site.Page, name string, value strictjson.Value, depth int) Value {
	s := member(name, value, depth)
	switch value.Is {
	case strictjson.Number:
		if s.Time != "" {
			break
		}
		s.Text = figure(v, p, name, value.Text)
	case strictjson.Text:
		if value.Text != "" && s.Time == "" {
			s.Text = word(v, p, name, value.Text)
		}
	}
	for i, item := range value.Items {
		if depth == deepest && len(item.Members) > 0 && item.Members[0].Value.Is == strictjson.Text && i < len(s.List) { // there is room for its name
			first := item.Members[0]
			s.List[i] = SubjectName(v, first.Name, Name(item, first.Value.Text))
		}
	}
	for i, one := range s.List { // as forms call them
		if s.List[i] = word(v, p, name, one); strings.HasSuffix(name, "permissions") {
			s.List[i] = site.Label(one)
		}
	}
	ref := ""
	switch s.Href, ref = leads(v, p, name, value); {
	case s.Href == "":
	case name == "user_id":
		s.Class, s.Text = "", WhoIs(v, "user:"+value.Text)
	default:
		s.Text = cmp.Or(NameByKey(v, ref, value.Text), s.Text)
	}
	s.Text = SubjectName(v, name, s.Text)
	list := v.Site.ListNamed(name)
	if list == nil || len(value.Items) == 0 || value.Items[0].Is != strictjson.Object || Key(list.Each, value.Items[0]) == "" || !v.May(list.Each.Shows) {
		return s
	}
	s = Value{}
	for i, item := range value.Items {
		s.Links = append(s.Links, site.Link{Title: Clip(Name(item, "Entry "+itoa(i+1))), Address: list.Each.Address(map[string]string{list.Each.Key(): Key(list.Each, item)})})
	}
	return s
}

// figure writes a number as people do whose unit its name says, or that counts: a list whose records have no page is of
// figures.
func figure(v *visit.Visit, p *site.Page, name, text string) string {
	n, err := strconv.ParseFloat(text, 64)
	l := v.Locale()
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
		return grouped(v, text)
	}
	return text
}

// Whole is the parameter by which running a report answers all its rows, of which its picture is drawn.
const Whole = "whole"
