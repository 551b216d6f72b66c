package show

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/gateway/console/locale"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
)

// Paging reports whether a parameter selects a page of the rows.
func Paging(name string) bool {
	return slices.Contains([]string{"page", "per_page", "after", AllRows}, name)
}

// Facts lays out an answer: its results as a table, and its other members as pairs of name and value.
func Facts(v *visit.Visit, p *site.Page, path map[string]string, data strictjson.Value) (facts []Pair, table *Table) {
	if results := data.Get("results"); results.Is == strictjson.Array {
		if table = reportTable(v, data.Get("columns"), results); table == nil {
			table = recordTable(v, p, results)
		}
		if data.Get("columns").Is == strictjson.Array { // the page says beside the rows whether they are all
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
		if m.Name == "org_id" { // every page shows the organization
			continue
		}
		if m.Name == p.Shows.Defined.Values && m.Name != "" && m.Value.Is == strictjson.Object {
			facts = append(facts, definedFacts(v, p, path, m.Value)...)
			continue
		}
		value := Field(v, p, m.Name, m.Value, 0)
		results, count := m.Value.Get("results"), m.Value.Get("count")
		if results.Is == strictjson.Array && count.Is == strictjson.Number { // the first page of a nested list
			value = Field(v, p, m.Name, results, 0)
			if n, _ := strconv.Atoi(count.Text); n > len(results.Items) {
				total := Value{Text: v.FormatInt(n), Class: "number"}
				facts = append(facts, Pair{p.FieldTitle(m.Name) + " in all", total})
			}
		}
		if m.Name == "share_url" || m.Name == "url" {
			value.Href = webAddress(m.Value.Text)
		}
		facts = append(facts, Pair{p.FieldTitle(m.Name), value})
	}
	return facts, table
}

// definedFacts lays out the values of defined fields in the order of their definitions, then values without a
// definition. Encrypted values are not shown.
func definedFacts(v *visit.Visit, p *site.Page, path map[string]string, values strictjson.Value) (facts []Pair) {
	var known []string
	for _, d := range Defined(v, p.Shows, path) {
		if known = append(known, d.Key); d.Type == schema.Encrypted {
			continue
		}
		value := definedValue(v, d.Type, values.Get(d.Key), 0)
		if d.Type == schema.URL {
			value.Href = webAddress(values.Get(d.Key).Text)
		}
		facts = append(facts, Pair{cmp.Or(d.Title, site.Label(d.Key)), value})
	}
	for _, m := range Without(values, known...).Members {
		facts = append(facts, Pair{site.Label(m.Name), Present(m.Value, 1)})
	}
	return facts
}

// fileLinks returns links to the files that a value names; nil if the person may not see the pages of files.
func fileLinks(v *visit.Visit, value strictjson.Value) (links []site.Link) {
	list := v.Site.ListOf("file")
	if list == nil || list.Record == nil || !v.May(list.Record.Shows) {
		return nil
	}
	for _, id := range schema.Files(value.Any()) {
		if store.ValidID(id) {
			address := list.Record.Address(map[string]string{list.Record.Key(): id})
			links = append(links, site.Link{Title: cmp.Or(NameByKey(v, "file", id), id), Address: address})
		}
	}
	return links
}

// definedValue returns the value of a defined field as it is shown.
func definedValue(v *visit.Visit, kind string, value strictjson.Value, depth int) Value {
	s := Present(value, depth)
	switch {
	case value.Is == strictjson.Number:
		s.Text = formatDigits(v, value.Text)
	case kind == schema.File:
		if links := fileLinks(v, value); links != nil {
			s = Value{Links: links}
		}
	}
	return s
}

// formatDigits formats a number in the locale of the reader with all its digits. A number with more digits than a float
// holds is returned as it is.
func formatDigits(v *visit.Visit, text string) string {
	n, err := strconv.ParseFloat(text, 64)
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	if err != nil || strings.ContainsAny(text, "eE") || len(whole)+len(fraction) > 15 {
		return text
	}
	return v.Locale().FmtNumber(n, uint64(len(fraction)))
}

// Field returns the value of a field as it is shown: numbers with their units, and references as links with the names
// of the records.
func Field(v *visit.Visit, p *site.Page, name string, value strictjson.Value, depth int) Value {
	s := presentMember(name, value, depth)
	switch value.Is {
	case strictjson.Number:
		if s.Time != "" {
			break
		}
		s.Text = figure(v, p, name, value.Text)
	case strictjson.Text:
		if value.Text != "" && s.Time == "" {
			s.Text = valueTitle(v, p, name, value.Text)
		}
	}
	for i, item := range value.Items {
		// At this depth there is room for the name of an object only.
		if depth == maxDepth && len(item.Members) > 0 && item.Members[0].Value.Is == strictjson.Text && i < len(s.List) {
			first := item.Members[0]
			s.List[i] = SubjectName(v, first.Name, Name(item, first.Value.Text))
		}
	}
	for i, one := range s.List {
		if s.List[i] = valueTitle(v, p, name, one); strings.HasSuffix(name, "permissions") {
			s.List[i] = site.Label(one)
		}
	}
	ref := ""
	switch s.Href, ref = referenceLink(v, p, name, value); {
	case s.Href == "":
	case name == "user_id":
		s.Class, s.Text = "", ActorName(v, "user:"+value.Text)
	default:
		s.Text = cmp.Or(NameByKey(v, ref, value.Text), s.Text)
	}
	if name == "user_id" && value.Text == "0" { // a key did it
		s = Value{Text: "–", Class: "none"}
	}
	s.Text = SubjectName(v, name, s.Text)
	list := v.Site.ListNamed(name)
	if list == nil || len(value.Items) == 0 || value.Items[0].Is != strictjson.Object ||
		Key(list.Record, value.Items[0]) == "" || !v.May(list.Record.Shows) {
		return s
	}

	s = Value{}
	for i, item := range value.Items {
		address := list.Record.Address(map[string]string{list.Record.Key(): Key(list.Record, item)})
		s.Links = append(s.Links, site.Link{Title: Clip(Name(item, "Entry "+itoa(i+1))), Address: address})
	}
	return s
}

// figure formats a number with the unit that the name of its field ends in. A number that identifies something is
// returned as it is, except in a list whose records have no page: all its numbers are figures.
func figure(v *visit.Visit, p *site.Page, name, text string) string {
	n, err := strconv.ParseFloat(text, 64)
	l := v.Locale()
	in := func(units ...string) string { return inUnits(l, n, units) }
	switch {
	case err != nil:
		return text
	case name == "bytes" || name == "size" || strings.HasSuffix(name, "_bytes"):
		return Size(v, n)
	case strings.HasSuffix(name, "_us"):
		return in("µs", "ms", "s")
	case strings.HasSuffix(name, "_ms"):
		return in("ms", "s")
	case p.List && p.RowPage == nil:
		return l.Number(n)
	case name != "id" && name != "code" && !strings.HasSuffix(name, "_id"):
		return formatDigits(v, text)
	}
	return text
}

// Size formats a number of bytes in the locale of the reader.
func Size(v *visit.Visit, bytes float64) string {
	if bytes == 1 {
		return "1 byte"
	}
	return inUnits(v.Locale(), bytes, []string{"bytes", "kB", "MB", "GB", "TB"})
}

// inUnits formats a number in the largest unit of which it is at least one. Each unit is 1000 of the one before.
func inUnits(l *locale.Locale, n float64, units []string) string {
	at := 0
	for ; n >= 1000 && at < len(units)-1; at++ {
		n /= 1000
	}
	if at == 0 {
		return l.Number(n) + " " + units[0]
	}
	return l.FmtNumber(n, 1) + " " + units[at]
}

// AllRows is the parameter that makes the run of a report answer all its rows, which a chart needs.
const AllRows = "whole"
