package console

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/internal/declare"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

// declared returns what an answer declares of its fields, of a list those of its records.
func declared(answer reflect.Type) []declare.Field {
	for answer != nil && (answer.Kind() == reflect.Pointer || answer.Kind() == reflect.Slice) {
		answer = answer.Elem()
	}
	if answer == nil || answer.Kind() != reflect.Struct {
		return nil
	}
	fields, err := declare.Of(answer)
	if err != nil {
		return nil // then nothing is known of them
	}
	for _, f := range fields {
		if f.Name == "results" {
			return declared(f.Type)
		}
	}
	return fields
}

// declared returns what the answer of the page's operation declares of the field; the zero Field: nothing.
func (s *site) declared(p *page, name string) (f declare.Field) {
	fields := s.told[p.shows.Name]
	if at := slices.IndexFunc(fields, func(f declare.Field) bool { return f.Name == name }); at >= 0 {
		f = fields[at]
	}
	return f
}

// taken returns the values that a field takes; nil: any of its type.
func taken(f *operation.Field) []string {
	if f.Ask.Kind == declare.Visual {
		return reports.Visuals()
	}
	return f.Enum
}

// worded returns values as people read and choose them: server_full is Server full.
func worded(values []string, chosen string) []choiceView {
	all := make([]choiceView, len(values))
	for i, value := range values {
		all[i] = choiceView{Value: value, Title: spaced(strings.Split(value, "_")), Chosen: value == chosen}
	}
	return all
}

// choices returns the values that a field of the page's records takes, with their words; nil: any. Names of settings are what the form of
// the settings calls them.
func (v *visit) choices(p *page, name string) []choiceView {
	field, told := p.field(name), v.site.declared(p, name)
	switch {
	case field != nil && field.Ask.Kind == declare.Rows:
		return v.importable()
	case field != nil && taken(field) != nil:
		return worded(taken(field), "")
	case field != nil && field.Shape == operation.Boolean || told.Type != nil && told.Type.Kind() == reflect.Bool:
		return yesOrNo("")
	case told.Tag.Get("enum") == "":
		return nil
	}
	all := worded(strings.Split(told.Tag.Get("enum"), ","), "")
	if home := v.site.home(p.shows); home != nil && !home.list && home != p {
		for i, c := range all {
			if home.field(c.Value) != nil {
				all[i].Title = cmp.Or(v.described(home.update).Get(c.Value).Get("label").Text, home.called(c.Value))
			}
		}
	}
	return all
}

// words returns the values of a field that a list shows in words of people: those that it takes one of, yes and no, what was done, and
// by whom.
func (v *visit) words(p *page, name, op string, defined []definedField) (all []choiceView) {
	if op == "exists" || slices.ContainsFunc(defined, func(f definedField) bool { return f.key == name && f.kind == schema.Boolean }) {
		return yesOrNo("")
	}
	switch told := v.choices(p, name); {
	case told != nil:
		return told
	case name == "operation" && p.shows.Tag == audits:
		for i := range v.site.all {
			if row := &v.site.all[i]; row.Audit != operation.NoAudit {
				all = append(all, choiceView{Value: row.Name, Title: row.Summary})
			}
		}
	case name == "subject" && p.shows.Tag == audits:
		all = append(all, choiceView{Value: (&tenants.Principal{}).Subject(), Title: nobodyKnown}, choiceView{Value: "command", Title: "a command"})
		for kind, s := range subjects() {
			for id, called := range v.referred(s.resource).names {
				all = append(all, choiceView{Value: kind + ":" + id, Title: s.before + called})
			}
		}
	}
	slices.SortFunc(all, func(a, b choiceView) int { return cmp.Or(cmp.Compare(a.Title, b.Title), cmp.Compare(a.Value, b.Value)) })
	return all
}

// audits is the tag of the pages of what was done, and nobodyKnown who did something without being signed in.
const (
	audits      = "Audit"
	nobodyKnown = "somebody who is not signed in"
)

// word returns what people read for a value of that field.
func (v *visit) word(p *page, name, value string) string {
	for _, c := range v.choices(p, name) {
		if c.Value == value {
			return c.Title
		}
	}
	return value
}
