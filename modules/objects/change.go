package objects

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// Shown is a custom object as callers see it.
type Shown struct {
	ID          string        `json:"id" doc:"Identifier of the definition."`
	Name        string        `json:"name" doc:"Singular identifier, by which records and reports refer to the object."`
	Label       string        `json:"label" doc:"Singular label."`
	LabelPlural string        `json:"label_plural" doc:"Plural label."`
	Schema      schema.Fields `json:"schema" doc:"Fields by identifier."`
	CreatedAt   string        `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	UpdatedAt   string        `json:"updated_at" doc:"RFC 3339, UTC, milliseconds."`
	Touches     *Touched      `json:"touches,omitempty" doc:"What the change would affect. Only in a preview."`
}

// Touched is what a change of a custom object breaks, or would break.
type Touched struct {
	Records int64            `json:"records" doc:"Number of records that would lose or lack a value, have one that does not fit, or be hidden."`
	Fields  map[string]int64 `json:"fields" doc:"The number of these records by field."`
	Reports []string         `json:"reports" doc:"Identifiers of custom reports that could no longer be run, as far as the caller may see them."`
	Others  int              `json:"other_reports" doc:"Number of other such reports."`

	sealed []string // fields whose values would be left in clear, or sealed without a way to open them
}

func (m *Module) exampleShown() Shown {
	d := &Definition{
		Name: "tree", Label: "Tree", LabelPlural: "Trees",
		Schema: schema.Fields{"species": {Title: "Species", Type: schema.Text, Required: true}},
	}
	d.ID, d.CreatedAt, d.UpdatedAt = exampleID, 1717509162000, 1717595562000
	return crud.As[Shown](m.Definitions.Resource)(d, nil)
}

// definitionRows returns the rows of definitions. Records and reports refer to a definition by its name, so the name
// never changes.
func (m *Module) definitionRows() []operation.Row {
	change := m.previewable("A given schema replaces the whole schema, except for locked fields. Values of dropped fields stay stored.")
	change.BodyLimit, change.Weight = schema.BodyLimit, operation.Heavy
	change.Types = map[string]any{"schema": schema.Definitions{}}
	return crud.Rows(m.Definitions.Resource, crud.Options{
		Path: "/api/custom/objects", Things: "Custom Objects", Tag: tag, Search: []string{
			"name", "label", "label_plural",
		},
		Read: operation.Needs(tenants.ManageCustomObjects), Write: operation.Needs(tenants.ManageCustomObjects),
		Before: crud.Before(m.before), After: crud.After(m.after), Example: m.exampleShown(),
		Create: crud.Absent(), Update: change,
		Delete: m.previewable("The object's records are hidden until it is restored; with purge they are deleted with it."),
	})
}

// previewed is the error by which a preview stops a change; it holds the answer.
type previewed struct{ Shown }

func (*previewed) Error() string { return "a preview changes nothing" }

// previewable returns an action that refuses changes that break something, unless they are forced, and that can
// preview them.
func (m *Module) previewable(lead string) crud.Action {
	return crud.Action{
		Lead:   lead,
		Policy: operation.Policy{Timeout: crud.ClearTimeout}, // every record of the object may be read, or removed
		Request: operation.Request{Params: []operation.Param{
			{
				Name: "force", In: operation.InQuery, Shape: operation.Boolean, Default: "false", Example: "true",
				Description: "Makes the change even if it breaks stored records or custom reports.",
				Ask: operation.Ask{
					Label: "Even if it breaks something", Hint: "Stored records or reports may no longer fit.",
				},
			},
			{
				Name: "preview", In: operation.InQuery, Shape: operation.Boolean, Default: "false",
				Description: "Changes nothing, and answers the current object with what the change would affect.",
				Ask:         operation.Ask{Label: "Preview", Hint: "Only shows what it would affect."},
			},
		}},
		Response: operation.Response{Failures: []operation.Failure{operation.Refuses(
			http.StatusUnprocessableEntity, "the change would break stored records or custom reports, and is not forced; the answer names what would break",
			"schema.species", fault.Forbidden, "schema.species: 12 records would lack it or have an invalid value; force=true changes it all the same",
		)}},
		Around: func(change operation.Handler) operation.Handler {
			return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
				result, err := change(ctx, c)
				if f, ok := errors.AsType[*previewed](err); ok {
					return operation.Result{Message: "Custom Object preview", Data: f.Shown}, nil
				}
				return result, err
			}
		},
	}
}

// before checks a change of a definition; rec is nil if it is purged.
func (m *Module) before(ctx context.Context, c *operation.Call, _ *store.Preconditions, rec, was *Definition) error {
	var errs fault.List
	force, preview := c.Query.Bool(&errs, "force", c.Principal.Kind == tenants.System), c.Query.Bool(&errs, "preview", false)
	if raw, ok := c.Body.Object(&errs, "schema"); ok {
		rec.Schema = schema.Strict(&errs, "schema", raw, was.Schema)
	}
	if err := errs.Err(); err != nil {
		return err
	}
	if rec != nil && !rec.Deleted && was.Deleted {
		return nil // restored
	}
	touched, err := m.touched(ctx, c, rec, was)
	switch {
	case err != nil:
		return err
	case preview:
		f := &previewed{crud.As[Shown](m.Definitions.Resource)(was, c.Tenant)}
		f.Touches = touched
		return f
	}
	if err := touched.refusal(force); err != nil || rec != nil {
		return err
	}
	return m.deleteRecords(ctx, c, was)
}

// after looks again for values that a change leaves in clear under an encrypted field, or sealed under another type,
// because records may have been stored before the change was visible.
func (m *Module) after(ctx context.Context, c *operation.Call, rec, was *Definition) error {
	if rec.Deleted || !slices.ContainsFunc(was.Schema.With(rec.Schema).Names(), func(name string) bool {
		return schema.Reseals(was.Schema[name].Type, rec.Schema[name].Type)
	}) {
		return nil
	}
	touched, err := m.touched(ctx, c, rec, was)
	if err != nil {
		return err
	}
	return touched.refusal(true)
}

// touched returns what a change breaks.
func (m *Module) touched(ctx context.Context, c *operation.Call, rec, was *Definition) (t *Touched, err error) {
	t = &Touched{Fields: map[string]int64{}, Reports: []string{}}
	of := store.Eq("object", was.Name)
	var after schema.Fields // nil: the object is deleted
	switch {
	case rec == nil:
		t.Records, err = m.Records.In(c.Workspace).CountIn(ctx, of, store.Either)
	case rec.Deleted:
		t.Records, err = m.Records.In(c.Workspace).Count(ctx, of)
	default:
		if after = rec.Schema; after == nil {
			after = schema.Fields{}
		}
		var names []string
		if names, err = m.affectedFields(ctx, c, of, was.Schema, after); err == nil && len(names) > 0 {
			err = m.Records.In(c.Workspace).Each(ctx, of, store.Either, func(r *Record) error {
				t.look(r, names, was.Schema, after)
				return nil
			})
		}
	}
	if err != nil || m.Reports == nil || was.Deleted {
		return t, err
	}
	broken, err := schema.Breaks(ctx, m.Reports, c.Tenant.Workspace(), c.Workspace, m.Definitions.Name, was.Name, was.Schema, after)
	t.Reports, t.Others = broken.Seen, broken.Others
	return t, err
}

// affectedFields returns the fields whose values may no longer fit. It includes new fields if matching records have
// values from an earlier field of the same name.
func (m *Module) affectedFields(
	ctx context.Context, c *operation.Call, of store.Filter, before, after schema.Fields,
) (names []string, err error) {
	var fresh []string
	var left []store.Filter
	for _, name := range before.With(after).Names() {
		b, was := before[name]
		a, is := after[name]
		switch {
		case was && (!is || a.Rule() != b.Rule()),
			is && (a.Required && !b.Required || a.Type == schema.Encrypted && b.Type != a.Type):
			names = append(names, name)
		case is && !was:
			fresh = append(fresh, name)
			left = append(left, store.Where(store.Field{Name: name, Custom: true}, store.OpExists, true))
		}
	}
	for some := range slices.Chunk(left, maxFieldsPerQuery) {
		found, err := m.Records.In(c.Workspace).Find(ctx, store.Query{
			Filter: store.All(of, store.AnyOf(some...)), State: store.Either, Limit: 1,
		})
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			return append(names, fresh...), nil
		}
	}
	return names, nil
}

// maxFieldsPerQuery is how many fields one query looks for.
const maxFieldsPerQuery = 40

// look counts what a change of those fields breaks in a record.
func (t *Touched) look(r *Record, names []string, before, after schema.Fields) {
	broken := false
	for _, name := range names {
		f, there := after[name]
		value, plain := r.Values[name]
		_, sealed := r.Secrets[name]
		switch {
		case sealed && f.Type != schema.Encrypted, plain && f.Type == schema.Encrypted:
			if !slices.Contains(t.sealed, name) {
				t.sealed = append(t.sealed, name)
			}
		case plain && !there:
		case plain && f.Rule() != before[name].Rule():
			var errs fault.List
			if schema.CheckValue(&errs, name, f, value); len(errs) == 0 {
				continue
			}
		case f.Required && !before[name].Required && (!plain || value == "") && !sealed:
		default:
			continue
		}
		broken = true
		t.Fields[name]++
	}
	if broken {
		t.Records++
	}
}

// refusal returns the error for what the change would break. Even a forced change must not leave values in clear that
// are to be secret, or sealed without a way to open them.
func (t *Touched) refusal(force bool) error {
	var errs fault.List
	for _, name := range slices.Sorted(maps.Keys(t.Fields)) {
		switch secret := slices.Contains(t.sealed, name); {
		case secret:
			errs.Add(
				"schema."+name, fault.Forbidden,
				"schema.%s: %d records have values of it, so it cannot become or stop being Encrypted: remove these values first",
				name, t.Fields[name],
			)
		case !force:
			errs.Add(
				"schema."+name, fault.Forbidden,
				"schema.%s: %d records would lack it or have an invalid value; force=true changes it all the same",
				name, t.Fields[name],
			)
		}
	}
	if len(t.Fields) == 0 && t.Records > 0 && !force {
		errs.Add("records", fault.Forbidden, "the custom object has %d records; force=true deletes it all the same", t.Records)
	}
	if !force {
		schema.Broken{Seen: t.Reports, Others: t.Others}.Refuse(&errs, "reports", "custom reports", "run")
	}
	return errs.Err()
}

// deleteRecords deletes the records of an object that is purged. The object is deleted first, so that none are added
// meanwhile.
func (m *Module) deleteRecords(ctx context.Context, c *operation.Call, d *Definition) error {
	if !d.Deleted {
		d.Deleted = true
		if err := m.Definitions.In(c.Workspace).Replace(ctx, d); err != nil {
			return err
		}
	}
	return crud.Clear(ctx, m.Records.In(c.Workspace), store.Eq("object", d.Name))
}
