package console

import (
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/internal/strictjson"
)

// column is a field of the records, or one that the organization defined.
type column struct {
	name, title string
	kind        string // of a field that the organization defined
	within      string // the field that has it
	sorts       bool   // a list can have the order of it, though it is defined
}

func (c column) of(record strictjson.Value) strictjson.Value {
	if c.within != "" {
		record = record.Get(c.within)
	}
	return record.Get(c.name)
}

// named returns what files of the records call the columns: one that an organization defined comes with what holds it, where a field of
// all records is called so.
func named(columns []column, records []strictjson.Value) (names []string) {
	for _, c := range columns {
		own := c.within != "" && slices.ContainsFunc(records, func(r strictjson.Value) bool {
			return slices.ContainsFunc(r.Members, func(m strictjson.Member) bool { return m.Name == c.name })
		})
		if own {
			c.name = c.within + "." + c.name
		}
		names = append(names, c.name)
	}
	return names
}

// numeric reports whether the type of a column is one of numbers, but those that name something.
func (v *visit) numeric(p *site.Page, c column) bool {
	if c.within != "" {
		return c.kind == schema.Number
	}
	told := v.site.Declared(p, c.name).Type
	for told != nil && told.Kind() == reflect.Pointer {
		told = told.Elem()
	}
	return told != nil && told.Kind() >= reflect.Int && told.Kind() <= reflect.Float64 && !strings.HasSuffix(c.name, "_at")
}

// cell shows what a record has in a column.
func (v *visit) cell(p *site.Page, c column, record strictjson.Value) shown {
	if c.within != "" {
		return v.ownValue(c.kind, c.of(record), deepest)
	}
	value := c.of(record)
	if c.name == "subject" && value.Is == strictjson.Text {
		value.Text = doer(record)
	}
	return v.field(p, c.name, value, deepest)
}

// few is how many columns a list begins with.
const few = 6

// columns returns the columns that are shown, and which there are to choose from. Those of the start are the ones people
// know a record by, and then those that come first, but for identifiers and for what has parts.
func (v *visit) columns(p *site.Page, path map[string]string, records []strictjson.Value, defined []definedField, chosen []string) (all []column, choices []layout.Option) {
	var there []column
	if len(records) > 0 {
		for _, m := range records[0].Members {
			if m.Name == p.Shows.Defined.Values && len(defined) > 0 {
				continue
			}
			there = append(there, column{name: m.Name, title: p.FieldTitle(m.Name)})
		}
	}
	for _, f := range defined {
		if f.kind != "Encrypted" {
			own := slices.ContainsFunc(there, func(c column) bool { return c.within == "" && c.name == f.key }) // which its name means
			there = append(there, column{name: f.key, title: f.title, kind: f.kind, within: p.Shows.Defined.Values, sorts: f.kind != "MultiSelect" && !own})
		}
	}
	plain := func(c column) bool {
		if slices.Contains([]string{"id", "pid", "org_id", "user_id", "teams", "account", "begins", "may"}, c.name) || strings.HasPrefix(c.name, "external_") || strings.HasPrefix(c.name, "unused_") || strings.HasSuffix(c.name, "_at") && c.name != "created_at" && c.name != "last_used_at" {
			return false
		}
		if thing := strings.TrimSuffix(c.name, "_id"); slices.ContainsFunc(there, func(other column) bool { return other.name == thing+"_name" }) {
			return false // it is there by its name
		}
		for _, key := range path {
			if c.within == "" && !slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != key }) {
				return false // the address says it already
			}
		}
		return !slices.ContainsFunc(records, func(r strictjson.Value) bool {
			return c.of(r).Is == strictjson.Object || c.within == "" && webAddress(c.of(r).Text) != "" // which says nothing to people
		})
	}
	if len(chosen) == 0 {
		for _, name := range naming() {
			for _, c := range there {
				if c.name == name && name != "id" && c.within == "" && len(all) < 2 && slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != "" }) {
					all = append(all, c)
				}
			}
		}
		for _, name := range []string{"last_name", "first_name", "phone"} {
			for _, c := range there {
				if c.name == name && c.within == "" && len(all) == 0 && slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != "" }) {
					all = append(all, c)
				}
			}
		}
		name := namingField(defined)
		if i := slices.IndexFunc(there, func(c column) bool { return c.within != "" && c.name == name }); i >= 0 && len(all) == 0 {
			all = append(all, there[i])
		}
		for _, name := range []string{"visual", "state"} { // how it is goes before how it was made
			if i := slices.IndexFunc(there, func(c column) bool { return c.name == name }); i > 2 {
				said := there[i]
				there = slices.Insert(slices.Delete(there, i, i+1), 2, said)
			}
		}
		most := few
		if p.Leads != nil && p.Leads.Update == nil && slices.ContainsFunc(there, func(c column) bool { return c.name == "created_at" }) {
			most-- // what nobody changes is known by when it was
		}
		for _, c := range there {
			if len(all) < most && plain(c) && !slices.Contains(all, c) && c.name != "created_at" {
				all = append(all, c)
			}
		}
		for _, c := range there {
			if c.name == "created_at" && len(all) < few {
				all = append(all, c)
			}
		}
		if len(all) == 0 {
			all = there[:min(len(there), few)]
		}
	} else {
		for _, c := range there {
			if slices.Contains(chosen, c.name) {
				all = append(all, c)
			}
		}
	}
	for _, c := range there {
		choices = append(choices, layout.Option{Value: c.name, Title: c.title, Chosen: slices.Contains(all, c)})
	}
	return all, choices
}
