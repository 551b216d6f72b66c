package objects

import (
	"bytes"
	"context"
	"net/http"
	"strconv"

	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
)

func (m *Module) create(ctx context.Context, c *operation.Call) (operation.Result, error) {
	def, dropped, err := parseDefinition(c)
	if err != nil {
		return operation.Result{}, err
	}
	var errs fault.List
	if m.Definitions.Fits(def, record.Measure{}, 0, &errs); len(errs) > 0 {
		return operation.Result{}, errs.Err()
	}
	in, b := m.Definitions.In(c.Workspace), c.Workspace.Batch()
	if err := in.StageInsert(b, def); err != nil {
		return operation.Result{}, err
	}
	result, err := c.Commit(ctx, b, func(context.Context) (operation.Result, error) {
		c.Revision = m.Definitions.Revision(def)
		c.Note("object", def.ID)
		c.Warn(def.Schema.Unchecked(nil))
		c.Warn(schema.Dropped(dropped))
		return operation.Result{Data: Created{def.ID, def.Name, def.Label, def.LabelPlural}}, nil
	})
	return result, m.Definitions.Taken(ctx, c.Workspace, def, err)
}

// parseDefinition returns the definition in the body, and the parts that are ignored.
func parseDefinition(c *operation.Call) (def *Definition, ignored []string, err error) {
	var errs fault.List
	def = &Definition{Schema: schema.Fields{}}
	def.Name = required(c, &errs, "name", schema.CheckName)
	def.Label = required(c, &errs, "label", schema.CheckLabel)
	def.LabelPlural = required(c, &errs, "label_plural", schema.CheckLabel)
	if raw, ok := definitions(c, &errs); ok {
		def.Schema, ignored = schema.Parse(&errs, "schema", raw, nil)
		if err := c.IgnoreParts(ignored...); err != nil {
			return nil, nil, err
		}
	}
	return def, ignored, errs.Err()
}

// definitions returns the fields by identifier. An array defines fields named 0, 1, 2, as the contract says.
func definitions(c *operation.Call, errs *fault.List) (map[string]any, bool) {
	given := c.Body.Raw("schema")
	if !bytes.HasPrefix(given, []byte("[")) {
		return c.Body.Object(errs, "schema")
	}
	var list []any
	if err := operation.Decode(given, &list); err != nil { // cannot happen: the body was checked
		errs.Add("schema", "type", "schema must be an object")
		return nil, false
	}
	numbered := make(map[string]any, len(list))
	for i, field := range list {
		numbered[strconv.Itoa(i)] = field
	}
	return numbered, true
}

func required(
	c *operation.Call, errs *fault.List, name string, check func(errs *fault.List, field, value string),
) string {
	if !c.Body.Has(name) {
		errs.Add(name, "required", "%s is required", name)
		return ""
	}
	s, ok := c.Body.Text(errs, name)
	if name != "name" { // an identifier is not trimmed
		s = texts.Trim(s)
	}
	if ok {
		check(errs, name, s)
	}
	return s
}

// generic replaces the data of internal failures by an empty object, as the contract says.
func generic(p *operation.Problem) *operation.Problem {
	if p.Code < http.StatusInternalServerError {
		return p
	}
	c := *p
	c.Data = struct{}{}
	return &c
}

type schemaInput struct {
	ID   *string `json:"id" doc:"Identifier of a custom object, or its name." example:"665f1c2ab4d3e2f1a0b9c8d7"`
	Name *string `json:"name" doc:"Name of a custom object, or its identifier." example:"tree"`
}

func (m *Module) schema(ctx context.Context, c *operation.Call, in schemaInput) (Schema, error) {
	var where []store.Filter
	if in.ID != nil {
		where = append(where, byIDOrName(*in.ID))
	}
	if in.Name != nil {
		where = append(where, byIDOrName(*in.Name))
	}
	if where == nil {
		return Schema{Common()}, nil
	}
	def, err := m.Definitions.In(c.Workspace).First(ctx, store.Query{Filter: store.All(where...)})
	if err != nil {
		return Schema{}, operation.OrMissing(err, missing)
	}
	return Schema{Common().With(def.Schema)}, nil
}

// byIDOrName matches the custom object with that identifier or name.
func byIDOrName(text string) store.Filter {
	return store.AnyOf(store.Eq("id", text), store.Eq("name", text))
}

// SchemaFields returns the fields of the custom object of that name. Errors: store.ErrNotFound, store.ErrUnavailable.
func (m *Module) SchemaFields(ctx context.Context, ws *store.Workspace, name string) (schema.Fields, error) {
	def, err := m.Definitions.In(ws).First(ctx, store.Query{Filter: store.Eq("name", name)})
	if err != nil {
		return nil, err
	}
	return def.Schema, nil
}
