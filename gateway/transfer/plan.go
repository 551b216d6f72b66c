package transfer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tenantry/backends/contacts"
	"tenantry/backends/objects"
	"tenantry/backends/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// own returns the fields that every record has, by squashed name.
func (f *rowFeed) own() map[string]string {
	names := []string{"external_id"}
	if f.object == "" {
		names = []string{"email", "first_name", "last_name", "phone", "country", "city", "status", "tags", "external_id"}
	}
	own := map[string]string{}
	for _, name := range names {
		own[squash(name)] = name
	}
	return own
}

// defined returns the types of the fields that the organization defined.
func (f *rowFeed) defined() map[string]string {
	types := map[string]string{}
	if f.object == "" {
		for key, def := range f.session.view.fields {
			types[key] = def.Type
		}
		return types
	}
	for key, field := range f.session.view.objects[f.object] {
		types[key] = field.Type
	}
	return types
}

// plan decides what each column becomes.
func (f *rowFeed) plan(columns []string) error {
	for name := range f.mapping {
		if name != "*" && !slices.Contains(columns, name) {
			return fmt.Errorf("%w: the file has no column %q", ErrRowOptions, texts.Clip(name))
		}
	}
	f.targets = nil
	own, defined, taken := f.own(), f.defined(), map[string]bool{}
	for at, name := range columns {
		fields := f.mapping[name]
		if len(fields) == 0 {
			fields = []string{""}
		}
		for _, field := range fields {
			f.targets = append(f.targets, target{at: at, column: name})
			if field == "" {
				continue
			}
			f.assign(len(f.targets)-1, field, own, defined)
			switch {
			case taken[field]:
				return fmt.Errorf("%w: two columns lead to the field %q", ErrRowOptions, texts.Clip(field))
			case !store.ValidKey(field):
				return fmt.Errorf("%w: %q is no name of a field: 1 to 64 letters, digits, _ or -", ErrRowOptions, texts.Clip(field))
			}
			taken[field] = true
		}
	}
	if f.mapping != nil && !slices.Equal(f.mapping["*"], []string{"*"}) {
		return nil
	}
	free := func(i int) bool {
		_, mapped := f.mapping[f.targets[i].column]
		return !mapped && f.targets[i].field == ""
	}
	known := maps.Clone(own)
	for key := range defined {
		if _, ok := known[squash(key)]; !ok {
			known[squash(key)] = key
		}
	}
	stand := map[string]string{"id": "external_id"}
	if f.object == "" {
		stand["name"] = "last_name"
	}
	for _, names := range []map[string]string{known, stand} { // exact names before stand-ins
		for i := range f.targets {
			if field, ok := names[squash(f.targets[i].column)]; ok && free(i) && !taken[field] {
				taken[field] = true
				f.assign(i, field, own, defined)
			}
		}
	}
	for i := range f.targets {
		if !free(i) {
			continue
		}
		field := f.freeKey(f.targets[i].column, f.targets[i].at+1, func(key string) bool {
			_, exists := defined[key]
			_, standard := own[squash(key)]
			return taken[key] || exists || standard
		})
		taken[field] = true
		f.targets[i].field, f.targets[i].custom, f.targets[i].fresh = field, true, true
	}
	return nil
}

func (f *rowFeed) assign(i int, field string, own, defined map[string]string) {
	t := &f.targets[i]
	t.field = field
	if own[squash(field)] == field {
		t.list = field == "tags"
		return
	}
	t.custom = true
	var exists bool
	if t.typ, exists = defined[field]; !exists {
		t.fresh = true
	}
}

// freeKey returns an identifier for a new field that is not in use.
func (f *rowFeed) freeKey(name string, position int, used func(string) bool) string {
	base := keyFor(name, position)
	if f.object == "" {
		var errs fault.List
		contacts.ValidateField(&contacts.FieldDef{Key: base, Title: base, Type: schema.Text}, &errs)
		if len(errs) > 0 { // the name of something that every contact has
			base = "column_" + base
		}
	}
	key := base
	for n := 2; used(key); n++ {
		key = fmt.Sprintf("%s_%d", base, n)
	}
	return key
}

// definitions returns lines that make the fields which are missing.
func (f *rowFeed) definitions(ctx context.Context) []*entry {
	var fresh []*target
	for i := range f.targets {
		t := &f.targets[i]
		if t.fresh && t.field != "" {
			t.typ = t.guess.result()
			fresh = append(fresh, t)
		}
	}
	line := f.last
	decode := func(kind string, members ...strictjson.Member) *entry {
		line++
		return f.session.named[kind].decode(ctx, f.session.view, strictjson.Value{Is: strictjson.Object, Members: members}, line)
	}
	var out []*entry
	if f.object == "" {
		for _, t := range fresh {
			out = append(out, decode(kindField, textMember("key", t.field), textMember("title", titleFor(t.column, t.field)), textMember("type", t.typ)))
		}
		return out
	}
	fields, exists := f.session.view.objects[f.object]
	if exists && len(fresh) == 0 {
		return nil
	}
	all := fields.Clone()
	for _, t := range fresh {
		all[t.field] = schema.Field{Title: titleFor(t.column, t.field), Type: t.typ}
	}
	label, plural := labels(f.object)
	if f.existing != nil {
		label, plural = f.existing.Label, f.existing.LabelPlural
	}
	e := decode(kindObject, textMember("name", f.object), textMember("label", label), textMember("label_plural", plural))
	def := e.rec.(*objects.Definition)
	def.Schema = all
	e.given |= 1 << f.session.named[kindObject].(*kind[objects.Definition]).index["schema"]
	if len(all) > schema.MaxFields {
		e.errs.Add("schema", "length", "a custom object has at most %d fields", schema.MaxFields)
	}
	return append(out, e)
}

func textMember(name, s string) strictjson.Member {
	return strictjson.Member{Name: name, Value: strictjson.Value{Is: strictjson.Text, Text: s}}
}

// titleFor returns what people read above a new field.
func titleFor(column, field string) string {
	title := strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, column))
	if title == "" {
		return field
	}
	if utf8.RuneCountInString(title) > schema.MaxLabel {
		title = string([]rune(title)[:schema.MaxLabel])
	}
	return title
}

// labels returns what a custom object is called that is made from its name alone.
func labels(name string) (label, plural string) {
	label = strings.ReplaceAll(name, "_", " ")
	label = strings.ToUpper(label[:1]) + label[1:]
	switch {
	case strings.HasSuffix(label, "s"), strings.HasSuffix(label, "x"), strings.HasSuffix(label, "ch"), strings.HasSuffix(label, "sh"):
		return label, label + "es"
	case len(label) > 1 && strings.HasSuffix(label, "y") && !strings.ContainsRune("aeiou", rune(label[len(label)-2])):
		return label, label[:len(label)-1] + "ies"
	}
	return label, label + "s"
}
