package filters

import (
	"slices"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
)

// Field is one field of a Catalog. The type of Ref says which conditions it takes and how their values are written:
//
//   - Time: RFC 3339 timestamps or dates. A date stands for the start of that day in UTC; with eq, ne, in and nin it
//     stands for the whole day. Numbers are refused, because seconds and milliseconds cannot be told apart.
//   - Date: the same, for values that are stored as text that begins with a date.
//   - Strings: texts; conditions apply to the elements.
//   - Any: texts, because values of any type are only compared with text.
type Field struct {
	Name    string
	Ref     store.Field
	Secret  bool // encrypted: conditions are refused
	Seconds bool // of a Time: callers see it as Unix seconds, so a number is accepted and matches the whole second
}

// Defined returns a field that the organization defined, with a type of package schema. It is Secret if its values are
// encrypted.
func Defined(name, fieldType string) Field {
	typ, askable := schema.StoreType(fieldType)
	return Field{Name: name, Ref: store.Field{Name: name, Custom: true, Type: typ}, Secret: !askable}
}

// Catalog looks up fields. It is only asked for valid names (store.ValidKey).
type Catalog interface {
	Field(name string) (Field, bool)
}

// Input is the value for {"input": "<name>"}. It is read like text of a query string; the field of the condition
// decides the type.
type Input struct {
	Value  string
	Set    bool   // there is a value
	Locked bool   // without a value the filter is refused; otherwise the condition would be left out
	Type   string // as declared; Bind does not use it
}

// Bind returns the filter over the catalog's fields. inputs looks up inputs by name; it may be nil if there are none.
// Faults are noted in errs, by field and without values: an unknown or encrypted field, an operator that the field
// does not take, a value of another type, an unknown input, or a locked input without a value. The filter then matches
// nothing.
//
// A condition whose input has no value and is not locked is left out; so is an alternative without conditions.
func (e Expr) Bind(catalog Catalog, inputs func(name string) (Input, bool), errs *fault.List) store.Filter {
	nothing := store.AnyOf()
	var found fault.List
	defer report(&found, errs)
	b := binder{catalog: catalog, inputs: inputs, errs: &found, budget: MaxConditions - e.size()}
	all := b.group(e.conditions)
	var either []store.Filter
	for _, group := range e.alternatives {
		if conditions := b.group(group); len(conditions) > 0 {
			either = append(either, store.All(conditions...))
		}
	}
	if len(either) > 0 {
		all = append(all, store.AnyOf(either...))
	}
	if e.invalid || len(found) > 0 {
		return nothing
	}
	return store.All(all...)
}

type binder struct {
	catalog Catalog
	inputs  func(name string) (Input, bool)
	errs    *fault.List
	budget  int // how many conditions lists of dates may still add
}

func (b *binder) group(conditions []condition) []store.Filter {
	var out []store.Filter
	for _, c := range conditions {
		if f, ok := b.condition(c); ok {
			out = append(out, f)
		}
	}
	return out
}

// condition binds one condition; ok is false if it is left out or invalid.
func (b *binder) condition(c condition) (store.Filter, bool) {
	field, ok := b.field(c)
	if !ok {
		return store.Filter{}, false
	}
	if !slices.Contains(operatorsOf(field.Ref.Type), c.op) {
		b.errs.Add(c.label, "forbidden", "%s: the operator %s does not apply to this field", c.label, operatorName(c.op))
		return store.Filter{}, false
	}
	values, ok := b.values(c)
	if !ok {
		return store.Filter{}, false
	}
	if c.op == store.OpExists {
		want, ok := values[0].boolean()
		if !ok {
			b.errs.Add(c.label, "type", "%s must be true or false", c.label)
			return store.Filter{}, false
		}
		return store.Where(field.Ref, c.op, want), true
	}
	switch field.Ref.Type {
	case store.TypeTime, store.TypeDate:
		return b.moments(c, field, values)
	default:
		return b.plain(c, field, values)
	}
}

func (b *binder) field(c condition) (Field, bool) {
	var field Field
	known := store.ValidKey(c.field)
	if known {
		field, known = b.catalog.Field(c.field)
	}
	switch {
	case !known:
		b.errs.Add(c.label, "unknown", "%s: there is no field %q to filter on", c.label, show(c.field))
	case field.Secret:
		b.errs.Add(c.label, "forbidden", "%s: the field %q is encrypted and cannot be filtered on", c.label, show(c.field))
	default:
		return field, true
	}
	return Field{}, false
}

func (b *binder) values(c condition) ([]literal, bool) {
	if c.input == "" {
		return c.values, true
	}
	var input Input
	declared := false
	if b.inputs != nil {
		input, declared = b.inputs(c.input)
	}
	switch {
	case !declared:
		b.errs.Add(c.label, "unknown", "%s: there is no input %q", c.label, show(c.input))
	case input.Set:
		return []literal{{loose, input.Value}}, true
	case input.Locked:
		b.errs.Add(c.label, "required", "%s: the locked input %q has no value", c.label, show(c.input))
	}
	return nil, false
}

func (b *binder) plain(c condition, field Field, values []literal) (store.Filter, bool) {
	bound := make([]any, len(values))
	for i, v := range values {
		value, ok := v.as(field.Ref.Type)
		if !ok {
			b.errs.Add(c.label, "type", "%s must be %s", c.label, phrase(field.Ref.Type))
			return store.Filter{}, false
		}
		if text, ok := value.(string); ok && slices.Contains(substringOperators(), c.op) && len(text) > store.MaxFolded {
			b.errs.Add(c.label, fault.Length, "%s may have at most %d bytes", c.label, store.MaxFolded)
			return store.Filter{}, false
		}
		bound[i] = value
	}
	op := c.op
	if field.Ref.Type == store.TypeStrings && op == store.OpContainsFold {
		op = store.OpContains // elements are compared as a whole
	}
	return store.Where(field.Ref, op, bound...), true
}

// substringOperators are the operators that compare parts of texts.
func substringOperators() []store.Op {
	return []store.Op{store.OpContainsFold, store.OpContains, store.OpStartsWithFold, store.OpStartsWith}
}

// Texts reports whether the field is compared with texts, each of its values being one.
func (f Field) Texts() bool {
	return !f.Secret && (f.Ref.Type == store.TypeString || f.Ref.Type == store.TypeAny)
}

// Operators returns the names of the operators that a field that is not Secret takes.
func (f Field) Operators() []string {
	names := []string{}
	of := operatorsOf(f.Ref.Type)
	for _, o := range operators() {
		if slices.Contains(of, o.op) {
			names = append(names, o.name)
		}
	}
	return names
}

func operatorsOf(t store.Type) []store.Op {
	equality := []store.Op{store.OpEq, store.OpNe, store.OpIn, store.OpNin, store.OpExists}
	order := []store.Op{store.OpGt, store.OpGte, store.OpLt, store.OpLte}
	switch t {
	case store.TypeBool:
		return equality
	case store.TypeInt, store.TypeFloat, store.TypeTime, store.TypeDate:
		return slices.Concat(equality, order)
	case store.TypeStrings:
		return append(equality, store.OpContainsFold)
	default:
		return slices.Concat(equality, order, substringOperators())
	}
}

// Values names the values of the type in a word or two, for documents.
func Values(t store.Type) string {
	switch t {
	case store.TypeBool:
		return "true or false"
	case store.TypeInt, store.TypeFloat:
		return "number"
	case store.TypeTime:
		return "time"
	case store.TypeDate:
		return "date"
	case store.TypeStrings:
		return "list"
	default:
		return "text"
	}
}

// phrase says what a value must be.
func phrase(t store.Type) string {
	switch t {
	case store.TypeBool:
		return "true or false"
	case store.TypeInt, store.TypeFloat:
		return "a number"
	case store.TypeTime, store.TypeDate:
		return "a date (2024-05-17) or an RFC 3339 time (2024-05-17T10:00:00Z, a + written %2B in a query)"
	default:
		return "text"
	}
}
