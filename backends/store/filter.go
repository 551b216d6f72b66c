package store

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"tenantry/backends/driver"
	"tenantry/internal/texts"
)

// Field types and operators are the engine's own vocabulary.
type (
	// Type is the type of a field.
	Type = driver.Type
	// Op is an operator of a condition.
	Op = driver.Op
	// Bucket rounds a time down.
	Bucket = driver.Bucket
	// MeasureOp is what a measure computes.
	MeasureOp = driver.MeasureOp
)

// Field names a value of a document in a query: a declared field or, if Custom is set, a field that the organization
// defined.
type Field struct {
	Name   string
	Custom bool
	Type   Type // how a custom field compares; the type of a declared field comes from its Spec
}

// F names a declared field.
func F(name string) Field { return Field{Name: name} }

// Filter is a typed tree of conditions. The zero value matches everything.
type Filter struct {
	leaf   bool // a condition made by Where, not a conjunction or disjunction
	op     Op
	kids   []Filter
	field  Field
	values []any
}

// All matches documents that match every filter. Without filters it matches everything.
func All(filters ...Filter) Filter { return Filter{op: driver.And, kids: filters} }

// AnyOf matches documents that match at least one filter. Without filters it matches nothing.
func AnyOf(filters ...Filter) Filter { return Filter{op: driver.Or, kids: filters} }

// Where returns a single condition. Values are string, bool, int, int64 or float64.
func Where(field Field, op Op, values ...any) Filter {
	return Filter{leaf: true, op: op, field: field, values: values}
}

// Eq matches documents whose declared field has the value.
func Eq(name string, value any) Filter { return Where(F(name), driver.Eq, value) }

// In matches documents whose declared field has one of the values.
func In[V any](name string, values ...V) Filter {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return Where(F(name), driver.In, list...)
}

// Has matches documents in which the declared field is present, or absent if present is false.
func Has(name string, present bool) Filter { return Where(F(name), driver.Exists, present) }

// IsZero reports whether the filter has no condition.
func (f Filter) IsZero() bool { return !f.leaf && f.op == driver.And && len(f.kids) == 0 }

// Limits of one query.
const (
	maxDepth = 16
	// maxConditions has room for the filters of a campaign and of its list, with 50 conditions each that may compile
	// to four; for the words of a search; and for a position in an order.
	maxConditions = 500
	maxValues     = 10_000
	// MaxFolded bounds the bytes of a text in a case-insensitive search. MongoDB accepts patterns of at most 16,384
	// bytes, and a byte of text may take seven in a pattern that lists all its cases.
	MaxFolded = 2048
	// MaxLimit is the largest number of documents that one Find returns.
	MaxLimit = 10_000
)

// compile checks the tree against the spec and translates it for an engine.
func (s *Spec) compile(f Filter, part partition, depth int) (driver.Predicate, error) {
	budget := maxConditions
	return s.compileNode(f, part, depth, &budget)
}

func (s *Spec) compileNode(f Filter, part partition, depth int, budget *int) (driver.Predicate, error) {
	if depth > maxDepth {
		return driver.Predicate{}, fmt.Errorf("%w: conditions nest deeper than %d", ErrQuery, maxDepth)
	}
	if !f.leaf {
		p := driver.Predicate{Op: f.op}
		for _, kid := range f.kids {
			k, err := s.compileNode(kid, part, depth+1, budget)
			if err != nil {
				return driver.Predicate{}, err
			}
			p.Kids = append(p.Kids, k)
		}
		return p, nil
	}
	if *budget--; *budget < 0 {
		return driver.Predicate{}, fmt.Errorf("%w: more than %d conditions", ErrQuery, maxConditions)
	}
	ref, err := s.ref(f.field)
	if err != nil {
		return driver.Predicate{}, err
	}
	values, err := checkValues(ref, f.op, f.values)
	if err != nil {
		return driver.Predicate{}, err
	}
	if !ref.Custom && ref.Name == "id" {
		if folds(f.op) { // identifiers are in lower case
			text, _ := values[0].(string)
			values[0] = strings.ToLower(text)
			f.op = map[Op]Op{driver.ContainsFold: driver.Contains, driver.StartsWithFold: driver.StartsWith}[f.op]
		}
		if part != 0 && f.op == driver.Contains {
			if text, _ := values[0].(string); text != "" {
				return part.containing(ref, text), nil
			}
		}
		for i, v := range values {
			if id, ok := v.(string); ok {
				values[i] = part.qualify(id)
			}
		}
	}
	return emptyIsMissing(driver.Predicate{Op: f.op, Ref: ref, Values: values}), nil
}

// containing matches the identifiers of a partition that contain the text. The stored prefix may contain the text as
// well. In that case the text is matched together with each character that may precede it: the dot at the end of the
// prefix, or a digit of the identifier.
func (p partition) containing(ref driver.Ref, text string) driver.Predicate {
	const hex = "0123456789abcdef"
	switch {
	case strings.Trim(text, hex) != "":
		return driver.Predicate{Op: driver.Or}
	case !strings.Contains(p.prefix(), text):
		return driver.Predicate{Op: driver.Contains, Ref: ref, Values: []any{text}}
	}
	either := driver.Predicate{Op: driver.Or, Kids: []driver.Predicate{
		{Op: driver.Contains, Ref: ref, Values: []any{"." + text}},
	}}
	for _, before := range hex {
		either.Kids = append(either.Kids, p.containing(ref, string(before)+text))
	}
	return either
}

// emptyIsMissing rewrites a comparison of a declared text field with "", because an empty string is stored as missing.
func emptyIsMissing(p driver.Predicate) driver.Predicate {
	if p.Ref.Custom || p.Ref.Type != driver.String || !slices.Contains(p.Values, any("")) {
		return p
	}
	absent := driver.Predicate{Op: driver.Exists, Ref: p.Ref, Values: []any{false}}
	present := driver.Predicate{Op: driver.Exists, Ref: p.Ref, Values: []any{true}}
	isEmpty := func(v any) bool { return v == any("") }
	rest := driver.Predicate{Op: p.Op, Ref: p.Ref, Values: slices.DeleteFunc(p.Values, isEmpty)}
	switch p.Op {
	case driver.Eq, driver.Lte:
		return absent
	case driver.Ne, driver.Gt, driver.StartsWith, driver.Contains, driver.ContainsFold, driver.StartsWithFold:
		return present
	case driver.Gte:
		return driver.Predicate{}
	case driver.Lt:
		return driver.Predicate{Op: driver.Or}
	case driver.In:
		return driver.Predicate{Op: driver.Or, Kids: []driver.Predicate{absent, rest}}
	case driver.Nin:
		return driver.Predicate{Op: driver.And, Kids: []driver.Predicate{present, rest}}
	}
	return p
}

func checkValues(ref driver.Ref, op Op, values []any) ([]any, error) {
	list := op == driver.In || op == driver.Nin
	if op < driver.Eq || op > driver.Before {
		return nil, fmt.Errorf("%w: unknown operator %d on %s", ErrQuery, op, ref.Name)
	}
	if !list && len(values) != 1 {
		return nil, fmt.Errorf("%w: one value expected for %s, %d given", ErrQuery, ref.Name, len(values))
	}
	if len(values) > maxValues {
		return nil, fmt.Errorf("%w: more than %d values for %s", ErrQuery, maxValues, ref.Name)
	}
	out := make([]any, len(values))
	for i, v := range values {
		p, ok := portable(v)
		if f, is := v.(float64); is && math.IsInf(f, 0) && (op == driver.From || op == driver.Before) {
			p, ok = f, true // stands for a JSON number beyond the range of float64
		}
		if !ok || !comparable(ref, op, p) {
			return nil, fmt.Errorf("%w: a value of type %T does not compare with %s", ErrQuery, v, ref.Name)
		}
		if text, _ := p.(string); folds(op) && len(text) > MaxFolded {
			return nil, fmt.Errorf("%w: more than %d bytes to look for in %s", ErrQuery, MaxFolded, ref.Name)
		}
		out[i] = p
	}
	return out, nil
}

// folds reports whether the operator ignores case.
func folds(op Op) bool { return op == driver.ContainsFold || op == driver.StartsWithFold }

func portable(v any) (any, bool) {
	switch x := v.(type) {
	case string, bool, int64:
		return x, true
	case int:
		return int64(x), true
	case float64:
		return x, !math.IsNaN(x) && !math.IsInf(x, 0)
	}
	return nil, false
}

func comparable(ref driver.Ref, op Op, v any) bool {
	if op == driver.Exists {
		_, ok := v.(bool)
		return ok
	}
	if op == driver.From || op == driver.Before {
		return ref.Custom && ref.Type != driver.Strings
	}
	_, text := v.(string)
	if op == driver.Contains || op == driver.StartsWith || folds(op) {
		return text && (ref.Type == driver.String || ref.Type == driver.Any || ref.Type == driver.Date ||
			(ref.Type == driver.Strings && op == driver.Contains))
	}
	switch ref.Type {
	case driver.Any:
		return true
	case driver.String, driver.Date, driver.Strings:
		return text
	case driver.Bool:
		_, ok := v.(bool)
		return ok
	}
	switch v.(type) {
	case int64, float64:
		return true
	}
	return false
}

// ref resolves a field of a query. Fields that are not declared are refused, because queries must not reveal them.
func (s *Spec) ref(f Field) (driver.Ref, error) {
	if f.Custom {
		if !s.Custom {
			return driver.Ref{}, fmt.Errorf("%w: %s has no custom fields", ErrQuery, s.Name)
		}
		if !ValidKey(f.Name) {
			return driver.Ref{}, fmt.Errorf("%w: %q is not a valid name of a custom field", ErrQuery, f.Name)
		}
		return driver.Ref{Name: f.Name, Custom: true, Type: f.Type}, nil
	}
	if f.Name == "id" {
		return driver.Ref{Name: "id", Type: driver.String}, nil
	}
	for i := range s.collection.Fields {
		if s.collection.Fields[i].Name == f.Name {
			return driver.Ref{Name: f.Name, Type: s.collection.Fields[i].Type}, nil
		}
	}
	return driver.Ref{}, fmt.Errorf("%w: %s has no declared field %q", ErrQuery, s.Name, f.Name)
}

// ValidKey reports whether text can name a custom field: 1 to 64 letters, digits, "_" or "-".
func ValidKey(text string) bool { return texts.Plain(text, 64, "_-") }
