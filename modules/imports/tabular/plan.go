package tabular

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
	"tenantry/modules/imports/bundle"
)

// Types of fields of every record, in addition to those of package schema.
const (
	aLine  = "line"   // a text of one line
	aText  = "text"   // any text
	aValue = "object" // JSON
)

// typeOf returns the type by which values of a record's own field are read.
func typeOf(f *field.Field) string {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case f.Rule.Format == "time":
		return schema.DateTime
	case reflect.Zero(t).CanInt():
		return schema.Number
	case t.Kind() == reflect.Bool:
		return schema.Boolean
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return schema.MultiSelect
	case t.Kind() != reflect.String:
		return aValue
	case f.Rule.Format != "" || f.Rule.Unique || f.Use.Has(declare.Filter):
		return aLine
	}
	return aText
}

// findOwn finds the record's own fields, by squashed name. If missing fields are created, a column with the name of an
// identifier, reference or time becomes a new field, because that is more likely, unless the file is an export.
func (f *feed) findOwn() {
	f.own = map[string]*field.Field{}
	for i := range f.of.Fields {
		of := &f.of.Fields[i]
		if of.Name == f.of.DefinitionField && f.makes() && f.foreign && !f.ours {
			continue
		}
		plain := of.Rule.Ref == "" && of.Name != idColumn && slices.Contains([]string{
			aLine, aText, schema.MultiSelect,
		}, typeOf(of))
		if of.Name != f.of.ValuesName() && (plain || !f.makes() || f.ours && !of.Use.Has(declare.Hidden)) {
			f.own[squash(of.Name)] = of
		}
	}
}

// plan decides which fields each column is mapped to.
func (f *feed) plan() error {
	f.planned = true
	switch {
	case len(f.columns) == 0 && f.unread != nil:
		return fmt.Errorf("%w: no row has a column; %w", ErrOptions, f.unread)
	case len(f.columns) == 0:
		return fmt.Errorf("%w: the file has no columns", ErrOptions)
	case len(f.columns) > maxColumns:
		return fmt.Errorf("%w: the file has more than %d columns", ErrOptions, maxColumns)
	}
	for name := range f.o.Map {
		if _, known := f.byName[name]; name != "*" && !known {
			return fmt.Errorf("%w: the file has no column %q; it has %s", ErrOptions, texts.Clip(name), f.columnNames())
		}
	}
	if all, mapped := f.o.Map["*"]; mapped && !slices.Equal(all, []string{"*"}) && !slices.Equal(all, []string{""}) {
		return fmt.Errorf(
			"%w: * stands for all other columns: match them by name (*=*) or skip them (*=); they cannot become %q",
			ErrOptions, texts.Clip(strings.Join(all, ", ")),
		)
	}
	f.findOwn()
	f.nameColumns()
	taken := map[place]bool{}
	for i := range f.columns {
		c := &f.columns[i]
		c.targets, c.note, c.byName, c.format = nil, "", false, ""
		for _, to := range f.o.Map[c.name] {
			field, format, formatted := strings.Cut(to, ":")
			if c.format = ""; formatted && !slices.Contains(Formats(), format) {
				return fmt.Errorf(
					"%w: unknown format %q; use one of %s", ErrOptions, texts.Clip(format),
					strings.Join(Formats(), ", "),
				)
			}
			if field == "*" {
				c.format, c.byName = format, true
				continue
			}
			t := f.target(f.placeOf(field))
			t.format = format
			at := place{t.field, t.custom}
			switch {
			case field == "":
			case taken[at]:
				return fmt.Errorf("%w: two columns are mapped to the field %q", ErrOptions, texts.Clip(field))
			case !store.ValidKey(field):
				return fmt.Errorf(
					"%w: %q is not a valid field name: 1 to 64 of A-Z, a-z, 0-9, _ and -", ErrOptions, texts.Clip(field),
				)
			}
			if t.fresh && (!f.makes() || f.reserved(field)) {
				return fmt.Errorf("%w: a %s has no field %q", ErrOptions, spaced(f.of.Name), texts.Clip(field))
			}
			if was, gone := f.deleted[squash(field)]; gone && was == field {
				return f.errDeletedField(c, field)
			}
			taken[at] = true
			c.targets = append(c.targets, t)
		}
		if len(c.targets) == 0 {
			c.targets = []*target{{}}
		}
	}
	f.match(taken)
	names := map[string]bool{}
	for i := range f.columns {
		names[f.columns[i].called] = true
	}
	for i := range f.columns {
		c := &f.columns[i]
		if !f.free(c) {
			continue
		}
		if !f.makes() {
			return fmt.Errorf(
				"%w: a %s has no field for the column %q; map the columns to fields", ErrOptions, spaced(f.of.Name),
				texts.Clip(c.name),
			)
		}
		name := strings.TrimPrefix(c.called, f.of.ValuesName()+".")
		field := f.freeKey(name, func(key string) bool {
			_, exists := f.defined[key]
			_, standard := f.own[squash(key)]
			return taken[place{key, true}] || exists || standard || names[key] && key != name
		})
		for _, name := range []string{c.name, field} {
			if was, gone := f.deleted[squash(name)]; gone {
				return f.errDeletedField(c, was)
			}
		}
		taken[place{field, true}] = true
		c.targets[0] = &target{field: field, custom: true, fresh: true, format: c.format}
	}
	return nil
}

// maxNamed bounds how many columns an error names.
const maxNamed = 10

// columnNames returns the names of the first columns.
func (f *feed) columnNames() string {
	var names []string
	for i := range f.columns[:min(len(f.columns), maxNamed)] {
		names = append(names, strconv.Quote(texts.Clip(f.columns[i].name)))
	}
	if n := len(f.columns) - maxNamed; n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(names, ", ")
}

// free reports whether a column is not mapped to a field yet.
func (f *feed) free(c *column) bool {
	_, mapped := f.o.Map[c.name]
	mapped = mapped || f.o.Map != nil && !slices.Equal(f.o.Map["*"], []string{"*"})
	return (c.byName || !mapped) && c.targets[0].field == ""
}

// match maps columns to the fields with their names. A field that an import created has the name of its column as
// title, and columns of a file have different names, so that the same file finds the fields that it created.
func (f *feed) match(taken map[place]bool) {
	own, titles, keys, alike, stand := places{}, places{}, places{}, places{}, places{}
	for name, of := range f.own {
		own.add(of.Name, place{field: of.Name})
		alike.add(name, place{field: of.Name})
		for _, alias := range record.Aliases(of) {
			stand.add(squash(alias), place{field: of.Name})
		}
	}
	names := f.defined.Names()
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }) // so that a_2 comes before a_10
	for _, key := range names {
		at, inside := place{key, true}, f.of.ValuesName()+"."+key
		titles.add(titleFor(f.defined[key].Title, key), at)
		keys.add(key, at)
		keys.add(inside, at)
		for _, name := range []string{squash(key), squash(inside), squash(f.defined[key].Title)} {
			alike.add(name, at)
		}
	}
	for _, key := range names { // keys that titles would be turned into
		alike.add(squash(keyFor(f.defined[key].Title)), place{key, true})
	}
	asIs := func(c *column) string { return c.called }
	steps := []struct {
		of    places
		spelt func(*column) string
		loose bool // several names may match
	}{
		{own, asIs, false}, {titles, asIs, false}, {
			titles, func(c *column) string { return titleFor(c.name, "") }, false,
		}, {keys, asIs, false},
		{alike, func(c *column) string { return squash(c.called) }, true}, {
			alike, func(c *column) string { return squash(keyFor(c.called)) }, true,
		},
		{stand, func(c *column) string { return squash(c.called) }, true},
	}
	if f.ours || f.allKeys(keys, own) { // its columns are named by keys
		steps[1], steps[2], steps[3] = steps[3], steps[1], steps[2]
	}
	for _, step := range steps {
		for i := range f.columns {
			c := &f.columns[i]
			if !f.free(c) {
				continue
			}
			var may []place
			for _, at := range step.of[step.spelt(c)] {
				if taken[at] && step.loose {
					c.note = fmt.Sprintf("similar to the field %s, which another column is mapped to", at.field)
				} else if !taken[at] {
					may = append(may, at)
				}
			}
			if len(may) == 0 {
				continue
			}
			taken[may[0]] = true
			c.targets[0], c.note = f.target(may[0]), ""
			if c.targets[0].format = c.format; step.loose && len(may) > 1 {
				c.note = fmt.Sprintf("also similar to the field %s", may[1].field)
			}
			for _, other := range stand[squash(c.called)] {
				if may[0].custom && c.note == "" && other != may[0] {
					c.note = fmt.Sprintf("might also mean the field %s", other.field)
				}
			}
		}
	}
}

// allKeys reports whether every column has the key of a field as its name, as in an export.
func (f *feed) allKeys(keys, own places) bool {
	return !slices.ContainsFunc(f.columns, func(c column) bool { return len(keys[c.name])+len(own[c.name]) == 0 })
}

// places are fields by name, the most likely first.
type places map[string][]place

func (p places) add(name string, at place) {
	if name != "" && !slices.Contains(p[name], at) {
		p[name] = append(p[name], at)
	}
}

// nameColumns gives each column a unique title. If several names have the same title, for example because they are
// long, a hash of the name is added, and a number if earlier columns have the same name. Columns whose name is their
// title go first, so that the result does not depend on the order of columns.
func (f *feed) nameColumns() {
	names, used := map[string]map[string]bool{}, map[string]bool{} // the names with each title
	for i := range f.columns {
		name := f.columns[i].name
		title := titleFor(name, noName)
		if names[title] == nil {
			names[title] = map[string]bool{}
		}
		names[title][name] = true
	}
	for i := range f.columns {
		c := &f.columns[i]
		c.called = ""
		title := titleFor(c.name, noName)
		if others := len(names[title]) > 1; others && c.name != title {
			sum := sha256.Sum256([]byte(c.name))
			title = clip(title, schema.MaxLabel-9) + " " + hex.EncodeToString(sum[:4])
		}
		if !used[title] {
			c.called, used[title] = title, true
		}
	}
	for i := range f.columns {
		c := &f.columns[i]
		title := titleFor(c.name, noName)
		for n := 2; c.called == ""; n++ {
			suffix := fmt.Sprintf(" (%d)", n)
			if called := clip(title, schema.MaxLabel-len(suffix)) + suffix; !used[called] {
				c.called, used[called] = called, true
			}
		}
	}
}

// errDeletedField refuses a column that would be mapped to a deleted field. The field is not restored, because that
// would also restore its old values.
func (f *feed) errDeletedField(c *column, field string) error {
	return fmt.Errorf("%w: the column %q is mapped to the field %q of a %s, which is deleted; restore it first, or map the column to another field",
		ErrOptions, texts.Clip(c.name), field, spaced(f.of.Name))
}

// place is the target of a column: a field of every record, or one that the organization defines.
type place struct {
	field  string
	custom bool
}

// placeOf returns the field with a name. Fields of every record take precedence over undefined ones.
func (f *feed) placeOf(name string) place {
	own := f.own[squash(name)]
	_, every := f.of.Index(name)
	_, defined := f.defined[name]
	every = every && name != f.of.ValuesName() && (own == nil && !defined)
	return place{name, name != "" && !every && (own == nil || own.Name != name)}
}

// target returns the field at a place.
func (f *feed) target(at place) *target {
	t := &target{field: at.field, custom: at.custom}
	if n, is := f.of.Index(at.field); is && !at.custom {
		t.typ = typeOf(&f.of.Fields[n])
	} else if at.custom {
		defined, exists := f.defined[at.field]
		t.typ, t.fresh = defined.Type, !exists
	}
	return t
}

// freeKey returns an unused key for a new field.
func (f *feed) freeKey(name string, used func(string) bool) string {
	base := cmp.Or(keyFor(name), noName)
	if f.ours && store.ValidKey(name) {
		base = name
	}
	if f.reserved(base) {
		base = "column_" + base
	}
	key := base
	for n := 2; used(key); n++ {
		key = fmt.Sprintf("%s_%d", base, n)
	}
	return key
}

// reserved reports whether no field can be defined with the key, because it is the name of a record's own field.
func (f *feed) reserved(key string) bool {
	if _, own := f.of.Index(key); own {
		return true
	}
	var errs fault.List
	if f.makes() && f.defines.Together {
		c := record.Checking{Errs: &errs, Known: &record.Known{}}
		f.defines.Read(&c, f.newField(key, key, schema.Text), f.defines.New())
	}
	return len(errs) > 0
}

func (f *feed) newField(key, title, typ string) strictjson.Value {
	return object(member(f.defines.Key, key), member("title", title), member("type", typ))
}

// definitions returns lines that create the missing fields. A file without rows creates none, because it is unknown
// whether it is an export.
func (f *feed) definitions() []bundle.Line {
	if !f.makes() || f.last == 0 {
		return nil
	}
	var out []bundle.Line
	rev := int64(0)
	if f.existing != nil {
		rev = f.defines.Meta(f.existing).Rev
	}
	line := func(v strictjson.Value) *bundle.Line {
		out = append(out, bundle.Line{Number: f.last + len(out) + 1, Kind: f.defines.Name, Value: v, Rev: &rev})
		return &out[len(out)-1]
	}
	fresh := schema.Fields{}
	for i := range f.columns {
		c := &f.columns[i]
		for _, t := range c.targets {
			if !t.fresh {
				continue
			}
			t.typ = cmp.Or(typeOfFormat(t.format), c.guess.result())
			title := c.called
			if len(c.targets) > 1 { // each field has a title of its own
				title = titleFor(c.name, t.field)
			}
			fresh[t.field] = schema.Field{Title: title, Type: t.typ}
			if f.defines.Together {
				line(f.newField(t.field, title, t.typ))
			}
		}
	}
	if f.defines.Together || f.existing != nil && len(fresh) == 0 {
		return out
	}
	label, plural := labels(f.definition)
	if f.existing != nil {
		label, plural = f.defines.Text(f.existing, "label"), f.defines.Text(f.existing, "label_plural")
	}
	fields := f.defined.With(fresh)
	def := line(object(member(f.defines.Key, f.definition), member("label", label), member("label_plural", plural),
		strictjson.Member{
			Name: "schema", Value: parsed(field.AppendJSON(nil, fields)),
		}, strictjson.Member{Name: "as_is", Value: valueOf(true)}))
	if len(fields) > schema.MaxFields {
		def.Faults.Add("schema", "length", "a %s has at most %d fields", spaced(f.defines.Name), schema.MaxFields)
	}
	return out
}

// noName is the title of a column without a name.
const noName = "column"

// titleFor returns the title of a new field.
func titleFor(column, unnamed string) string {
	return clip(cmp.Or(oneLine(column), unnamed), schema.MaxLabel)
}

// clip returns at most that many characters of a text.
func clip(s string, most int) string {
	if runes := []rune(s); len(runes) > most {
		s = strings.TrimSpace(string(runes[:most]))
	}
	return s
}

// labels returns the labels of a new custom object, made from its name.
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

// squash returns a name without differences in case and punctuation.
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

// keyFor returns a key for a new field: "Production Budget" becomes production_budget. It is empty if the name has no
// ASCII letters or digits.
func keyFor(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	key := strings.ToLower(strings.Join(words, "_"))
	return strings.TrimRight(key[:min(len(key), 56)], "_") // leaves room for a number
}
