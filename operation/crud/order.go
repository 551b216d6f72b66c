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
	"tenantry/operation"
	"tenantry/operation/filters"
)

// sortable returns the fields that a list can be sorted by: the identifier, where answers show it, those with an index
// that begins with them, whether it tells deleted records apart, and those of a definition that is named, or not, and
// few.
func sortable(of *record.Resource, definition string, few []string) []string {
	var names []string
	if _, ok := of.Index("id"); ok {
		names = []string{"id"}
	}
	for i := range of.Fields {
		name := of.Stored(of.Fields[i].Name)
		if !asked(&of.Fields[i]) || notation(&of.Fields[i]) == filters.List {
			continue
		}
		if slices.Contains(few, of.Fields[i].Name) {
			names = append(names, of.Fields[i].Name)
		}
		for _, index := range of.Records.Spec().Indexes {
			fields := slices.DeleteFunc(slices.Clone(index.Fields), func(f string) bool { return f == "deleted" || f == definition })
			if len(fields) > 0 && fields[0] == name && !slices.Contains(names, of.Fields[i].Name) {
				names = append(names, of.Fields[i].Name)
			}
		}
	}
	return names
}

// step is one field of an order.
type step struct {
	name         string
	*field.Field // nil of one that the organization defined
	store.Order
}

// mostSorts bounds the fields of an order: a cursor makes conditions of each with all before it.
const mostSorts = 8

// ordering says which fields a list can be sorted by, and wrongSort that it was asked for otherwise.
func (s *handlers) ordering() string {
	names := strings.Join(s.sorts, ", ")
	if s.of.DefinedBy != "" {
		names += ", or fields of your own that are neither lists nor encrypted"
	}
	return names
}

func (s *handlers) wrongSort() string {
	return fmt.Sprintf("sort must name at most %d fields, each once, with - before one that descends: %s", mostSorts, s.ordering())
}

// sorting takes the parameter sort apart, into fields and whether they descend.
func sorting(text string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for part := range strings.SplitSeq(text, ",") {
			if name, desc := strings.CutPrefix(strings.TrimSpace(part), "-"); text != "" && !yield(name, desc) {
				return
			}
		}
	}
}

// order reads the parameter sort.
func (s *handlers) order(text string, fields catalog, errs *fault.List) (order []step) {
	for name, desc := range sorting(text) {
		o, ok := s.step(name, fields)
		if o.Desc = desc; !ok || len(order) == mostSorts || slices.ContainsFunc(order, func(o step) bool { return o.name == name }) {
			errs.Add("sort", fault.Unknown, "%s", s.wrongSort())
			return nil
		}
		order = append(order, o)
	}
	return order
}

// step returns the order by a field, and whether a list may have it.
func (s *handlers) step(name string, fields catalog) (step, bool) {
	if n, own := s.of.Index(name); own {
		return step{name, &s.of.Fields[n], store.Asc(s.of.Stored(name))}, slices.Contains(s.sorts, name)
	}
	f, ok := fields.Field(name)
	return step{name: name, Order: store.Order{Field: store.Field{Name: name, Custom: true}}}, ok && f.Notation != filters.Secret && f.Notation != filters.List
}

// descends reports whether records that are alike in all that an order names are in the reverse order of their
// identifiers: an index that is read backwards has them so.
func descends(order []step) bool {
	return len(order) > 0 && order[len(order)-1].Desc && !slices.ContainsFunc(order, func(o step) bool { return o.name == "id" })
}

// A cursor is where a page ended: the values that its last record is sorted by, null for one that it
// has not, and its identifier. Where the values are too long there is the identifier alone.
type cursor struct {
	Sort   []string `json:"s"`
	Values []any    `json:"v"`
	ID     string   `json:"id"`
}

// longest is how long a cursor may be that callers send: operation.Following says so.
const longest = 16_000

// in returns the cursor as callers see it.
func (c cursor) in(order []step) string {
	c.sorted(order)
	text, _ := json.Marshal(c) // texts, numbers and booleans
	return base64.RawURLEncoding.EncodeToString(text)
}

// cursorOf reads one.
func cursorOf(text string) (at cursor, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return at, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return at, d.Decode(&at)
}

// whole gives a cursor without values those that its record has now. Of one that is gone, or not of the list, which
// would tell whoever makes cursors up where it was, it stays as it is.
func (s *handlers) whole(ctx context.Context, c *operation.Call, text string, order []step, where store.Filter) (string, error) {
	var wanted cursor
	wanted.sorted(order)
	at, err := cursorOf(text)
	if err != nil || at.Values != nil || len(order) == 0 || !store.ValidID(at.ID) || !slices.Equal(at.Sort, wanted.Sort) {
		return text, nil //nolint:nilerr // what is no cursor is told later
	}
	rec, err := s.of.Collection.First(ctx, s.in(c), store.Query{Filter: store.All(store.Eq("id", at.ID), where), State: store.Either})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return text, nil
	case err != nil:
		return "", err
	}
	return s.cursor(rec, order), nil
}

// sorted notes an order in a cursor.
func (c *cursor) sorted(order []step) {
	for _, o := range order {
		c.Sort = append(c.Sort, map[bool]string{true: "-"}[o.Desc]+o.name)
	}
	if descends(order) {
		c.Sort = append(c.Sort, "-id")
	}
}

func (s *handlers) cursor(last any, order []step) string {
	at := cursor{ID: s.of.Meta(last).ID}
	for _, o := range order {
		at.Values = append(at.Values, s.value(&o, last))
	}
	return at.in(order)
}

// value returns what the store sorts a record by; nil where it has no such value.
func (s *handlers) value(o *step, rec any) any {
	if o.Field == nil {
		switch v := (*s.of.Values(rec))[o.name].(type) {
		case string, bool, json.Number:
			return v
		}
		return nil
	}
	v := reflect.ValueOf(rec).Elem().FieldByIndex(o.Index)
	if v.IsZero() && (v.Kind() == reflect.String || v.Kind() == reflect.Pointer || isTime(o.Field)) {
		return nil // missing, as the store has it
	}
	return reflect.Indirect(v).Interface()
}

// beyond matches what follows a cursor. One of another order, or that was made up, is not ok.
func (s *handlers) beyond(text string, order []step) (_ store.Filter, ok bool) {
	var wanted cursor
	at, err := cursorOf(text)
	wanted.sorted(order)
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
			there, absent = store.Where(o.Order.Field, store.OpFrom, least()), store.Where(o.Order.Field, store.OpBefore, least())
		}
		equal, next := absent, there // what is missing comes first
		switch {
		case value == nil && o.Desc:
			next = store.AnyOf()
		case value != nil && o.Field == nil:
			equal = store.Where(o.Order.Field, store.OpEq, value)
			next = store.All(store.Where(o.Order.Field, store.OpFrom, value), store.Where(o.Order.Field, store.OpNe, value))
			if f, _ := value.(float64); math.IsInf(f, 0) { // which nothing is compared with
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
	return store.All(after, bound(order, at.Values)), true
}

// least is before all values that are not missing: numbers come first, and there is none that is less.
func least() float64 { return math.Inf(-1) }

// bound says again where a range of an index begins, which engines do not see in alternatives.
func bound(order []step, values []any) store.Filter {
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
	if first.Rule.Required || first.Name == "created_at" || first.Name == "updated_at" { // else what is missing follows
		return store.Where(first.Order.Field, store.OpLte, value)
	}
	return store.Filter{}
}

// typed returns a value of a cursor as the store compares it.
func (o *step) typed(v any) (any, bool) {
	if o.Field == nil {
		return placed(v)
	}
	switch n := notation(o.Field); v := v.(type) {
	case string:
		return v, n == filters.Text
	case bool:
		return v, n == filters.Boolean
	case json.Number:
		whole, err := v.Int64()
		return whole, err == nil && (n == filters.Number || n == filters.Time)
	}
	return nil, v == nil
}

// placed returns a custom value as the store compares it.
func placed(v any) (any, bool) {
	switch v := v.(type) {
	case nil, string, bool:
		return v, true
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole, true
		}
		real, err := v.Float64()
		return real, err == nil || errors.Is(err, strconv.ErrRange) // which is as the store has what no float holds
	}
	return nil, false
}
