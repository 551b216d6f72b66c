package crud

import (
	"cmp"
	"context"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/operation"
)

// Resolve lets a parameter of the row's path name a record by its identifier or by its unique name
// (record.Traits.Called). The handler gets the one that references use; that one also takes precedence if the text
// matches both. of is only called during calls, when all resources are defined.
func Resolve(row *operation.Row, param string, of func() *record.Resource) {
	handler := row.Handler
	row.Handler = func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		if err := resolve(ctx, c, param, of()); err != nil {
			return operation.Result{}, err
		}
		return handler(ctx, c)
	}
}

func resolve(ctx context.Context, c *operation.Call, param string, of *record.Resource) error {
	text := c.Path(param)
	if of == nil || text == "" {
		return nil
	}
	other := of.Called
	if of.Key != "" {
		other = "id"
	}
	if other == "" || (other == "id") != store.ValidID(text) {
		return nil
	}
	ws := c.Workspace
	if of.Control {
		ws = c.Tenant.People()
	}
	which := store.AnyOf(store.Eq(of.Stored(cmp.Or(of.Key, "id")), text), store.Eq(cmp.Or(of.Stored(other), other), text))
	found, err := of.Records.Find(ctx, ws, store.Query{Filter: which, State: store.Either, Limit: 2})
	if err != nil {
		return err
	}
	for _, rec := range found {
		if of.Identity(rec) == text {
			return nil
		}
	}
	if len(found) > 0 {
		c.Rename(param, of.Identity(found[0]))
	}
	return nil
}

// resolve applies Resolve to a row whose path names a record of the resource, or its definition.
func (s *handlers) resolve(row *operation.Row) {
	if strings.Contains(row.Path, "{"+s.param+"}") && !s.of.Single {
		Resolve(row, s.param, func() *record.Resource { return s.of })
	}
	if s.parent != "" {
		Resolve(row, s.parent, s.of.Definer)
	}
}
