package crud

import (
	"context"
	"reflect"

	"tenantry/backends/store"
	"tenantry/operation"
)

// Action says how the row of one action differs from the row that crud makes of the resource. Members that are set
// replace those of the row, except that Params, Body and Failures are appended.
type Action struct {
	operation.Policy
	operation.Request
	operation.Response
	operation.Target
	operation.Docs

	// Lead precedes the description of the row.
	Lead string
	// Types are types of fields of the body, by name; see operation.Row.Redeclare.
	Types map[string]any
	// Around, if set, wraps the handler of the action. A unique name in the path is resolved to the record before.
	Around func(operation.Handler) operation.Handler

	absent bool
}

// Only returns an Action.Around that narrows a list or an export to the records that match the filter of which, besides
// the filters of the caller. which may read the store, and writes nothing. It is called once the parameters of the list
// have been read, so faults of these are answered before an error of which.
func Only(
	which func(context.Context, *operation.Call) (store.Filter, error),
) func(operation.Handler) operation.Handler {
	return func(list operation.Handler) operation.Handler {
		return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
			c.Narrow = append(c.Narrow, which)
			return list(ctx, c)
		}
	}
}

// Absent leaves the row of an action out.
func Absent() Action { return Action{absent: true} }

// apply changes the row as the action says.
func (a *Action) apply(row *operation.Row) {
	description := row.Description
	overlay(&row.Policy, a.Policy)
	overlay(&row.Request, a.Request)
	overlay(&row.Response, a.Response)
	overlay(&row.Target, a.Target)
	overlay(&row.Docs, a.Docs)

	if a.Lead != "" {
		row.Description = a.Lead + " " + description
	}
	for name, as := range a.Types {
		row.Redeclare(name, as)
	}
	if a.Around != nil {
		row.Handler = a.Around(row.Handler)
	}
}

// overlay sets the fields of to that are not zero in with, and appends its slices of structs.
func overlay[T any](to *T, with T) {
	dst, src := reflect.ValueOf(to).Elem(), reflect.ValueOf(with)
	for i := range src.NumField() {
		switch field := src.Field(i); {
		case field.IsZero():
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			all := reflect.MakeSlice(field.Type(), 0, dst.Field(i).Len()+field.Len())
			dst.Field(i).Set(reflect.AppendSlice(reflect.AppendSlice(all, dst.Field(i)), field))
		default:
			dst.Field(i).Set(field)
		}
	}
}

// actions maps the names of rows to the actions that pages treat specially.
func actions() map[string]operation.Action {
	return map[string]operation.Action{
		"list": operation.ListAction, "create": operation.CreateAction, "restore": operation.RestoreAction,
		"purge": operation.PurgeAction, "bulk": operation.BulkAction,
	}
}
