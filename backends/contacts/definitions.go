package contacts

import (
	"cmp"
	"context"
	"net/http"

	"tenantry/backends/api"
	"tenantry/backends/crud"
	"tenantry/backends/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// definitions are the rows of contact fields.
func (m *Module) definitions() []api.Operation {
	rows := crud.Rows(m.Fields, crud.Options[FieldDef]{
		Path: "/api/contacts/fields", Name: "contact_fields", Things: "Contact Fields", Tag: "Contacts", Search: []string{"key"},
		Read: api.Needs(tenants.Contacts), Write: api.Needs(tenants.Contacts), Before: m.keep,
	})
	for i := range rows {
		rows[i].Kinds = api.ServerFull
		if rows[i].Method == http.MethodPut || rows[i].Method == http.MethodDelete {
			rows[i].Params = append(rows[i].Params, api.Param{
				Name: "force", In: api.InQuery, Shape: api.Boolean, Default: "false", Example: "true",
				Description: "Carries the change out although campaigns or custom reports ask for the field, or contacts have values that may not be of its new type. Values are neither encrypted nor decrypted by that, nor left without their field, whatever is forced.",
			})
			rows[i].Failures = append(rows[i].Failures, api.Failure{
				Code: http.StatusUnprocessableEntity, Message: "Validation failed: 2 campaigns could not be counted any more; force=true changes it all the same",
				When: "the change would break campaigns, custom reports or values, and is not forced",
			})
		}
	}
	return rows
}

// keep refuses what would leave values of contacts behind: in clear under an encrypted field, sealed where nobody
// can read them, of another type unless that is forced, or of no field at all; and, unless it is forced, what would
// break campaigns or reports.
func (m *Module) keep(ctx context.Context, c *api.Call, def, was *FieldDef) error {
	gone := def == nil || def.Deleted
	if was == nil || !gone && def.Type == was.Type || def != nil && def.Deleted && was.Deleted {
		return nil
	}
	var errs fault.List
	force, all := c.Query.Bool(&errs, "force", c.Principal.Kind == tenants.System), c.Tenant.Workspace()
	before, err := m.SchemaFields(ctx, all, "")
	if err == nil {
		err = errs.Err()
	}
	if err != nil {
		return err
	}
	after := before.Clone()
	if delete(after, was.Key); !gone {
		after[def.Key] = schema.Field{Title: def.Title, Type: def.Type}
	}
	field, says := "type", ""
	switch {
	case def == nil:
		field, says = "key", "key is that of values that contacts have: take those away before the field is purged"
	case gone: // with its values, until it is restored
	case schema.Reseals(was.Type, def.Type):
		says = "type cannot become or stop being " + schema.Encrypted + " while contacts have values of the field"
	case !force:
		says = "type cannot be changed while contacts have values of the field: force=true changes it all the same"
	}
	if says != "" {
		has, err := m.Contacts.Holds(ctx, all, store.Filter{}, was.Key, was.Type)
		if err != nil {
			return err
		}
		if has {
			errs.Add(field, fault.Forbidden, "%s", says)
		}
	}
	if force || was.Deleted {
		return errs.Err()
	}
	breaks := func(by schema.Dependents, field, things, what string) error {
		broken, err := schema.Breaks(ctx, by, all, c.Workspace, m.Fields.Name, "", before, after)
		broken.Refuse(&errs, field, things, what)
		return err
	}
	return cmp.Or(breaks(m.Campaigns, "campaigns", "campaigns", "counted"), breaks(m.Reports, "reports", "custom reports", "run"), errs.Err())
}
