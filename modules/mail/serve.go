package mail

import (
	"context"

	"tenantry/operation"
	"tenantry/operation/crud"
)

// Nobody is what answers and pages say if the installation sends no mail.
const Nobody = "Nobody is mailed: the operator of this installation has not set mail.url"

// Operations returns the rows.
func (m *Module) Operations() []operation.Row {
	return append(crud.Rows(m.Mails.Resource, crud.Options{
		Path: "/api/mails", Things: "Mails", Tag: "Mails", Read: operation.AdminOnly("Manage Organization"),
		Write: operation.AdminOnly("Manage Organization"), Sort: "-created_at,-id",
		List: crud.Action{
			Around: m.orNobody,
			Docs: operation.Docs{Description: "The mails of the last seven days: to whom, what about, and what became of them. " +
				"If the installation sends no mail, the header X-Warning says so."},
		},
		Create: crud.Absent(), Update: crud.Absent(), Delete: crud.Absent(),
	}), m.unsubscribeOperation())
}

// orNobody makes a list say if nobody is mailed.
func (m *Module) orNobody(list operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		if !m.On() {
			c.Warn(Nobody)
		}
		return list(ctx, c)
	}
}
