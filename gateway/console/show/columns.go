package show

import (
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
)

// Column is a field of the records, or one that the organization defined.
type Column struct {
	Name, Title string
	kind        string // of a field that the organization defined
	Within      string // the field that has it
	Sorts       bool   // a list can have the order of it, though it is defined
}

func (c Column) of(record strictjson.Value) strictjson.Value {
	if c.Within != "" {
		record = record.Get(c.Within)
	}
	return record.Get(c.Name)
}

// ColumnNames returns what files of the records call the columns: one that an organization defined comes with what
// holds it, where a field of all records is called so.
func ColumnNames(columns []Column, records []strictjson.Value) (names []string) {
	for _, c := range columns {
		own := c.Within != "" && slices.ContainsFunc(records, func(r strictjson.Value) bool {
			return slices.ContainsFunc(r.Members, func(m strictjson.Member) bool { return m.Name == c.Name })
		})
		if own {
			c.Name = c.Within + "." + c.Name
		}
		names = append(names, c.Name)
	}
	return names
}

// Numeric reports whether the type of a column is one of numbers, but those that name something.
func Numeric(v *visit.Visit, p *site.Page, c Column) bool {
	if c.Within != "" {
		return c.kind == schema.Number
	}
	told := v.Site.Declared(p, c.Name).Type
	for told != nil && told.Kind() == reflect.Pointer {
		told = told.Elem()
	}
	return told != nil && told.Kind() >= reflect.Int && told.Kind() <= reflect.Float64 && !strings.HasSuffix(c.Name, "_at")
}

// CellOf shows what a record has in a column.
func CellOf(v *visit.Visit, p *site.Page, c Column, record strictjson.Value) Value {
	if c.Within != "" {
		return ownValue(v, c.kind, c.of(record), deepest)
	}
	value := c.of(record)
	if c.Name == "subject" && value.Is == strictjson.Text {
		value.Text = Doer(record)
	}
	return Field(v, p, c.Name, value, deepest)
}

// Few is how many columns a list begins with.
const Few = 6

// Columns returns the columns that are shown, and which there are to choose from. Those of the start are the ones
// people know a record by, and then those that come first, but for identifiers and for what has parts.
func Columns(v *visit.Visit, p *site.Page, path map[string]string, records []strictjson.Value, defined []DefinedField, chosen []string) (all []Column, choices []layout.Option) {
	var there []Column
	if len(records) > 0 {
		for _, m := range records[0].Members {
			if m.Name == p.Shows.Defined.Values && len(defined) > 0 {
				continue
			}
			there = append(there, Column{Name: m.Name, Title: p.FieldTitle(m.Name)})
		}
	}
	for _, f := range defined {
		if f.Kind != "Encrypted" {
			own := slices.ContainsFunc(there, func(c Column) bool { return c.Within == "" && c.Name == f.Key }) // which its name means
			there = append(there, Column{Name: f.Key, Title: f.Title, kind: f.Kind, Within: p.Shows.Defined.Values, Sorts: f.Kind != "MultiSelect" && !own})
		}
	}
	plain := func(c Column) bool {
		if slices.Contains([]string{"id", "pid", "org_id", "user_id", "teams", "account", "begins", "may"}, c.Name) || strings.HasPrefix(c.Name, "external_") || strings.HasPrefix(c.Name, "unused_") || strings.HasSuffix(c.Name, "_at") && c.Name != "created_at" && c.Name != "last_used_at" {
			return false
		}
		if thing := strings.TrimSuffix(c.Name, "_id"); slices.ContainsFunc(there, func(other Column) bool { return other.Name == thing+"_name" }) {
			return false // it is there by its name
		}
		for _, key := range path {
			if c.Within == "" && !slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != key }) {
				return false // the address says it already
			}
		}
		return !slices.ContainsFunc(records, func(r strictjson.Value) bool {
			return c.of(r).Is == strictjson.Object || c.Within == "" && webAddress(c.of(r).Text) != "" // which says nothing to people
		})
	}
	if len(chosen) == 0 {
		for _, name := range naming() {
			for _, c := range there {
				if c.Name == name && name != "id" && c.Within == "" && len(all) < 2 && slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != "" }) {
					all = append(all, c)
				}
			}
		}
		for _, name := range []string{"last_name", "first_name", "phone"} {
			for _, c := range there {
				if c.Name == name && c.Within == "" && len(all) == 0 && slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != "" }) {
					all = append(all, c)
				}
			}
		}
		name := namingField(defined)
		if i := slices.IndexFunc(there, func(c Column) bool { return c.Within != "" && c.Name == name }); i >= 0 && len(all) == 0 {
			all = append(all, there[i])
		}
		for _, name := range []string{"visual", "state"} { // how it is goes before how it was made
			if i := slices.IndexFunc(there, func(c Column) bool { return c.Name == name }); i > 2 {
				said := there[i]
				there = slices.Insert(slices.Delete(there, i, i+1), 2, said)
			}
		}
		most := Few
		if p.Leads != nil && p.Leads.Update == nil && slices.ContainsFunc(there, func(c Column) bool { return c.Name == "created_at" }) {
			most-- // what nobody changes is known by when it was
		}
		for _, c := range there {
			if len(all) < most && plain(c) && !slices.Contains(all, c) && c.Name != "created_at" {
				all = append(all, c)
			}
		}
		for _, c := range there {
			if c.Name == "created_at" && len(all) < Few {
				all = append(all, c)
			}
		}
		if len(all) == 0 {
			all = there[:min(len(there), Few)]
		}
	} else {
		for _, c := range there {
			if slices.Contains(chosen, c.Name) {
				all = append(all, c)
			}
		}
	}
	for _, c := range there {
		choices = append(choices, layout.Option{Value: c.Name, Title: c.Title, Chosen: slices.Contains(all, c)})
	}
	return all, choices
}
