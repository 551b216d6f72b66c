package forms

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tenantry/backends/record/field"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
)

// change is an update; nil members stay unchanged.
type change struct {
	name, label, labelPlural *string
	fields                   *schema.Fields
	alerts                   *Alerts
	public                   []*field.Field // the settings of the public form that settings gives
	settings                 Form
}

func (m *Module) update(ctx context.Context, c *operation.Call) (operation.Result, error) {
	var errs fault.List
	ch, ignored := parseChange(c, &errs, nil)
	if len(errs) > 0 {
		form, err := m.changeable(ctx, c)
		if err != nil {
			return operation.Result{}, err
		}
		errs = nil // unknown types that the form already has are allowed
		if ch, ignored = parseChange(c, &errs, form.Schema); len(errs) > 0 {
			return operation.Result{}, errs.Err()
		}
	}
	return m.revise(ctx, c, &ch, ignored, func(form *Form) any { return crud.As[Answer](m.Forms.Resource)(form, c.Tenant) })
}

// changeable returns the form of a call whose body has faults. A missing or standalone form takes precedence over them.
func (m *Module) changeable(ctx context.Context, c *operation.Call) (*Form, error) {
	form, err := m.Forms.In(c.Workspace).Get(ctx, c.Path("id"))
	if err == nil && form.Standalone {
		err = standalone()
	}
	return form, operation.OrMissing(err, missing)
}

// revise makes the change and answers the form as answer shows it. ignored are the parts of the body that the change
// leaves out.
func (m *Module) revise(
	ctx context.Context, c *operation.Call, ch *change, ignored []string, answer func(*Form) any,
) (operation.Result, error) {
	if err := c.IgnoreParts(ignored...); err != nil {
		return operation.Result{}, err
	}
	var wanted, was Form
	var result operation.Result
	form, err := m.Forms.In(c.Workspace).Revise(ctx, c.Path("id"), func(need *store.Preconditions, f *Form) error {
		if f.Standalone {
			return standalone()
		}
		if err := c.Current(f.Rev); err != nil {
			return err
		}
		was = *f
		kept := ch.apply(f)
		f.blind(c, was.EmailAlerts)
		wanted = *f
		if err := c.IgnoreParts(kept...); err != nil {
			return err
		}
		var large fault.List
		if m.Forms.Fits(f, m.Forms.Measure(&was), 0, &large); len(large) > 0 {
			return large.Err()
		}
		if err := m.requireFolders(ctx, c, need, f.Schema, was.Schema); err != nil {
			return err
		}
		return m.checkValues(ctx, c, f, &was)
	}, func(ctx context.Context, b *store.Batch, form *Form) (err error) {
		result, err = c.Commit(ctx, b, func(ctx context.Context) (operation.Result, error) {
			before := was.Fields()
			c.Revision = form.Rev
			c.Note("changed", strings.Join(ch.names(), ","))
			m.warn(ctx, c, form, before)
			if ch.alerts != nil {
				m.warnAlerts(c, form)
			}
			if len(ch.public) > 0 {
				form.warnNames(c, orderWarned, form.FieldOrder)
			}
			c.Warn(form.Schema.Unchecked(before))
			c.Warn(schema.Dropped(ignored))
			return operation.Result{Data: answer(form)}, nil
		})
		return err
	})
	if err != nil {
		return operation.Result{}, operation.OrMissing(m.Forms.Taken(ctx, c.Workspace, &wanted, err), missing)
	}
	// Check again, because submissions may have been stored before the change was visible.
	err = crud.Settle(ctx, c, m.Forms.Resource, form, &was, func(ctx context.Context) error {
		return m.checkValues(ctx, c, form, &was)
	})
	if err != nil {
		return operation.Result{}, err
	}
	return result, nil
}

// checkValues refuses a change that records of other teams depend on, and one that would leave values of submissions
// in clear under an encrypted field, or sealed under another type.
func (m *Module) checkValues(ctx context.Context, c *operation.Call, f, was *Form) error {
	if err := crud.RefuseLimited(ctx, c, m.Forms.Resource, f, was); err != nil {
		return err
	}
	var errs fault.List
	if err := m.Submissions.Resealed(ctx, c.Workspace, f.ID, was.Fields(), f.Schema, &errs); err != nil {
		return err
	}
	return errs.Err()
}

// warningHeader names what a change has broken.
const warningHeader = "X-Warning"

// maxWarned bounds how many reports or fields a warning names.
const maxWarned = 20

// warn reports the custom reports that use fields which the form has lost: to the caller in a header, as far as the
// caller may see them, and in the audit record. The change is made nevertheless.
func (m *Module) warn(ctx context.Context, c *operation.Call, form *Form, before schema.Fields) {
	c.Header.Del(warningHeader) // of an attempt that was overtaken
	after := form.Fields()
	lost := slices.ContainsFunc(before.Names(), func(name string) bool { return after[name].Type != before[name].Type })
	if m.Reports == nil || !lost {
		return
	}
	all, err := m.Reports.Broken(ctx, c.Tenant.Workspace(), m.Forms.Name, form.ID, before, after)
	if err != nil {
		c.Header.Set(warningHeader, "it could not be determined whether custom reports use fields that the form no longer has")
		c.Note("broken_reports", "unknown")
		return
	}
	if len(all) == 0 {
		return
	}
	c.Note("broken_reports", listed(all))
	if seen, err := m.Reports.Broken(ctx, c.Workspace, m.Forms.Name, form.ID, before, after); err == nil && len(seen) > 0 {
		c.Header.Set(warningHeader, "custom reports use fields that the form no longer has, or has with another type: "+listed(seen))
	}
}

func listed(all []string) string {
	text := strings.Join(all[:min(len(all), maxWarned)], ", ")
	if n := len(all) - maxWarned; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// names returns the names of the fields that the change sets.
func (ch *change) names() []string {
	given := map[string]bool{
		"name": ch.name != nil, "label": ch.label != nil, "label_plural": ch.labelPlural != nil,
		"schema": ch.fields != nil, "email_alerts": ch.alerts != nil,
	}
	maps.DeleteFunc(given, func(_ string, is bool) bool { return !is })
	for _, f := range ch.public {
		given[f.Name] = true
	}
	return slices.Sorted(maps.Keys(given))
}

func standalone() error { return operation.Failed(notUpdated, Refused{standaloneDetail}) }

func parseChange(c *operation.Call, errs *fault.List, stored schema.Fields) (ch change, ignored []string) {
	text := func(name string, check func(errs *fault.List, field, value string)) *string {
		s, ok := c.Body.Text(errs, name)
		if !ok {
			return nil
		}
		if name != "name" { // an identifier is not trimmed
			s = texts.Trim(s)
		}
		check(errs, name, s)
		return &s
	}
	ch.name = text("name", schema.CheckName)
	ch.label = text("label", schema.CheckLabel)
	ch.labelPlural = text("label_plural", schema.CheckLabel)
	if raw, ok := c.Body.Object(errs, "schema"); ok {
		if given, ok := raw[FormName]; ok {
			delete(raw, FormName)
			if !same(given, Common()[FormName]) {
				ignored = append(ignored, "schema."+FormName)
			}
		}
		fields, more := schema.Parse(errs, "schema", raw, stored)
		ch.fields = &fields
		ignored = append(ignored, more...)
	}
	if raw, ok := c.Body.Object(errs, "email_alerts"); ok {
		alerts := Alerts(raw)
		alerts.Check(errs, "email_alerts")
		ch.alerts = &alerts
	}
	return ch, ignored
}

// parsePublic reads a change of the settings of the public form.
func (m *Module) parsePublic(c *operation.Call, errs *fault.List) (ch change) {
	for _, f := range m.publicFields() {
		if c.Body.Has(f.Name) {
			f.Read(c.Body.Value(f.Name), &ch.settings, errs)
			ch.public = append(ch.public, f)
		}
	}
	var more fault.List
	ch.settings.checkPublic(&more)
	field.Join(errs, more)
	return ch
}

// same reports whether a definition in a body equals the field.
func same(given any, field schema.Field) bool {
	m, ok := given.(map[string]any)
	if !ok || m["title"] != field.Title || m["type"] != field.Type {
		return false
	}
	own := map[string]any{"title": field.Title, "type": field.Type, "required": field.Required, "locked": field.Locked}
	for name, value := range m {
		if is, known := own[name]; !known || value != is {
			return false
		}
	}
	return true
}

// apply changes the form, and returns the names of locked fields whose changes were ignored.
func (ch *change) apply(f *Form) (kept []string) {
	set := func(field, value *string) {
		if value != nil {
			*field = *value
		}
	}
	set(&f.Name, ch.name)
	set(&f.Label, ch.label)
	set(&f.LabelPlural, ch.labelPlural)
	if ch.alerts != nil {
		f.EmailAlerts = *ch.alerts
	}
	for _, setting := range ch.public {
		setting.Set(f, &ch.settings)
	}
	f.fillPublic()
	if ch.fields == nil {
		return nil
	}
	fields := ch.fields.Clone()
	for _, name := range f.Schema.Names() {
		locked := f.Schema[name]
		if !locked.Locked || name == FormName {
			continue
		}
		if given, ok := fields[name]; ok {
			if given.Locked = true; given != locked {
				kept = append(kept, "schema."+name)
			}
		}
		fields[name] = locked
	}
	f.Schema = fields
	return kept
}

type schemaInput struct {
	ID *string `json:"id" doc:"Identifier of a form, or its name." example:"665f1c2ab4d3e2f1a0b9c8d7"`
}

func (m *Module) schema(ctx context.Context, c *operation.Call, in schemaInput) (Schema, error) {
	if in.ID == nil {
		return Schema{Common()}, nil
	}
	which := store.AnyOf(store.Eq("id", *in.ID), store.Eq("name", *in.ID))
	form, err := m.Forms.In(c.Workspace).First(ctx, store.Query{Filter: which})
	if err != nil {
		return Schema{}, operation.OrMissing(err, missing)
	}
	return Schema{form.Fields()}, nil
}

// SchemaFields returns the fields of the form. Errors: store.ErrNotFound, store.ErrUnavailable.
func (m *Module) SchemaFields(ctx context.Context, ws *store.Workspace, id string) (schema.Fields, error) {
	def, err := m.Forms.In(ws).Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return def.Fields(), nil
}
