package mongo

import (
	"fmt"
	"math"
	"unicode/utf8"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// truth says whether a condition is decided without reading documents.
type truth int

const (
	depends truth = iota
	always
	never
)

// operand is the path of a value in a document.
type operand struct {
	path   string
	typ    driver.Type
	custom bool   // a custom value, which may have any type, including list and document
	prefix string // the prefix of stored values that callers do not see
}

func (w *workspace) operand(k *kind, r driver.Ref) (operand, error) {
	if r.Custom {
		o := operand{path: fieldCustom + "." + encodeKey(r.Name), typ: driver.Any, custom: true}
		if r.Type == driver.Strings {
			o.typ = driver.Strings
		}
		return o, nil
	}
	if r.Name == "id" {
		return operand{path: fieldID, typ: driver.String, prefix: w.name + "/"}, nil
	}
	i, ok := k.at[r.Name]
	if !ok {
		return operand{}, fmt.Errorf("collection %s has no field %q", k.name, r.Name)
	}
	return operand{path: column(r.Name), typ: k.fields[i].Type}, nil
}

// literal returns the value as it is stored in the operand, and whether it can occur there.
func (o operand) literal(v any) (any, bool) {
	switch x := v.(type) {
	case string:
		ok := o.typ == driver.Any || o.typ == driver.String || o.typ == driver.Date || o.typ == driver.Strings
		return o.prefix + x, ok
	case int64:
		if o.typ == driver.Time {
			return bson.DateTime(x), true
		}
		return v, o.typ == driver.Any || numeric(o.typ)
	case float64:
		if o.typ == driver.Time {
			return bson.DateTime(x), x == math.Trunc(x) && math.Abs(x) < 1<<63
		}
		return v, (o.typ == driver.Any || numeric(o.typ)) && !math.IsNaN(x)
	case bool:
		return v, o.typ == driver.Any || o.typ == driver.Bool
	}
	return nil, false
}

// bound returns the value for a comparison with op, and whether any value can match. A time is rounded to a whole
// number of milliseconds such that the comparison has the same result; times out of range match all values or none.
func (o operand) bound(op driver.Op, v any) (any, bool) {
	x, isFloat := v.(float64)
	if o.typ != driver.Time || !isFloat || math.IsNaN(x) {
		return o.literal(v)
	}
	if op == driver.Gt || op == driver.Lte {
		x = math.Floor(x)
	} else {
		x = math.Ceil(x)
	}
	switch {
	case x >= 1<<63:
		return bson.DateTime(math.MaxInt64), op == driver.Lt || op == driver.Lte
	case x < -1<<63:
		return bson.DateTime(math.MinInt64), op == driver.Gt || op == driver.Gte
	}
	return bson.DateTime(x), true
}

// usable returns the values that can occur in the operand.
func (o operand) usable(values []any) bson.A {
	out := make(bson.A, 0, len(values))
	for _, v := range values {
		if x, ok := o.literal(v); ok {
			out = append(out, x)
		}
	}
	return out
}

// is returns a condition with a single operator. A value from outside can only be the operator's argument, never an
// operator itself.
func is(path, operator string, value any) bson.D {
	return bson.D{{Key: path, Value: bson.D{{Key: operator, Value: value}}}}
}

// filter returns the filter for a predicate within the workspace.
func (w *workspace) filter(k *kind, p driver.Predicate) (bson.D, truth, error) {
	cond, t, err := w.predicate(k, p)
	if err != nil || t == never {
		return nil, t, err
	}
	f := make(bson.D, 0, 2)
	f = append(f, bson.E{Key: "org_id", Value: bson.D{{Key: "$eq", Value: w.name}}})
	return append(f, cond...), t, nil
}

func (w *workspace) predicate(k *kind, p driver.Predicate) (bson.D, truth, error) {
	switch p.Op {
	case driver.And:
		return w.join(k, p.Kids, "$and", always, never)
	case driver.Or:
		return w.join(k, p.Kids, "$or", never, always)
	}
	o, err := w.operand(k, p.Ref)
	if err != nil {
		return nil, never, err
	}
	if p.Op != driver.In && p.Op != driver.Nin && len(p.Values) != 1 {
		return nil, never, fmt.Errorf("a condition on %s needs one value, has %d", p.Ref.Name, len(p.Values))
	}
	if p.Op == driver.Exists {
		want, ok := p.Values[0].(bool)
		if !ok {
			return nil, never, fmt.Errorf("exists on %s needs true or false", p.Ref.Name)
		}
		d, t := o.exists(want)
		return d, t, nil
	}
	if o.typ == driver.Strings {
		d, t := o.elements(p)
		return d, t, nil
	}
	d, t, err := o.scalar(p)
	return d, t, err
}

// join combines conditions with $and or $or. Empty is the result without undecided conditions; decided is the result
// that a single condition determines.
func (w *workspace) join(
	k *kind, kids []driver.Predicate, operator string, empty, decided truth,
) (bson.D, truth, error) {
	var conds bson.A
	var only bson.D
	result := depends
	for _, kid := range kids {
		d, t, err := w.predicate(k, kid)
		if err != nil {
			return nil, never, err
		}
		switch t {
		case decided:
			result = decided // the others are still checked for errors
		case depends:
			conds, only = append(conds, d), d
		}
	}
	switch {
	case result == decided:
		return nil, decided, nil
	case len(conds) == 0:
		return nil, empty, nil
	case len(conds) == 1:
		return only, depends, nil
	}
	return bson.D{{Key: operator, Value: conds}}, depends, nil
}

func (o operand) exists(want bool) (bson.D, truth) {
	null := is(o.path, "$eq", nil)
	switch {
	case o.path == fieldID && want:
		return nil, always
	case o.path == fieldID:
		return nil, never
	case !o.custom && want:
		return is(o.path, "$ne", nil), depends
	case !o.custom:
		return null, depends
	case o.typ == driver.Strings:
		element := bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "$ne", Value: nil}}}}
		if want {
			return either(bson.D{{Key: o.path, Value: element}}, is(o.path, "$gte", "")), depends
		}
		return both(is(o.path, "$not", element), is(o.path, "$not", bson.D{{Key: "$gte", Value: ""}})), depends
	case want:
		return either(is(o.path, "$ne", nil), is(o.path, "$type", "array")), depends
	}
	return both(null, o.notList()), depends
}

// placed compares a custom value by its position in a sort: with values of the same type, and with the types that sort
// after it.
func (o operand) placed(p driver.Predicate, v any) (bson.D, truth, error) {
	from := bson.A{is(o.path, "$gte", v)}
	switch v.(type) {
	case bool:
	case string:
		from = append(from, is(o.path, "$gte", false))
	default:
		from = append(from, is(o.path, "$gte", ""), is(o.path, "$gte", false))
	}
	if !o.custom {
		return nil, never, fmt.Errorf("%s has no place of its own", p.Ref.Name)
	}
	if p.Op == driver.From {
		return o.single(bson.D{{Key: "$or", Value: from}}), depends, nil
	}
	var before bson.A
	for _, kid := range from {
		before = append(before, is(o.path, "$not", kid.(bson.D)[0].Value)) //nolint:forcetypeassert // is made it
	}
	return either(bson.D{{Key: "$and", Value: before}}, is(o.path, "$type", "array")), depends, nil
}

// notList returns the condition that a custom value is not a list, because conditions would apply to its elements.
func (o operand) notList() bson.D {
	return is(o.path, "$not", bson.D{{Key: "$type", Value: "array"}})
}

// single restricts a condition to values that are not lists, because it would apply to their elements.
func (o operand) single(cond bson.D) bson.D {
	if !o.custom {
		return cond
	}
	return both(cond, o.notList())
}

func either(a, b bson.D) bson.D { return bson.D{{Key: "$or", Value: bson.A{a, b}}} }

func both(a, b bson.D) bson.D { return bson.D{{Key: "$and", Value: bson.A{a, b}}} }

// elements returns a condition on the elements of a list. A single custom string counts as a list of one element, as it
// does for the server. Operators that do not apply to elements match nothing.
func (o operand) elements(p driver.Predicate) (bson.D, truth) {
	values := make(bson.A, 0, len(p.Values))
	for _, v := range p.Values {
		if s, ok := v.(string); ok {
			values = append(values, s)
		}
	}
	switch p.Op {
	case driver.Eq, driver.In, driver.Contains:
		if len(values) == 0 {
			return nil, never
		}
		return among(o.path, values), depends
	case driver.Ne, driver.Nin:
		if len(values) == 0 {
			return nil, always
		}
		return outside(o.path, values), depends
	}
	return nil, never
}

func among(path string, values bson.A) bson.D {
	if len(values) == 1 {
		return is(path, "$eq", values[0])
	}
	return is(path, "$in", values)
}

func outside(path string, values bson.A) bson.D {
	if len(values) == 1 {
		return is(path, "$ne", values[0])
	}
	return is(path, "$nin", values)
}

// scalar returns a condition on a single value. The server compares only values of the same type, and treats missing
// values as different from every value.
func (o operand) scalar(p driver.Predicate) (bson.D, truth, error) {
	switch p.Op {
	case driver.Eq, driver.In:
		values := o.usable(p.Values)
		if len(values) == 0 {
			return nil, never, nil
		}
		return o.single(among(o.path, values)), depends, nil
	case driver.Ne, driver.Nin:
		values := o.usable(p.Values)
		switch {
		case len(values) == 0:
			return nil, always, nil
		case o.custom: // a list differs from its only element
			return either(outside(o.path, values), is(o.path, "$type", "array")), depends, nil
		}
		return outside(o.path, values), depends, nil
	}
	v, ok := o.bound(p.Op, p.Values[0])
	if !ok {
		return nil, never, nil
	}
	switch p.Op {
	case driver.Gt:
		return o.single(is(o.path, "$gt", v)), depends, nil
	case driver.Gte:
		return o.single(is(o.path, "$gte", v)), depends, nil
	case driver.Lt:
		return o.single(is(o.path, "$lt", v)), depends, nil
	case driver.Lte:
		return o.single(is(o.path, "$lte", v)), depends, nil
	case driver.From, driver.Before:
		return o.placed(p, v)
	case driver.Contains, driver.StartsWith, driver.ContainsFold, driver.StartsWithFold:
		part, isText := p.Values[0].(string)
		// Stored text is valid UTF-8, so text that is not valid cannot be a part of it.
		if !isText || !utf8.ValidString(part) {
			return nil, never, nil
		}
		switch p.Op {
		case driver.Contains:
			return o.single(o.contains(part, quote(part))), depends, nil
		case driver.ContainsFold:
			return o.single(o.contains(part, fold(part))), depends, nil
		case driver.StartsWithFold:
			return o.single(o.startsWithFold(part)), depends, nil
		}
		return o.single(o.startsWith(o.prefix + part)), depends, nil
	}
	return nil, never, fmt.Errorf("unknown operator %d on %s", p.Op, p.Ref.Name)
}

// contains returns the condition that a text contains the part, which the pattern matches.
func (o operand) contains(part, pattern string) bson.D {
	if part == "" {
		return is(o.path, "$gte", "")
	}
	if o.prefix != "" {
		pattern = "^" + quote(o.prefix) + `[\s\S]*` + pattern
	}
	if o.typ == driver.Any { // the bound restricts an index scan to text
		return both(is(o.path, "$gte", ""), is(o.path, "$regex", pattern))
	}
	return is(o.path, "$regex", pattern)
}

// quote returns the pattern that matches exactly the text. A backslash escapes every ASCII character that is not a
// letter or digit. NUL is written as \x00, because a pattern cannot contain it.
func quote(text string) string {
	b := make([]byte, 0, len(text)+8)
	for i := range len(text) {
		c := text[i]
		switch {
		case c == 0:
			b = append(b, `\x00`...)
			continue
		case c >= utf8.RuneSelf, c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		default:
			b = append(b, '\\')
		}
		b = append(b, c)
	}
	return string(b)
}

// fold returns the pattern that matches the text in any case, with a character class for each letter. Classes contain
// only letters, which need no escaping. The server's own case folding is not used, because it depends on the version of
// its library.
func fold(text string) string {
	b := make([]byte, 0, 4*len(text)+8)
	for _, r := range text {
		cases := driver.Cases(r)
		if len(cases) == 1 {
			b = append(b, quote(string(r))...)
			continue
		}
		b = append(b, '[')
		b = append(b, string(cases)...)
		b = append(b, ']')
	}
	return string(b)
}

// startsWith returns the condition as a range, which an index can serve.
func (o operand) startsWith(prefix string) bson.D {
	bounds := bson.D{{Key: "$gte", Value: prefix}}
	if end, ok := afterPrefix(prefix); ok {
		bounds = append(bounds, bson.E{Key: "$lt", Value: end})
	}
	return bson.D{{Key: o.path, Value: bounds}}
}

// maxPrefixes bounds the ranges of a case-insensitive prefix condition.
const maxPrefixes = 4

// startsWithFold returns the condition as ranges of a few short prefixes, which an index can serve, and the pattern of
// the entire prefix.
func (o operand) startsWithFold(part string) bson.D {
	prefix := driver.Fold(part)
	if prefix.Caseless() {
		return o.startsWith(o.prefix + part)
	}
	ranges := bson.A{}
	for _, p := range prefix.Prefixes(maxPrefixes) {
		ranges = append(ranges, o.startsWith(o.prefix+p))
	}
	return both(bson.D{{Key: "$or", Value: ranges}}, is(o.path, "$regex", "^"+quote(o.prefix)+fold(part)))
}

// afterPrefix returns the smallest text that is greater than every text with the prefix, and false if there is none.
// UTF-8 sorts in the order of code points.
func afterPrefix(prefix string) (string, bool) {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		switch r := runes[i]; {
		case r == utf8.MaxRune:
			continue
		case r == 0xD7FF: // skips the surrogates
			runes[i] = 0xE000
		default:
			runes[i]++
		}
		return string(runes[:i+1]), true
	}
	return "", false
}
