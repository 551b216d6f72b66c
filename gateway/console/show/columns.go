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

// Column is a column of a list: a declared field of the records, or a defined one, which the organization has added.
type Column struct {
	Name, Title string
	kind        string // the type of a defined field
	Within      string // the field that holds the defined ones; empty for a declared field
	Sorts       bool   // lists can be sorted by this defined field
}

func (c Column) of(record strictjson.Value) strictjson.Value {
	if c.Within != "" {
		record = record.Get(c.Within)
	}
	return record.Get(c.Name)
}

// ColumnNames returns the names of the columns in exported files. A defined field has the field that holds it in front
// if a declared field has the same name.
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

// Numeric reports whether the values of a column are numbers. Times in seconds are not.
func Numeric(v *visit.Visit, p *site.Page, c Column) bool {
	if c.Within != "" {
		return c.kind == schema.Number
	}
	t := v.Site.Declared(p, c.Name).Type
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t != nil && t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64 && !strings.HasSuffix(c.Name, "_at")
}

// CellOf returns the value of a record in a column.
func CellOf(v *visit.Visit, p *site.Page, c Column, record strictjson.Value) Value {
	if c.Within != "" {
		return definedValue(v, c.kind, c.of(record), maxDepth)
	}
	value := c.of(record)
	if c.Name == "subject" && value.Is == strictjson.Text {
		value.Text = Actor(record)
	}
	return Field(v, p, c.Name, value, maxDepth)
}

// DefaultColumns is how many columns a list shows at most unless the reader chooses others.
const DefaultColumns = 6

// Columns returns the columns of a list, and all that the reader can choose from. Without a choice, the list has the
// fields that name a record, then others in their order, without identifiers and objects.
func Columns(
	v *visit.Visit, p *site.Page, path map[string]string,
	records []strictjson.Value, defined []DefinedField, chosen []string,
) (all []Column, choices []layout.Option) {
	var available []Column
	if len(records) > 0 {
		for _, m := range records[0].Members {
			if m.Name == p.Shows.Defined.Values && len(defined) > 0 {
				continue
			}
			available = append(available, Column{Name: m.Name, Title: p.FieldTitle(m.Name)})
		}
	}
	for _, f := range defined {
		if f.Type != "Encrypted" {
			// Sorting by a name that a declared field has too would sort by the declared one.
			declared := slices.ContainsFunc(available, func(c Column) bool { return c.Within == "" && c.Name == f.Key })
			available = append(available, Column{
				Name: f.Key, Title: f.Title, kind: f.Type, Within: p.Shows.Defined.Values,
				Sorts: f.Type != "MultiSelect" && !declared,
			})
		}
	}

	isDefault := func(c Column) bool {
		if slices.Contains([]string{"id", "pid", "org_id", "user_id", "teams", "account", "begins", "may"}, c.Name) ||
			strings.HasPrefix(c.Name, "external_") || strings.HasPrefix(c.Name, "unused_") ||
			strings.HasSuffix(c.Name, "_at") && c.Name != "created_at" && c.Name != "last_used_at" {
			return false
		}
		name := strings.TrimSuffix(c.Name, "_id") + "_name"
		if slices.ContainsFunc(available, func(other Column) bool { return other.Name == name }) {
			return false // the column with the name of the record says more
		}
		for _, key := range path {
			if c.Within == "" && !slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != key }) {
				return false // all records have the value that is in the page's path
			}
		}
		return !slices.ContainsFunc(records, func(r strictjson.Value) bool {
			return c.of(r).Is == strictjson.Object || c.Within == "" && webAddress(c.of(r).Text) != ""
		})
	}

	if len(chosen) == 0 {
		filled := func(c Column) bool {
			return slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != "" })
		}
		for _, name := range nameFields() {
			for _, c := range available {
				if c.Name == name && name != "id" && c.Within == "" && len(all) < 2 && filled(c) {
					all = append(all, c)
				}
			}
		}
		for _, name := range []string{"last_name", "first_name", "phone"} {
			for _, c := range available {
				if c.Name == name && c.Within == "" && len(all) == 0 && filled(c) {
					all = append(all, c)
				}
			}
		}
		name := namingField(defined)
		i := slices.IndexFunc(available, func(c Column) bool { return c.Within != "" && c.Name == name })
		if i >= 0 && len(all) == 0 {
			all = append(all, available[i])
		}
		for _, name := range []string{"visual", "state"} { // the state of a record comes before its other fields
			if i := slices.IndexFunc(available, func(c Column) bool { return c.Name == name }); i > 2 {
				c := available[i]
				available = slices.Insert(slices.Delete(available, i, i+1), 2, c)
			}
		}
		most := DefaultColumns
		dated := slices.ContainsFunc(available, func(c Column) bool { return c.Name == "created_at" })
		if p.RowPage != nil && p.RowPage.Update == nil && dated {
			most-- // leaves room for the time of a record that never changes
		}
		for _, c := range available {
			if len(all) < most && isDefault(c) && !slices.Contains(all, c) && c.Name != "created_at" {
				all = append(all, c)
			}
		}
		for _, c := range available {
			if c.Name == "created_at" && len(all) < DefaultColumns {
				all = append(all, c)
			}
		}
		if len(all) == 0 {
			all = available[:min(len(available), DefaultColumns)]
		}
	} else {
		for _, c := range available {
			if slices.Contains(chosen, c.Name) {
				all = append(all, c)
			}
		}
	}
	for _, c := range available {
		choices = append(choices, layout.Option{Value: c.Name, Title: c.Title, Chosen: slices.Contains(all, c)})
	}
	return all, choices
}
