package memtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"tenantry/backends/driver"
)

// composite is a custom value that equals no operand of a condition: an object, or a list.
type composite struct{ list []any }

// value returns the value of a reference in the document: nil, string, int64, float64, bool, []string or composite.
func value(c *driver.Collection, d driver.Document, ref driver.Ref) any {
	switch {
	case ref.Custom:
		return custom(d, ref.Name)
	case ref.Name == "id":
		return d.ID
	}
	i := slices.IndexFunc(c.Fields, func(f driver.Field) bool { return f.Name == ref.Name })
	if i < 0 || i >= len(d.Values) {
		return nil
	}
	if list, ok := d.Values[i].([]string); ok && len(list) == 0 {
		return nil
	}
	return d.Values[i]
}

func custom(d driver.Document, name string) any {
	var object map[string]any
	dec := json.NewDecoder(bytes.NewReader(d.Custom))
	dec.UseNumber()
	if err := dec.Decode(&object); err != nil {
		return nil // the document has no custom values
	}
	return fromJSON(object[name])
}

func fromJSON(v any) any {
	switch x := v.(type) {
	case json.Number:
		if n, err := x.Int64(); err == nil {
			return n
		}
		f, _ := x.Float64()
		return f
	case []any:
		return composite{list: x}
	case map[string]any:
		return composite{}
	}
	return v
}

// elements returns the strings of a list, and whether it has any element at all. A string is a list of one.
func elements(v any) (list []string, exist bool) {
	switch x := v.(type) {
	case string:
		return []string{x}, true
	case []string:
		return x, len(x) > 0
	case composite:
		for _, e := range x.list {
			if s, ok := e.(string); ok {
				list = append(list, s)
			}
			exist = exist || e != nil
		}
	}
	return list, exist
}

// checkFields returns an error if a condition is on a field that the collection does not declare.
func checkFields(c *driver.Collection, p driver.Predicate) error {
	for _, kid := range p.Kids {
		if err := checkFields(c, kid); err != nil {
			return err
		}
	}
	isDeclared := func() bool {
		return slices.ContainsFunc(c.Fields, func(f driver.Field) bool { return f.Name == p.Ref.Name })
	}
	if p.Op == driver.And || p.Op == driver.Or || p.Ref.Custom || p.Ref.Name == "id" || isDeclared() {
		return nil
	}
	return fmt.Errorf("collection %s has no field %q", c.Name, p.Ref.Name)
}

// matches reports whether the document meets the predicate.
func matches(c *driver.Collection, d driver.Document, p driver.Predicate) bool {
	switch p.Op {
	case driver.And:
		return !slices.ContainsFunc(p.Kids, func(k driver.Predicate) bool { return !matches(c, d, k) })
	case driver.Or:
		return slices.ContainsFunc(p.Kids, func(k driver.Predicate) bool { return matches(c, d, k) })
	}
	v := value(c, d, p.Ref)
	if p.Ref.Type == driver.Strings {
		return matchesList(v, p)
	}
	equal := func(want any) bool { c, ok := compare(v, want); return ok && c == 0 }
	switch p.Op {
	case driver.Eq, driver.In:
		return slices.ContainsFunc(p.Values, equal)
	case driver.Ne, driver.Nin:
		return !slices.ContainsFunc(p.Values, equal)
	case driver.Exists:
		return (v != nil) == p.Values[0]
	case driver.From, driver.Before:
		return (order(v, p.Values[0]) >= 0) == (p.Op == driver.From)
	case driver.Contains, driver.StartsWith, driver.ContainsFold, driver.StartsWithFold:
		text, ok1 := v.(string)
		part, ok2 := p.Values[0].(string)
		match := strings.Contains
		switch p.Op {
		case driver.StartsWith:
			match = strings.HasPrefix
		case driver.ContainsFold:
			match = func(text, part string) bool { return driver.Fold(part).In(text) }
		case driver.StartsWithFold:
			match = func(text, part string) bool { return driver.Fold(part).Begins(text) }
		}
		return ok1 && ok2 && match(text, part)
	}
	n, ok := compare(v, p.Values[0])
	switch p.Op {
	case driver.Gt:
		return ok && n > 0
	case driver.Gte:
		return ok && n >= 0
	case driver.Lt:
		return ok && n < 0
	case driver.Lte:
		return ok && n <= 0
	}
	return false
}

func matchesList(v any, p driver.Predicate) bool {
	list, exist := elements(v)
	some := slices.ContainsFunc(list, func(e string) bool { return slices.Contains(p.Values, any(e)) })
	switch p.Op {
	case driver.Eq, driver.In, driver.Contains:
		return some
	case driver.Ne, driver.Nin:
		return !some
	case driver.Exists:
		return exist == p.Values[0]
	}
	return false
}

// class returns the position of the value's type in a sort, or -1 if values of the type cannot be compared.
func class(v any) int {
	switch v.(type) {
	case nil:
		return 0
	case int64, float64:
		return 1
	case string:
		return 2
	case bool:
		return 3
	}
	return -1
}

// compare compares two values. ok is false if they are of different types or of a type that has no order.
func compare(a, b any) (c int, ok bool) {
	if class(a) != class(b) || class(a) <= 0 {
		return 0, false
	}
	switch x := a.(type) {
	case string:
		return cmp.Compare(x, b.(string)), true
	case bool:
		return cmp.Compare(fmt.Sprint(x), fmt.Sprint(b)), true
	}
	return number(a).Cmp(number(b)), true
}

func number(v any) *big.Float {
	if n, ok := v.(int64); ok {
		return new(big.Float).SetInt64(n)
	}
	f, _ := v.(float64)
	return new(big.Float).SetFloat64(f)
}

// order compares any two values for a sort.
func order(a, b any) int {
	if c, ok := compare(a, b); ok {
		return c
	}
	return cmp.Compare(class(a), class(b))
}

func directed(c int, desc bool) int {
	if desc {
		return -c
	}
	return c
}

// bucket rounds a value down to the start of its period. It returns nil for a value that is no time or date.
func bucket(v any, g driver.Group) any {
	if g.By == driver.NoBucket {
		return v
	}
	var at time.Time
	if g.Ref.Type == driver.Time {
		n, ok := v.(int64)
		if !ok {
			return nil
		}
		at = time.UnixMilli(n).UTC()
	} else {
		text, _ := v.(string)
		var err error
		if at, err = time.Parse("2006-01-02", text[:min(10, len(text))]); err != nil {
			return nil
		}
	}
	switch g.By {
	case driver.Day:
		return at.Format("2006-01-02")
	case driver.Week:
		y, w := at.ISOWeek()
		return fmt.Sprintf("%04d-W%02d", y, w)
	case driver.Month:
		return at.Format("2006-01")
	case driver.Quarter:
		return fmt.Sprintf("%04d-Q%d", at.Year(), (int(at.Month())+2)/3)
	}
	return at.Format("2006")
}

// aggregate returns the rows of an aggregation over the matching documents.
func aggregate(a driver.Aggregation, found []driver.Document) [][]any {
	type group struct {
		key     []any
		members []driver.Document
	}
	var groups []*group
	if len(a.Groups) == 0 {
		groups = append(groups, &group{})
	}
	for _, d := range found {
		var key []any
		for _, g := range a.Groups {
			key = append(key, bucket(value(a.Collection, d, g.Ref), g))
		}
		i := slices.IndexFunc(groups, func(g *group) bool { return slices.CompareFunc(g.key, key, order) == 0 })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{key: key})
		}
		groups[i].members = append(groups[i].members, d)
	}
	rows := make([][]any, 0, len(groups))
	for _, g := range groups {
		row := slices.Clone(g.key)
		for _, m := range a.Measures {
			row = append(row, measure(a.Collection, g.members, m))
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(x, y []any) int {
		for _, s := range a.Sort {
			if c := directed(order(x[s.Column], y[s.Column]), s.Desc); c != 0 {
				return c
			}
		}
		return slices.CompareFunc(x[:len(a.Groups)], y[:len(a.Groups)], order)
	})
	if a.Limit > 0 {
		rows = rows[:min(a.Limit, len(rows))]
	}
	for i, size := 0, int64(0); a.Bytes > 0 && i < len(rows); i++ {
		if size += driver.RowSize(rows[i]); size > a.Bytes && i > 0 {
			return rows[:i+1]
		}
	}
	return rows
}

func measure(c *driver.Collection, members []driver.Document, m driver.Measure) any {
	if m.Op == driver.Count {
		return int64(len(members))
	}
	var numbers, ordered, different []any
	for _, d := range members {
		v := value(c, d, m.Ref)
		if class(v) == 1 {
			numbers = append(numbers, v)
		}
		want := 1
		if m.Ref.Type == driver.String || m.Ref.Type == driver.Date {
			want = 2
		}
		if class(v) == want && m.Ref.Type != driver.Bool {
			ordered = append(ordered, v)
		}
		equal := func(d any) bool { n, ok := compare(d, v); return ok && n == 0 }
		if v != nil && !slices.ContainsFunc(different, equal) {
			different = append(different, v)
		}
	}
	switch {
	case m.Op == driver.Distinct:
		return int64(len(different))
	case m.Op == driver.Min && len(ordered) > 0:
		return slices.MinFunc(ordered, order)
	case m.Op == driver.Max && len(ordered) > 0:
		return slices.MaxFunc(ordered, order)
	case m.Op == driver.Min || m.Op == driver.Max || len(numbers) == 0:
		return nil
	}
	sum := new(big.Float).SetPrec(200)
	for _, n := range numbers {
		sum.Add(sum, number(n))
	}
	total, _ := sum.Float64()
	if m.Op == driver.Avg {
		return total / float64(len(numbers))
	}
	return total
}
