package crud

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
)

// sortable returns the fields that a list can be sorted by: the identifier if answers show it, the fields that an
// index begins with (after the deleted flag and the definition), and few.
func sortable(of *record.Resource, definition string, few []string) []string {
	var names []string
	if _, ok := of.Index("id"); ok {
		names = []string{"id"}
	}
	for i := range of.Fields {
		ref, ok := filterable(of, &of.Fields[i])
		if !ok || ref.Type == store.TypeStrings {
			continue
		}
		if slices.Contains(few, of.Fields[i].Name) {
			names = append(names, of.Fields[i].Name)
		}
		for _, index := range of.Records.Spec().Indexes {
			fields := slices.DeleteFunc(slices.Clone(index.Fields), func(f string) bool { return f == "deleted" || f == definition })
			if len(fields) > 0 && fields[0] == ref.Name && !slices.Contains(names, of.Fields[i].Name) {
				names = append(names, of.Fields[i].Name)
			}
		}
	}
	return names
}

// sortStep is one field of an order.
type sortStep struct {
	name         string
	*field.Field // nil for a field that the organization defined
	store.Order
}

// mostSorts bounds the fields of an order, because a cursor makes conditions of each field with all before it.
const mostSorts = 8

// ordering lists the fields that a list can be sorted by.
func (s *handlers) ordering() string {
	names := strings.Join(s.sorts, ", ")
	if s.of.DefinedBy != "" {
		names += ", or fields of your own that are neither lists nor encrypted"
	}
	return names
}

// wrongSort is the message for an invalid sort.
func (s *handlers) wrongSort() string {
	return fmt.Sprintf(
		"sort must name at most %d fields, each once, with - before it for descending order: %s", mostSorts,
		s.ordering(),
	)
}

// parseSort splits the parameter sort into fields and whether they descend.
func parseSort(text string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for part := range strings.SplitSeq(text, ",") {
			if name, desc := strings.CutPrefix(strings.TrimSpace(part), "-"); text != "" && !yield(name, desc) {
				return
			}
		}
	}
}

// order reads the parameter sort.
func (s *handlers) order(text string, fields catalog, errs *fault.List) (order []sortStep) {
	for name, desc := range parseSort(text) {
		o, ok := s.step(name, fields)
		wrong := ""
		switch {
		case !ok:
			wrong = fmt.Sprintf("; %q is not one of them", texts.Clip(name))
		case slices.ContainsFunc(order, func(o sortStep) bool { return o.name == name }):
			wrong = fmt.Sprintf("; %q is given twice", texts.Clip(name))
		}
		if wrong != "" || len(order) == mostSorts {
			errs.Add("sort", fault.Unknown, "%s%s", s.wrongSort(), wrong)
			return nil
		}
		o.Desc = desc
		order = append(order, o)
	}
	return order
}

// step returns the order by a field, and whether a list can be sorted by it.
func (s *handlers) step(name string, fields catalog) (sortStep, bool) {
	if n, own := s.of.Index(name); own {
		ref, _ := s.of.Ref(name)
		return sortStep{name, &s.of.Fields[n], store.Order{Field: ref}}, slices.Contains(s.sorts, name)
	}
	f, ok := fields.Field(name)
	return sortStep{
		name: name, Order: store.Order{Field: store.Field{Name: name, Custom: true}},
	}, ok && !f.Secret && f.Ref.Type != store.TypeStrings
}

// descends reports whether records with equal values are in the reverse order of their identifiers, which is the order
// of an index that is read backwards.
func descends(order []sortStep) bool {
	return len(order) > 0 && order[len(order)-1].Desc && !slices.ContainsFunc(
		order, func(o sortStep) bool { return o.name == "id" },
	)
}

// cursor is the position where a page ended: the values that its last record is sorted by, null for missing ones, and
// its identifier. Values that are too long are left out.
type cursor struct {
	Sort   []string `json:"s"`
	Values []any    `json:"v"`
	ID     string   `json:"id"`
}

// maxCursor is the longest cursor that callers may send; operation.Following has the same bound.
const maxCursor = 16_000

// encode returns the cursor as callers see it.
func (c cursor) encode(order []sortStep) string {
	c.setSort(order)
	text, _ := json.Marshal(c) // cannot fail for texts, numbers and booleans
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseCursor reads a cursor.
func parseCursor(text string) (at cursor, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return at, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return at, d.Decode(&at)
}

// completeCursor adds to a cursor without values the current values of its record. If that record is gone or not of
// the list, the cursor stays unchanged, because a forged cursor must not reveal where a record is.
func (s *handlers) completeCursor(
	ctx context.Context, c *operation.Call, text string, order []sortStep, where store.Filter,
) (string, error) {
	var wanted cursor
	wanted.setSort(order)
	at, err := parseCursor(text)
	if err != nil || at.Values != nil || len(order) == 0 || !store.ValidID(at.ID) || !slices.Equal(at.Sort, wanted.Sort) {
		return text, nil //nolint:nilerr // an invalid cursor is reported later
	}
	rec, err := s.of.Collection.First(ctx, s.workspace(c), store.Query{
		Filter: store.All(store.Eq("id", at.ID), where), State: store.Either,
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return text, nil
	case err != nil:
		return "", err
	}
	return s.cursor(rec, order), nil
}

// setSort notes the order in the cursor.
func (c *cursor) setSort(order []sortStep) {
	for _, o := range order {
		c.Sort = append(c.Sort, map[bool]string{true: "-"}[o.Desc]+o.name)
	}
	if descends(order) {
		c.Sort = append(c.Sort, "-id")
	}
}

func (s *handlers) cursor(last any, order []sortStep) string {
	at := cursor{ID: s.of.Meta(last).ID}
	for _, o := range order {
		at.Values = append(at.Values, s.value(&o, last))
	}
	return at.encode(order)
}

// value returns the value that the store sorts a record by; nil if it is missing.
func (s *handlers) value(o *sortStep, rec any) any {
	if o.Field == nil {
		switch v := (*s.of.Values(rec))[o.name].(type) {
		case string, bool, json.Number:
			return v
		}
		return nil
	}
	v := reflect.ValueOf(rec).Elem().FieldByIndex(o.Index)
	if v.IsZero() && (v.Kind() == reflect.String || v.Kind() == reflect.Pointer || isTime(o.Field)) {
		return nil // missing, as in the store
	}
	return reflect.Indirect(v).Interface()
}

// afterCursor matches the records after a cursor; ok is false if the cursor is malformed or of another order.
func (s *handlers) afterCursor(text string, order []sortStep) (_ store.Filter, ok bool) {
	var wanted cursor
	at, err := parseCursor(text)
	wanted.setSort(order)
	if err != nil || !store.ValidID(at.ID) || !slices.Equal(at.Sort, wanted.Sort) || len(at.Values) != len(order) {
		return store.AnyOf(), false
	}
	var same, steps []store.Filter
	for i, o := range order {
		value, ok := o.typed(at.Values[i])
		if !ok {
			return store.AnyOf(), false
		}
		there, absent := store.Where(o.Order.Field, store.OpExists, true), store.Where(o.Order.Field, store.OpExists, false)
		if o.Field == nil {
			there, absent = store.Where(o.Order.Field, store.OpFrom, lowest()), store.Where(o.Order.Field, store.OpBefore, lowest())
		}
		equal, next := absent, there // missing values come first
		switch {
		case value == nil && o.Desc:
			next = store.AnyOf()
		case value != nil && o.Field == nil:
			equal = store.Where(o.Order.Field, store.OpEq, value)
			next = store.All(store.Where(o.Order.Field, store.OpFrom, value), store.Where(o.Order.Field, store.OpNe, value))
			if f, _ := value.(float64); math.IsInf(f, 0) { // engines do not compare values with infinity
				above := map[bool]any{true: "", false: -math.MaxFloat64}[f > 0]
				next = store.Where(o.Order.Field, store.OpFrom, above)
				equal = store.All(store.Where(o.Order.Field, store.OpFrom, value), store.Where(o.Order.Field, store.OpBefore, above))
			}
			if o.Desc {
				next = store.Where(o.Order.Field, store.OpBefore, value)
			}
		case value != nil:
			equal = store.Where(o.Order.Field, store.OpEq, value)
			if next = store.Where(o.Order.Field, store.OpGt, value); o.Desc {
				next = store.AnyOf(store.Where(o.Order.Field, store.OpLt, value), absent)
			}
		}
		steps = append(steps, store.All(append(slices.Clone(same), next)...))
		same = append(same, equal)
	}
	further := store.OpGt
	if descends(order) {
		further = store.OpLt
	}
	after := store.AnyOf(append(steps, store.All(append(same, store.Where(store.F("id"), further, at.ID))...))...)
	return store.All(after, rangeBound(order, at.Values)), true
}

// lowest is less than or equal to every value that is not missing, because numbers come first.
func lowest() float64 { return math.Inf(-1) }

// rangeBound repeats where a range of an index begins, because engines do not see it in alternatives.
func rangeBound(order []sortStep, values []any) store.Filter {
	if len(order) == 0 {
		return store.Filter{}
	}
	first := order[0]
	value, _ := first.typed(values[0])
	if first.Field == nil && value != nil && !first.Desc {
		return store.Where(first.Order.Field, store.OpFrom, value)
	}
	if _, isBool := value.(bool); value == nil || isBool || first.Field == nil {
		return store.Filter{}
	}
	if !first.Desc {
		return store.Where(first.Order.Field, store.OpGte, value)
	}
	if first.Rule.Required || first.Name == "created_at" || first.Name == "updated_at" { // otherwise missing values follow
		return store.Where(first.Order.Field, store.OpLte, value)
	}
	return store.Filter{}
}

// typed returns a value of a cursor as the store compares it.
func (o *sortStep) typed(v any) (any, bool) {
	if o.Field == nil {
		return customValue(v)
	}
	switch t := o.Order.Field.Type; v := v.(type) {
	case string:
		return v, t == store.TypeString
	case bool:
		return v, t == store.TypeBool
	case json.Number:
		whole, err := v.Int64()
		return whole, err == nil && (t == store.TypeInt || t == store.TypeTime)
	}
	return nil, v == nil
}

// customValue returns a value of a defined field as the store compares it.
func customValue(v any) (any, bool) {
	switch v := v.(type) {
	case nil, string, bool:
		return v, true
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole, true
		}
		real, err := v.Float64()
		return real, err == nil || errors.Is(err, strconv.ErrRange) // the store holds numbers beyond the range as infinity, too
	}
	return nil, false
}
