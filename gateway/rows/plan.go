package rows

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tenantry/backends/contacts"
	"tenantry/backends/schema"
	"tenantry/backends/store"
	"tenantry/gateway/transfer"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// own returns the fields that every record has, by squashed name.
func (f *feed) own() map[string]string {
	own := map[string]string{}
	for _, field := range f.into.Named(f.kind).Fields {
		isText := field.Type.Kind() == reflect.String || field.Type.Kind() == reflect.Slice
		if isText && field.Rule.Ref == "" && field.Name != "id" {
			own[squash(field.Name)] = field.Name
		}
	}
	return own
}

// plan decides what each column becomes.
func (f *feed) plan() error {
	f.planned = true
	switch {
	case len(f.columns) == 0:
		return fmt.Errorf("%w: the file has no columns", ErrOptions)
	case len(f.columns) > maxColumns:
		return fmt.Errorf("%w: the file has more than %d columns", ErrOptions, maxColumns)
	}
	for name := range f.o.Map {
		if _, known := f.byName[name]; name != "*" && !known {
			return fmt.Errorf("%w: the file has no column %q", ErrOptions, texts.Clip(name))
		}
	}
	own, taken := f.own(), map[string]bool{}
	for i := range f.columns {
		c := &f.columns[i]
		for _, field := range f.o.Map[c.name] {
			switch {
			case field == "":
			case taken[field]:
				return fmt.Errorf("%w: two columns lead to the field %q", ErrOptions, texts.Clip(field))
			case !store.ValidKey(field):
				return fmt.Errorf("%w: %q is no name of a field: 1 to 64 letters, digits, _ or -", ErrOptions, texts.Clip(field))
			}
			taken[field] = true
			c.targets = append(c.targets, f.target(field, own))
		}
		if len(c.targets) == 0 {
			c.targets = []*target{{}}
		}
	}
	if f.o.Map != nil && !slices.Equal(f.o.Map["*"], []string{"*"}) {
		return nil
	}
	known := maps.Clone(own)
	for key := range f.defined {
		if _, ok := known[squash(key)]; !ok {
			known[squash(key)] = key
		}
	}
	stand := map[string]string{"id": "external_id"}
	if f.object == "" {
		stand["name"] = "last_name"
	}
	free := func(c *column) bool {
		_, mapped := f.o.Map[c.name]
		return !mapped && c.targets[0].field == ""
	}
	for _, names := range []map[string]string{known, stand} { // exact names before stand-ins
		for i := range f.columns {
			c := &f.columns[i]
			if field, ok := names[squash(c.name)]; ok && free(c) && !taken[field] {
				taken[field] = true
				c.targets[0] = f.target(field, own)
			}
		}
	}
	for i := range f.columns {
		c := &f.columns[i]
		if !free(c) {
			continue
		}
		field := f.freeKey(c.name, i+1, func(key string) bool {
			_, exists := f.defined[key]
			_, standard := own[squash(key)]
			return taken[key] || exists || standard
		})
		taken[field] = true
		c.targets[0] = &target{field: field, custom: true, fresh: true}
	}
	return nil
}

// target returns what a field is.
func (f *feed) target(field string, own map[string]string) *target {
	if field == "" || own[squash(field)] == field {
		return &target{field: field, list: field == "tags"}
	}
	typ, exists := f.defined[field]
	return &target{field: field, custom: true, typ: typ, fresh: !exists}
}

// freeKey returns an identifier for a new field that is not in use.
func (f *feed) freeKey(name string, position int, used func(string) bool) string {
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
func (f *feed) definitions() []transfer.Line {
	var out []transfer.Line
	line := func(kind string, members ...strictjson.Member) transfer.Line {
		return transfer.Line{Number: f.last + len(out) + 1, Kind: kind, Value: strictjson.Value{Is: strictjson.Object, Members: members}}
	}
	fresh := schema.Fields{}
	for i := range f.columns {
		c := &f.columns[i]
		for _, t := range c.targets {
			if !t.fresh {
				continue
			}
			t.typ = c.guess.result()
			title := titleFor(c.name, t.field)
			fresh[t.field] = schema.Field{Title: title, Type: t.typ}
			if f.object == "" {
				out = append(out, line("contact_field", member("key", t.field), member("title", title), member("type", t.typ)))
			}
		}
	}
	if f.object == "" || f.existing != nil && len(fresh) == 0 {
		return out
	}
	label, plural := labels(f.object)
	if f.existing != nil {
		label, plural = f.existing.Label, f.existing.LabelPlural
		stored := f.existing.Schema.Clone()
		maps.Copy(stored, fresh)
		fresh = stored
	}
	def := line("custom_object", member("name", f.object), member("label", label), member("label_plural", plural))
	if def.Schema = fresh; len(fresh) > schema.MaxFields {
		def.Faults.Add("schema", "length", "a custom object has at most %d fields", schema.MaxFields)
	}
	return append(out, def)
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

// squash returns a name without what people spell differently.
func squash(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == '_' || r == '-' || r == ' ' || r == '.' || r == '/' || r == '\t':
			return -1
		}
		return r
	}, strings.TrimSpace(name))
}

// keyFor returns an identifier for a new field: "Production Budget" is production_budget.
func keyFor(name string, position int) string {
	var b strings.Builder
	gap := false
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteByte('_')
			gap = false
		}
		b.WriteRune(r)
		if b.Len() >= 56 { // leaves room for a number
			break
		}
	}
	if b.Len() == 0 {
		return fmt.Sprintf("column_%d", position)
	}
	return b.String()
}
