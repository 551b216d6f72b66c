package contacts

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// definitions returns the rows of contact fields.
func (m *Module) definitions() []operation.Row {
	forced := crud.Action{
		Request: operation.Request{Params: []operation.Param{{
			Name: "force", In: operation.InQuery, Shape: operation.Boolean, Default: "false", Example: "true",
			Description: "Makes the change even if campaigns or custom reports use the field, or contacts have values that " +
				"may not fit the new type. A change that would have to encrypt or decrypt values is refused in any case.",
			Ask: operation.Ask{
				Label: "Even if it breaks something",
				Hint:  "Campaigns or reports may use the field, or contacts may have values of another type.",
			},
		}}},
		Response: operation.Response{Failures: []operation.Failure{{
			Code: http.StatusUnprocessableEntity, Message: "Validation failed: 2 campaigns could not be counted any more; force=true changes it all the same",
			When: "the change would break campaigns, custom reports or values, and is not forced",
		}}},
	}
	ended := forced
	ended.Timeout = crud.ClearTimeout
	ended.Lead = "The values of the field are hidden until it is restored. A purge erases them, at most 50,000 in one " +
		"call; a 409 asks to repeat the call for the rest."
	return crud.Rows(m.Fields.Resource, crud.Options{
		Path: "/api/contacts/fields", Name: "contact_fields", Things: "Contact Fields", Tag: "Contacts", Search: []string{
			"key", "title",
		},
		Read: operation.Needs(tenants.Contacts), Write: operation.Needs(tenants.Contacts), Before: crud.Before(m.checkChange), After: crud.After(m.recheckChange),
		Each: serverFull(), Update: forced, Delete: ended,
	})
}

// serverFull admits only keys that may also write, because read-only keys must not read personal data.
func serverFull() crud.Action {
	return crud.Action{Policy: operation.Policy{Kinds: operation.ServerFull}}
}

// checkChange refuses changes of a field that would leave invalid values in contacts: in clear under an encrypted
// field, sealed under another type or, unless the change is forced, of another type. Unless it is forced, it also
// refuses changes that would break campaigns or reports. When a field is purged it erases its values.
func (m *Module) checkChange(ctx context.Context, c *operation.Call, _ *store.Preconditions, def, was *FieldDef) error {
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
		after[def.Key] = def.field()
	}
	if !gone { // a deleted field keeps its hidden values, and a purge erases them
		if err := m.checkType(ctx, all, def, was, force, &errs); err != nil {
			return err
		}
	}
	end := func(err error) error {
		if err == nil && def == nil {
			err = m.erase(ctx, c, was)
		}
		return err
	}
	if force || was.Deleted {
		return end(errs.Err())
	}
	breaks := func(by schema.Dependents, field, things, what string) error {
		broken, err := schema.Breaks(ctx, by, all, c.Workspace, m.Fields.Name, "", before, after)
		broken.Refuse(&errs, field, things, what)
		return err
	}
	return end(cmp.Or(
		breaks(m.Campaigns, "campaigns", "campaigns", "counted"), breaks(m.Reports, "reports", "custom reports", "run"),
		errs.Err(),
	))
}

// checkType notes that a field cannot change its type while contacts have values of it, unless that is forced. A
// change to or from an encrypted type is never allowed then, because values must not be left in clear, or sealed under
// another type.
func (m *Module) checkType(
	ctx context.Context, all *store.Workspace, def, was *FieldDef, force bool, errs *fault.List,
) error {
	says := "type cannot be changed while contacts have values of the field: force=true changes it all the same"
	if schema.Reseals(was.Type, def.Type) {
		says = "type cannot become or stop being " + schema.Encrypted + " while contacts have values of the field"
	} else if force || def.Type == was.Type {
		return nil
	}
	has, err := m.Contacts.HasValue(ctx, all, store.Filter{}, was.Key, was.Type)
	if has {
		errs.Add("type", fault.Forbidden, "%s", says)
	}
	return err
}

// recheckChange looks for values that were stored before the change of their field was visible.
func (m *Module) recheckChange(ctx context.Context, c *operation.Call, def, was *FieldDef) error {
	var errs fault.List
	if err := m.checkType(ctx, c.Tenant.Workspace(), def, was, true, &errs); err != nil {
		return err
	}
	return errs.Err()
}

// erase removes the values of a field that is about to be purged from contacts. The field is deleted first, so that no
// values are added meanwhile. If there are too many for one call the error is a 409, and the next call continues.
// Contacts that the caller may not see keep their values, and crud then refuses the purge.
func (m *Module) erase(ctx context.Context, c *operation.Call, was *FieldDef) error {
	ws := c.Entitled()
	if !was.Deleted {
		was.Deleted = true
		if err := m.Fields.In(ws).Replace(ctx, was); err != nil {
			return err
		}
	}
	in := m.Contacts.In(ws)
	if was.Type == schema.Encrypted { // secrets cannot be queried
		return m.sweep(ctx, in, was.Key)
	}
	has := store.Where(store.Field{Name: was.Key, Custom: true}, store.OpExists, true)
	return crud.Drain(ctx, in, has, store.Either, func(recs []*Contact) error {
		ids := make([]string, len(recs))
		for i, c := range recs {
			delete(c.Fields, was.Key)
			ids[i] = c.ID
		}
		if err := ws.NotifyEnd(ctx, ids...); err != nil {
			return err
		}
		return in.Replace(ctx, recs...)
	})
}

// sweep erases the secrets of a field in batches.
func (m *Module) sweep(ctx context.Context, in store.Collection[Contact], key string) error {
	return in.EachBatch(ctx, store.Filter{}, store.Either, func(some []*Contact) error {
		some = slices.DeleteFunc(some, func(c *Contact) bool { return c.Secrets[key] == "" })
		for _, c := range some {
			delete(c.Secrets, key)
		}
		for len(some) > 0 {
			n := in.Portion(some)
			if err := in.Replace(ctx, some[:n]...); err != nil {
				return err
			}
			some = some[n:]
		}
		return nil
	})
}
