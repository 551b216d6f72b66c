package reports

import (
	"context"

	"tenantry/backends/api"
	"tenantry/backends/crud"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// keepRows are those with which reports are listed, made and changed.
func (m *Module) keepRows() []api.Operation {
	example, _ := m.getOperation().Example.(Configuration)
	rows := crud.Rows(m.Reports, crud.Options[Report]{
		Path: "/api/custom-reports", Name: "reports", Things: "Custom Reports", Tag: tag, Without: []string{"get"}, Search: []string{"title"},
		Read: api.Needs(tenants.ManageReports), Write: api.Needs(tenants.ManageReports),
		Before: m.before, Example: example,
		Show: func(ctx context.Context, c *api.Call, all []*Report) ([]any, error) {
			out := make([]any, len(all))
			for i, r := range all {
				shown, err := m.get(ctx, c, r, struct{}{})
				if err != nil {
					return nil, err
				}
				out[i] = *shown
			}
			return out, nil
		},
	})
	rows = append(rows, m.rowsRows()...)
	for i := range rows {
		rows[i].Redeclare("query", Query{})
		rows[i].Redeclare("input", map[string]Input{})
	}
	return rows
}

// before refuses what does not fit the organization's data, and a caller who is limited to teams where
// the report, or a child of it, shows more than those, before the change or after it.
func (m *Module) before(ctx context.Context, c *api.Call, rec, was *Report) error {
	var errs fault.List
	for _, r := range []*Report{was, rec} {
		if r == nil {
			continue
		}
		entitled, err := m.entitled(ctx, c, r)
		if err != nil {
			return err
		}
		if !entitled {
			return fault.One("teams", fault.Forbidden, "the report, or a child of it, shows more than your teams; only one that is limited to teams of yours, with its children, can be made or changed by you")
		}
	}
	if rec == nil || rec.Deleted || was != nil && was.Deleted {
		return nil
	}
	if err := m.Check(ctx, c.Tenant, c.Workspace, rec, &errs); err != nil {
		return err
	}
	return errs.Err()
}
