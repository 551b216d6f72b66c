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

// definitions are the rows of contact fields.
func (m *Module) definitions() []operation.Row {
	forced := crud.Action{
		Request: operation.Request{Params: []operation.Param{{
			Name: "force", In: operation.InQuery, Shape: operation.Boolean, Default: "false", Example: "true",
			Description: "Carries the change out although campaigns or custom reports ask for the field, or contacts have values that may not be of its new type. Values are neither encrypted nor decrypted by that, whatever is forced.",
			Ask:         operation.Ask{Label: "Even where it breaks something", Hint: "Campaigns or reports may ask for the field, or contacts have values of another type."},
		}}},
		Response: operation.Response{Failures: []operation.Failure{{
			Code: http.StatusUnprocessableEntity, Message: "Validation failed: 2 campaigns could not be counted any more; force=true changes it all the same",
			When: "the change would break campaigns, custom reports or values, and is not forced",
		}}},
	}
	ended := forced
	ended.Timeout = crud.ClearTimeout
	ended.Lead = "Values that contacts have of the field are hidden until it is restored; a purge erases them, 50,000 in one call: 409 asks for the next."
	return crud.Rows(m.Fields.Resource, crud.Options{
		Path: "/api/contacts/fields", Name: "contact_fields", Things: "Contact Fields", Tag: "Contacts", Search: []string{"key", "title"},
		Read: operation.Needs(tenants.Contacts), Write: operation.Needs(tenants.Contacts), Before: crud.Before(m.keep), After: crud.After(m.kept),
		Each: serverFull(), Update: forced, Delete: ended,
	})
}

// serverFull lets keys read contacts only if they may also write: personal data is kept from read-only keys.
func serverFull() crud.Action {
	return crud.Action{Policy: operation.Policy{Kinds: operation.ServerFull}}
}

// keep refuses what would leave values of contacts behind: in clear under an encrypted field, sealed where nobody
// can read them, or of another type unless that is forced; and, unless it is forced, what would
// break campaigns or reports. The values of a field that is purged it erases.
func (m *Module) keep(ctx context.Context, c *operation.Call, _ *store.Preconditions, def, was *FieldDef) error {
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
	if !gone { // else with its values, which are hidden until it is restored, and erased where it is purged
		if err := m.typed(ctx, all, def, was, force, &errs); err != nil {
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
	return end(cmp.Or(breaks(m.Campaigns, "campaigns", "campaigns", "counted"), breaks(m.Reports, "reports", "custom reports", "run"), errs.Err()))
}

// typed notes that a field must not be of another type while contacts have values of it, unless that is forced. Values
// are never left in clear under an encrypted field, or sealed under another, whatever is forced.
func (m *Module) typed(ctx context.Context, all *store.Workspace, def, was *FieldDef, force bool, errs *fault.List) error {
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

// kept looks once more for values that a change of the field would leave as they must not be.
func (m *Module) kept(ctx context.Context, c *operation.Call, def, was *FieldDef) error {
	var errs fault.List
	if err := m.typed(ctx, c.Tenant.Workspace(), def, was, true, &errs); err != nil {
		return err
	}
	return errs.Err()
}

// erase takes from contacts the values of a field that is about to be purged. The field is deleted first, so that
// nobody gives it values meanwhile. What is too much for one call is a 409, and the next one goes on. Contacts that the
// caller may not see keep theirs, and crud refuses the purge then.
func (m *Module) erase(ctx context.Context, c *operation.Call, was *FieldDef) error {
	ws := c.Entitled()
	if !was.Deleted {
		was.Deleted = true
		if err := m.Fields.In(ws).Replace(ctx, was); err != nil {
			return err
		}
	}
	in := m.Contacts.In(ws)
	if was.Type == schema.Encrypted { // no question can name who has a secret
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

// sweep erases the secrets of a field, batch by batch.
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
