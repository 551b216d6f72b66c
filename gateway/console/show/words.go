package show

import (
	"cmp"
	"net/http"
	"path"
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

// Described returns what describes settings that are one record: the answer of a schema beside them. Null: nothing
// does.
func Described(v *visit.Visit, row *operation.Row) strictjson.Value {
	for _, p := range v.Site.Pages {
		if p.Shows.Tag == row.Tag && row.Method == http.MethodPut && strings.HasSuffix(p.Path, "/schema") && path.Dir(row.Path) == path.Dir(p.Shows.Path) && !strings.Contains(row.Path, "{") {
			data, _ := v.Named(p.Shows.Name, "")
			return data.Get("schema")
		}
	}
	return strictjson.Value{}
}

// Imports is the operation that takes a file.
const Imports = "imports.create"

// Importable returns what the rows of a file can become: records that have fields which the organization defines.
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
		if by == nil || by.Each == nil {
			continue
		}
		data, _ := v.Named(by.Shows.Name, "per_page="+strconv.Itoa(MostOptions))
		for _, of := range data.Get("results").Items {
			kinds = append(kinds, layout.Option{Value: as + ":" + Key(by.Each, of), Title: p.Title() + ": " + Clip(Name(of, ""))})
		}
	}
	return kinds
}

// Operators are the comparisons of filters in the words of people.
func Operators() []layout.Option {
	return []layout.Option{
		{Value: "", Title: "is"}, {Value: "ne", Title: "is not"}, {Value: "contains", Title: "contains"}, {Value: "starts_with", Title: "begins with"},
		{Value: "contains_exact", Title: "contains, case as written"}, {Value: "starts_with_exact", Title: "begins with, case as written"},
		{Value: "gt", Title: "is more than"}, {Value: "gte", Title: "is at least"}, {Value: "lt", Title: "is less than"}, {Value: "lte", Title: "is at most"},
		{Value: "exists", Title: "is there (yes or no)"},
	}
}

// OwnTypes says which fields of a definition have types of the organization's own, and what that means; "": none has.
func OwnTypes(s *site.Site, p *site.Page, definition strictjson.Value) string {
	if !slices.ContainsFunc(s.All, func(row operation.Row) bool { return row.Defined.By != "" && row.Defined.By == p.Shows.Resource }) {
		return ""
	}
	var named []string
	for _, m := range append(definition.Get("schema").Members, strictjson.Member{Value: definition}) { // some are of one field
		if t := m.Value.Get("type"); t.Is == strictjson.Text && !slices.Contains(schema.KnownTypes(), t.Text) {
			named = append(named, m.Value.Get("title").Text+" ("+t.Text+")")
		}
	}
	if len(named) == 0 {
		return ""
	}
	return "Values of types of your own are taken as they are: they are not checked, summed or compared as numbers. Here that is " + Clip(strings.Join(named, ", ")) + "."
}

// Taken returns the values that a field takes; nil: any of its type.
func Taken(f *operation.Field) []string {
	if f.Ask.Kind == declare.Visual {
		return reports.Visuals()
	}
	return f.Enum
}

// Worded returns values as people read and choose them: server_full is Server full.
func Worded(values []string, chosen string) []layout.Option {
	all := make([]layout.Option, len(values))
	for i, value := range values {
		all[i] = layout.Option{Value: value, Title: site.Spaced(strings.Split(value, "_")), Chosen: value == chosen}
	}
	return all
}

// choices returns the values that a field of the page's records takes, with their words; nil: any. Names of settings
// are what the form of the settings calls them.
func choices(v *visit.Visit, p *site.Page, name string) []layout.Option {
	field, told := p.Field(name), v.Site.Declared(p, name)
	switch {
	case field != nil && field.Ask.Kind == declare.Rows:
		return Importable(v)
	case field != nil && Taken(field) != nil:
		return Worded(Taken(field), "")
	case field != nil && field.Shape == operation.Boolean || told.Type != nil && told.Type.Kind() == reflect.Bool:
		return layout.YesOrNo("")
	case told.Tag.Get("enum") == "":
		return nil
	}
	all := Worded(strings.Split(told.Tag.Get("enum"), ","), "")
	if home := v.Site.Home(p.Shows); home != nil && !home.List && home != p {
		for i, c := range all {
			if home.Field(c.Value) != nil {
				all[i].Title = cmp.Or(Described(v, home.Update).Get(c.Value).Get("label").Text, home.FieldTitle(c.Value))
			}
		}
	}
	return all
}

// Words returns the values of a field that a list shows in words of people: those that it takes one of, yes and no,
// what was done, and by whom.
func Words(v *visit.Visit, p *site.Page, name, op string, defined []DefinedField) (all []layout.Option) {
	if op == "exists" || slices.ContainsFunc(defined, func(f DefinedField) bool { return f.Key == name && f.Kind == schema.Boolean }) {
		return layout.YesOrNo("")
	}
	switch told := choices(v, p, name); {
	case told != nil:
		return told
	case name == "operation" && p.Shows.Tag == audits:
		for i := range v.Site.All {
			if row := &v.Site.All[i]; row.Audit != operation.NoAudit {
				all = append(all, layout.Option{Value: row.Name, Title: row.Summary})
			}
		}
	case name == "subject" && p.Shows.Tag == audits:
		all = append(all, layout.Option{Value: (&tenants.Principal{}).Subject(), Title: nobodyKnown}, layout.Option{Value: "command", Title: "a command"})
		for kind, s := range Subjects() {
			for id, called := range Referred(v, s.Resource).Names {
				all = append(all, layout.Option{Value: kind + ":" + id, Title: s.Before + called})
			}
		}
	}
	slices.SortFunc(all, func(a, b layout.Option) int {
		return cmp.Or(cmp.Compare(a.Title, b.Title), cmp.Compare(a.Value, b.Value))
	})
	return all
}

// audits is the tag of the pages of what was done, and nobodyKnown who did something without being signed in.
const (
	audits      = "Audit"
	nobodyKnown = "somebody who is not signed in"
)

// word returns what people read for a value of that field.
func word(v *visit.Visit, p *site.Page, name, value string) string {
	for _, c := range choices(v, p, name) {
		if c.Value == value {
			return c.Title
		}
	}
	return value
}
