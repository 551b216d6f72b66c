package reports

import (
	"context"
	"slices"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// keepRows are those with which reports are listed, made and changed.
func (m *Module) keepRows() []operation.Row {
	example, _ := m.getOperation().Example.(Configuration)
	rows := crud.Rows(m.Reports.Resource, crud.Options{
		Path: "/api/custom-reports", Name: "reports", Things: "Custom Reports", Tag: tag, Search: []string{"title"},
		Read: operation.Needs(tenants.ManageReports), Write: operation.Needs(tenants.ManageReports),
		Also: crud.Also(m.fits), Before: crud.Before(m.before), Example: example,
		Show: crud.Show(func(ctx context.Context, c *operation.Call, all []*Report) ([]any, error) {
			shown, err := m.shown(ctx, c, all...)
			out := make([]any, len(all))
			for i := range shown {
				out[i] = *shown[i]
			}
			return out, err
		}),
		Get: crud.Absent(), Create: crud.Action{Types: written()}, Update: crud.Action{Types: written()},
	})
	return append(rows, m.rowsRows()...)
}

// written are the types of fields of a report that is sent.
func written() map[string]any { return map[string]any{"query": Query{}, "input": map[string]Input{}} }

// before refuses a caller who is limited to teams where the report, or a child of it, shows more than those,
// before the change or after it, and voids the tokens of a report that is purged.
func (m *Module) before(ctx context.Context, c *operation.Call, _ *store.Preconditions, rec, was *Report) error {
	both := slices.DeleteFunc([]*Report{was, rec}, func(r *Report) bool { return r == nil })
	switch entitled, err := m.entitled(ctx, c, both...); {
	case err != nil:
		return err
	case slices.Contains(entitled, false):
		return showsMore("made or changed")
	case rec != nil:
		return nil
	}
	if err := m.RevokeAll(ctx, c.Tenant, was.PID); err != nil { // another report may get the address
		return err
	}
	return crud.Clear(ctx, m.Issued.In(c.Workspace), store.Eq("report", was.ID))
}

// fits notes what does not fit the organization's data.
func (m *Module) fits(ctx context.Context, c *operation.Call, rec, _ *Report, errs *fault.List) error {
	return m.Check(ctx, c.Tenant, c.Workspace, rec, errs)
}
