package show

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/declare"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

// SettingsSchema returns the schema of a record of settings, by the operation that changes it; null if it has none.
func SettingsSchema(v *visit.Visit, row *operation.Row) strictjson.Value {
	for _, p := range v.Site.Pages {
		if p.Shows.Defines == row.Name {
			data, _ := v.ReadNamed(p.Shows.Name, "")
			return data.Get("schema")
		}
	}
	return strictjson.Value{}
}

// Imports is the name of the operation that imports a file.
const Imports = "imports.create"

// Importable returns the resources that the rows of a file can become: those whose records can have defined fields.
func Importable(v *visit.Visit) (kinds []layout.Option) {
	for _, p := range v.Site.Pages {
		if !p.List || p.Shows.Defined.Values == "" || !v.May(p.Create) {
			continue
		}
		as, by := p.Shows.Resource+"s", v.Site.ListOf(p.Shows.Defined.By)
		if !strings.Contains(p.Path, "{") {
			kinds = append(kinds, layout.Option{Value: as, Title: p.Title()})
			continue
		}
		if by == nil || by.Record == nil {
			continue
		}
		data, _ := v.ReadNamed(by.Shows.Name, "per_page="+strconv.Itoa(MaxOptions))
		for _, of := range data.Get("results").Items {
			title := p.Title() + ": " + Clip(Name(of, ""))
			kinds = append(kinds, layout.Option{Value: as + ":" + Key(by.Record, of), Title: title})
		}
	}
	return kinds
}

// Operators returns the operators of filters with their titles.
func Operators() []layout.Option {
	return []layout.Option{
		{Value: "", Title: "is"},
		{Value: "ne", Title: "is not"},
		{Value: "contains", Title: "contains"},
		{Value: "starts_with", Title: "begins with"},
		{Value: "contains_exact", Title: "contains (match case)"},
		{Value: "starts_with_exact", Title: "begins with (match case)"},
		{Value: "gt", Title: "is more than"},
		{Value: "gte", Title: "is at least"},
		{Value: "lt", Title: "is less than"},
		{Value: "lte", Title: "is at most"},
		{Value: "exists", Title: "has a value (yes or no)"},
	}
}

// CustomTypes returns a note about the fields of a definition whose types the program does not know; "" if there are
// none.
func CustomTypes(s *site.Site, p *site.Page, definition strictjson.Value) string {
	defines := func(row operation.Row) bool { return row.Defined.By != "" && row.Defined.By == p.Shows.Resource }
	if !slices.ContainsFunc(s.All, defines) {
		return ""
	}
	var named []string
	// A definition has a schema of several fields, or is one field itself.
	for _, m := range append(definition.Get("schema").Members, strictjson.Member{Value: definition}) {
		if t := m.Value.Get("type"); t.Is == strictjson.Text && !slices.Contains(schema.KnownTypes(), t.Text) {
			named = append(named, m.Value.Get("title").Text+" ("+t.Text+")")
		}
	}
	if len(named) == 0 {
		return ""
	}
	return "These fields have custom types: " + Clip(strings.Join(named, ", ")) +
		". Their values are stored as they are: they are not checked, summed or compared as numbers."
}

// AllowedValues returns the values that a field takes; nil if it takes any of its type.
func AllowedValues(f *operation.Field) []string {
	if f.Ask.Kind == declare.Visual {
		return reports.Visuals()
	}
	return f.Enum
}

// ValueOptions returns values as options with readable titles: "Server full" for server_full.
func ValueOptions(values []string, chosen string) []layout.Option {
	all := make([]layout.Option, len(values))
	for i, value := range values {
		all[i] = layout.Option{Value: value, Title: site.JoinWords(strings.Split(value, "_")), Chosen: value == chosen}
	}
	return all
}

// choices returns the values that a field of the page's records takes, with their titles; nil if it takes any. Names of
// settings have the titles of the settings form.
func choices(v *visit.Visit, p *site.Page, name string) []layout.Option {
	field, declared := p.Field(name), v.Site.Declared(p, name)
	switch {
	case field != nil && field.Ask.Kind == declare.Rows:
		return Importable(v)
	case field != nil && AllowedValues(field) != nil:
		return ValueOptions(AllowedValues(field), "")
	case field != nil && field.Shape == operation.Boolean,
		declared.Type != nil && declared.Type.Kind() == reflect.Bool:
		return layout.YesOrNo("")
	case declared.Tag.Get("enum") == "":
		return nil
	}
	all := ValueOptions(strings.Split(declared.Tag.Get("enum"), ","), "")
	if home := v.Site.Home(p.Shows); home != nil && !home.List && home != p {
		for i, c := range all {
			if home.Field(c.Value) != nil {
				label := SettingsSchema(v, home.Update).Get(c.Value).Get("label").Text
				all[i].Title = cmp.Or(label, home.FieldTitle(c.Value))
			}
		}
	}
	return all
}

// FilterValues returns the values that a filter on a field offers, with their titles: fixed values, yes and no, and in
// the audit operations and subjects. Other fields have none.
func FilterValues(
	v *visit.Visit, p *site.Page, name, op string, defined []DefinedField,
) (all []layout.Option) {
	isBoolean := func(f DefinedField) bool { return f.Key == name && f.Type == schema.Boolean }
	if op == "exists" || slices.ContainsFunc(defined, isBoolean) {
		return layout.YesOrNo("")
	}
	switch fixed := choices(v, p, name); {
	case fixed != nil:
		return fixed
	case name == "operation" && p.Shows.Tag == auditTag:
		for i := range v.Site.All {
			if row := &v.Site.All[i]; row.Audit != operation.NoAudit {
				all = append(all, layout.Option{Value: row.Name, Title: row.Summary})
			}
		}
	case name == "subject" && p.Shows.Tag == auditTag:
		all = append(all,
			layout.Option{Value: (&tenants.Principal{}).Subject(), Title: anonymousTitle},
			layout.Option{Value: "command", Title: "a command"})
		for kind, s := range Subjects() {
			for id, title := range NamesByKey(v, s.Resource).Names {
				all = append(all, layout.Option{Value: kind + ":" + id, Title: s.Before + title})
			}
		}
	}
	slices.SortFunc(all, func(a, b layout.Option) int {
		return cmp.Or(cmp.Compare(a.Title, b.Title), cmp.Compare(a.Value, b.Value))
	})
	return all
}

const (
	auditTag       = "Audit" // the tag of the rows of the audit log
	anonymousTitle = "somebody who is not signed in"
)

// valueTitle returns the title of a value of a field; the value itself if it has none.
func valueTitle(v *visit.Visit, p *site.Page, name, value string) string {
	for _, c := range choices(v, p, name) {
		if c.Value == value {
			return c.Title
		}
	}
	return value
}
