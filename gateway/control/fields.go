package control

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// as shows a record: the fields of Out have those of the record that are called alike, or as their tag
// from says; times become moments, and lists and maps are never nil.
func as[Out any](record any) (out Out) {
	from, to := reflect.ValueOf(record).Elem(), reflect.ValueOf(&out).Elem()
	for i := range to.NumField() {
		f := to.Type().Field(i)
		name := f.Tag.Get("from")
		if name == "" {
			name = f.Name
		}
		assign(to.Field(i), from.FieldByName(name))
	}
	return out
}

// set gives a record what was sent for it, and returns the names of that in their order. Maps are set
// name by name.
func set[In any](c *call, record any, in *In) (changed []string) {
	from, to := reflect.ValueOf(in).Elem(), reflect.ValueOf(record).Elem()
	for _, f := range c.command.Fields {
		v := from.FieldByIndex(f.Index)
		into := to.FieldByName(from.Type().FieldByIndex(f.Index).Name)
		if !c.Body.Has(f.Name) || !into.IsValid() || f.Tag.Get("arg") != "" { // an argument names the record
			continue
		}
		v = reflect.Indirect(v)
		if v.Kind() == reflect.Map && !into.IsNil() {
			for _, name := range v.MapKeys() {
				into.SetMapIndex(name, v.MapIndex(name))
			}
		} else {
			assign(into, v)
		}
		changed = append(changed, f.Name)
	}
	return changed
}

// assign sets one field of a record to another, as far as they go together.
func assign(to, from reflect.Value) {
	switch t := to.Type(); {
	case !from.IsValid():
	case from.CanInt() && t == reflect.TypeFor[time.Time]():
		to.Set(reflect.ValueOf(when(from.Int())))
	case from.CanInt() && t == reflect.TypeFor[*time.Time]():
		if at := when(from.Int()); !from.IsZero() {
			to.Set(reflect.ValueOf(&at))
		}
	case from.Kind() == reflect.Slice && t.Kind() == reflect.Slice:
		to.Set(reflect.MakeSlice(t, from.Len(), from.Len()))
		for i := range from.Len() {
			to.Index(i).Set(from.Index(i).Convert(t.Elem()))
		}
	case from.Kind() == reflect.Map && from.IsNil():
		to.Set(reflect.MakeMap(t))
	case from.CanConvert(t):
		to.Set(from.Convert(t))
	}
}

// when turns a stored time into one that is shown.
func when(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// shown is as for what may not be there.
func shown[Out, T any](record *T, err error) (out Out, _ error) {
	if err == nil {
		out = as[Out](record)
	}
	return out, err
}

// each shows the records of a list.
func each[Out, T any](records []T) []Out {
	out := make([]Out, len(records))
	for i := range records {
		out[i] = as[Out](&records[i])
	}
	return out
}

// Page asks for a part of an organization's list.
type Page struct {
	Org    string `json:"org" rule:"ref=organization"`
	Limit  int    `json:"limit,omitempty" default:"100" doc:"at most <n>"`
	Offset int    `json:"offset,omitempty" doc:"leave out the first <n>"`
}

// pager returns a part of a list, and how many records the whole has.
type pager[T any] = func(context.Context, *tenants.Tenant, identity.Page) ([]T, int64, error)

// list returns the handler that shows a part of a list.
func list[Out, T any](all pager[T]) func(context.Context, *call, Page) ([]Out, error) {
	return func(ctx context.Context, c *call, in Page) ([]Out, error) {
		found, err := pageOf(ctx, c, in, all)
		return each[Out](found), err
	}
}

// pageOf returns the part of a list that is asked for, and says how to go on where there is more.
func pageOf[T any](ctx context.Context, c *call, in Page, all pager[T]) ([]T, error) {
	found, total, err := all(ctx, c.Tenant, identity.Page{Limit: pageLimit(in.Limit), Offset: in.Offset})
	if next := in.Offset + len(found); total > int64(next) {
		c.say(fmt.Sprintf("There are more; go on with --offset %d", next))
	}
	return found, err
}

// pageLimit bounds a list; one more is asked for to learn whether there are others.
func pageLimit(asked int) int {
	const most = store.MaxLimit - 1
	if asked <= 0 || asked > most {
		return most
	}
	return asked
}
