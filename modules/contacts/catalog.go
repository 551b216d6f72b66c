package contacts

import (
	"context"
	"errors"
	"fmt"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/operation/crud"
	"tenantry/operation/filters"
)

// MaxFields is the largest number of contact fields that an organization can define. Further ones, in the order of
// keys, are ignored.
const MaxFields = 500

// Definitions returns the organization's own contact fields by key.
func (m *Module) Definitions(ctx context.Context, ws *store.Workspace) (map[string]FieldDef, error) {
	found, err := m.Fields.In(ws).Find(ctx, store.Query{Sort: []store.Order{store.Asc("key")}, Limit: MaxFields})
	if err != nil {
		return nil, fmt.Errorf("read contact fields: %w", err)
	}
	defs := make(map[string]FieldDef, len(found))
	for _, def := range found {
		defs[def.Key] = def
	}
	return defs, nil
}

// definition returns the contact field with that key, and whether it exists.
func (m *Module) definition(ctx context.Context, ws *store.Workspace, key string) (FieldDef, bool, error) {
	if !store.ValidKey(key) {
		return FieldDef{}, false, nil
	}
	def, err := m.Fields.In(ws).First(ctx, store.Query{Filter: store.Eq("key", key)})
	if errors.Is(err, store.ErrNotFound) {
		return FieldDef{}, false, nil
	}
	if err != nil {
		return FieldDef{}, false, fmt.Errorf("read a contact field: %w", err)
	}
	return *def, true, nil
}

// Catalog returns the fields that filters on contacts may name: the standard ones and those that the organization
// defined; encrypted ones are filters.Secret. It reads the definitions once; the result does not change.
func (m *Module) Catalog(ctx context.Context, ws *store.Workspace) (filters.Catalog, error) {
	defined, err := m.SchemaFields(ctx, ws, "")
	if err != nil {
		return nil, err
	}
	return m.CatalogOf(defined), nil
}

// CatalogOf is Catalog for known definitions, which need not be stored yet.
func (k Kinds) CatalogOf(defined schema.Fields) filters.Catalog {
	return crud.Catalog(k.Contacts.Resource, defined)
}

// SchemaFields returns the fields that the organization defined as a schema. Errors: store.ErrUnavailable.
func (m *Module) SchemaFields(ctx context.Context, ws *store.Workspace, _ string) (schema.Fields, error) {
	defs, err := m.Definitions(ctx, ws)
	if err != nil {
		return nil, err
	}
	fields := make(schema.Fields, len(defs))
	for key, def := range defs {
		fields[key] = def.field()
	}
	return fields, nil
}
