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

// recordRows returns the rows by which reports are listed, created and changed.
func (m *Module) recordRows() []operation.Row {
	example, _ := m.getOperation().Example.(Configuration)
	rows := crud.Rows(m.Reports.Resource, crud.Options{
		Path: "/api/custom-reports", Name: "reports", Things: "Custom Reports", Tag: tag, Search: []string{"title"},
		Read: operation.Needs(tenants.ManageReports), Write: operation.Needs(tenants.ManageReports),
		Check: crud.Check(m.checkData), Before: crud.Before(m.before), Example: example,
		List: crud.Action{Target: operation.Target{Concerns: m.concerns}},
		Show: crud.Show(func(ctx context.Context, c *operation.Call, all []*Report) ([]any, error) {
			shown, err := m.shown(ctx, c, all...)
			out := make([]any, len(all))
			for i := range shown {
				out[i] = *shown[i]
			}
			return out, err
		}),
		Get: crud.Absent(), Create: crud.Action{Types: bodyTypes()}, Update: crud.Action{Types: bodyTypes()},
	})
	return append(rows, m.rowsRows()...)
}

// bodyTypes are the types of fields in the body of a report.
func bodyTypes() map[string]any { return map[string]any{"query": Query{}, "input": map[string]Input{}} }

// before refuses a caller who is limited to teams if the report or a child shows more than these, before or after the
// change. It voids the tokens of a report that is purged.
func (m *Module) before(ctx context.Context, c *operation.Call, _ *store.Preconditions, rec, was *Report) error {
	both := slices.DeleteFunc([]*Report{was, rec}, func(r *Report) bool { return r == nil })
	switch entitled, err := m.entitled(ctx, c.Tenant, c.Principal, both...); {
	case err != nil:
		return err
	case slices.Contains(entitled, false):
		return showsMore("made or changed")
	case rec != nil:
		return nil
	}
	if err := m.RevokeAll(ctx, c.Tenant, was.PID); err != nil { // another report may get the same address
		return err
	}
	return crud.Clear(ctx, m.Issued.In(c.Workspace), store.Eq("report", was.ID))
}

// checkData notes what does not fit the organization's data.
func (m *Module) checkData(ctx context.Context, c *operation.Call, rec, _ *Report, errs *fault.List) error {
	return m.Check(ctx, c.Tenant, c.Workspace, rec, errs)
}

// concerns returns the reports that everybody can read who has their address.
func (m *Module) concerns(ctx context.Context, c *operation.Call, most int) (operation.Concerns, error) {
	open := store.All(store.Eq("secure", false), store.Where(store.F("shareable"), store.OpNe, false))
	query := store.Query{Filter: open, Limit: most, Bytes: operation.PageBytes}
	page, count, err := m.Reports.In(c.Workspace).Page(ctx, query, open)
	all := operation.Concerns{Count: count}
	for _, r := range page.Records {
		all.First = append(all.First, operation.Concern{ID: r.ID, Name: r.Title, Cause: operation.OpenToAll})
	}
	return all, err
}
