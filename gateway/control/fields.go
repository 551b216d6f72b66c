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

// viewOf returns a record as commands show it: a field of Out has the value of the field of record with the same name,
// or the name in its tag from. Times become time.Time, and lists and maps are never nil.
func viewOf[Out any](record any) (out Out) {
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

// apply sets the fields of record that were sent in the request, and returns their names in order. A map is merged
// entry by entry.
func apply[In any](c *call, record any, in *In) (changed []string) {
	from, to := reflect.ValueOf(in).Elem(), reflect.ValueOf(record).Elem()
	for _, f := range c.command.Fields {
		v := from.FieldByIndex(f.Index)
		into := to.FieldByName(from.Type().FieldByIndex(f.Index).Name)
		argument := f.Tag.Get("arg") != "" // it names the record, and changes nothing
		if !c.Body.Has(f.Name) || !into.IsValid() || argument {
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

// assign sets a field to the value of another, converted if their types differ. It does nothing if they cannot be
// converted.
func assign(to, from reflect.Value) {
	switch t := to.Type(); {
	case !from.IsValid():
	case from.CanInt() && t == reflect.TypeFor[time.Time]():
		to.Set(reflect.ValueOf(timeOf(from.Int())))
	case from.CanInt() && t == reflect.TypeFor[*time.Time]():
		if at := timeOf(from.Int()); !from.IsZero() {
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

// timeOf converts a stored time, in Unix milliseconds.
func timeOf(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// viewResult returns the view of a record, unless err is set.
func viewResult[Out, T any](record *T, err error) (out Out, _ error) {
	if err == nil {
		out = viewOf[Out](record)
	}
	return out, err
}

// viewsOf returns the views of records.
func viewsOf[Out, T any](records []T) []Out {
	out := make([]Out, len(records))
	for i := range records {
		out[i] = viewOf[Out](&records[i])
	}
	return out
}

// Page asks for a page of a list of an organization.
type Page struct {
	Org    string `json:"org" rule:"ref=organization"`
	Limit  int    `json:"limit,omitempty" default:"100" doc:"at most <n>"`
	Offset int    `json:"offset,omitempty" doc:"leave out the first <n>"`
}

// pager returns a page of a list, and the length of the whole list.
type pager[T any] = func(context.Context, *tenants.Tenant, identity.Page) ([]T, int64, error)

// list returns the handler that shows a page of a list.
func list[Out, T any](all pager[T]) func(context.Context, *call, Page) ([]Out, error) {
	return func(ctx context.Context, c *call, in Page) ([]Out, error) {
		found, err := pageOf(ctx, c, in, all)
		return viewsOf[Out](found), err
	}
}

// pageOf returns a page of a list. If there are more records, it adds a note that says how to get them.
func pageOf[T any](ctx context.Context, c *call, in Page, all pager[T]) ([]T, error) {
	found, total, err := all(ctx, c.Tenant, identity.Page{Limit: pageLimit(in.Limit), Offset: in.Offset})
	if next := in.Offset + len(found); total > int64(next) {
		c.addNote(fmt.Sprintf("There are more; go on with --offset %d", next))
	}
	return found, err
}

// pageLimit bounds the length of a page to one less than the limit of the store, because callers ask for one more
// record to see whether there are more.
func pageLimit(asked int) int {
	const limit = store.MaxLimit - 1
	if asked <= 0 || asked > limit {
		return limit
	}
	return asked
}
