package contacts

import (
	"context"
	"errors"
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
		Read: api.Needs(tenants.Contacts), Write: api.Needs(tenants.Contacts), Before: m.keepValues,
	})
	for i := range rows {
		rows[i].Kinds = api.ServerFull
		if rows[i].Method == http.MethodPut {
			rows[i].Params = append(rows[i].Params, api.Param{
				Name: "force", In: api.InQuery, Shape: api.Boolean, Default: "false", Example: "true",
				Description: "Changes the type although contacts have values, which may not be of the new one. Values are neither encrypted nor decrypted by that, whatever is forced.",
			})
		}
	}
	return rows
}

// keepValues refuses what would leave values of contacts behind: in clear under an encrypted field, sealed
// where nobody can read them, of another type unless that is forced, or of no field at all.
func (m *Module) keepValues(ctx context.Context, c *api.Call, def, was *FieldDef) error {
	if was == nil || def != nil && def.Type == was.Type {
		return nil
	}
	says := "type cannot be changed while contacts have values of the field: force=true changes it all the same"
	switch {
	case def == nil:
		says = "key is that of values that contacts have: take those away before the field is purged"
	case (def.Type == schema.Encrypted) != (was.Type == schema.Encrypted):
		says = "type cannot become or stop being " + schema.Encrypted + " while contacts have values of the field"
	default:
		var errs fault.List
		if force := c.Query.Bool(&errs, "force", false); force || len(errs) > 0 {
			return errs.Err()
		}
	}
	has, err := m.hasValues(ctx, c.Tenant.Workspace(), was)
	if err == nil && has {
		err = fault.One("type", fault.Forbidden, "%s", says)
		if def == nil {
			err = fault.One("key", fault.Forbidden, "%s", says)
		}
	}
	return err
}

var errEnough = errors.New("enough was read")

// hasValues reports whether some contact of the organization, deleted or not, has a value of the field. No
// question can name sealed values, so for those contacts are read until there is one.
func (m *Module) hasValues(ctx context.Context, ws *store.Workspace, def *FieldDef) (bool, error) {
	contacts, has := m.Contacts.In(ws), false
	_, err := contacts.First(ctx, store.Query{Filter: store.Where(store.Field{Name: def.Key, Custom: true}, store.OpExists, true), State: store.Either})
	if !errors.Is(err, store.ErrNotFound) {
		return err == nil, err
	}
	if def.Type != schema.Encrypted {
		return false, nil
	}
	err = contacts.Each(ctx, store.Filter{}, store.Either, func(c *Contact) error {
		if has = c.Secrets[def.Key] != ""; has {
			return errEnough
		}
		return nil
	})
	if has {
		err = nil
	}
	return has, err
}
