package transfer

import (
	"context"
	"fmt"

	"tenantry/backends/contacts"
	"tenantry/backends/filters"
	"tenantry/backends/forms"
	"tenantry/backends/objects"
	"tenantry/backends/schema"
	"tenantry/backends/secrets"
	"tenantry/backends/store"
	"tenantry/reports"
	"tenantry/tenants/people"
)

// view is what lines are checked against: the definitions of the organization and of the
// bundle together. It does not change while data lines are read.
type view struct {
	vault   *secrets.Vault
	teams   map[string]bool
	roles   map[string]bool
	users   map[int64]bool
	fields  map[string]contacts.FieldDef
	objects map[string]schema.Fields // by name
	forms   map[string]schema.Fields // by id
	catalog filters.Catalog          // of contacts, as the organization has them now
}

// emptyView returns the view of an organization that has defined nothing.
func emptyView(vault *secrets.Vault) *view {
	return &view{
		vault: vault, teams: map[string]bool{}, roles: map[string]bool{people.AdminRole: true}, users: map[int64]bool{},
		fields: map[string]contacts.FieldDef{}, objects: map[string]schema.Fields{}, forms: map[string]schema.Fields{},
		catalog: contacts.StandardCatalog(),
	}
}

// loadView reads the organization's definitions.
func (s *session) loadView(ctx context.Context) error {
	ws := s.tenant.Workspace()
	v := emptyView(s.vault)
	s.view = v
	var err error
	if v.fields, err = s.deps.ContactsModule.Definitions(ctx, ws); err != nil {
		return err
	}
	if v.catalog, err = s.deps.ContactsModule.Catalog(ctx, ws); err != nil {
		return err
	}
	err = s.deps.Objects.Definitions.In(ws).Each(ctx, store.Filter{}, store.Either, func(d *objects.Definition) error {
		v.objects[d.Name] = d.Schema
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading custom objects: %w", err)
	}
	err = s.deps.Forms.Collections.In(ws).Each(ctx, store.Filter{}, store.Either, func(f *forms.Collection) error {
		v.forms[f.ID] = f.Fields()
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading form collections: %w", err)
	}
	return s.loadPeople(ctx)
}

// learn adds a definition of the bundle.
func (v *view) learn(e *entry) {
	switch rec := e.rec.(type) {
	case *contacts.FieldDef:
		v.fields[rec.Key] = *rec
	case *objects.Definition:
		if _, known := v.objects[rec.Name]; !known || rec.Schema != nil {
			v.objects[rec.Name] = rec.Schema
		}
	case *forms.Collection:
		if _, known := v.forms[e.id]; e.id != "" && (!known || rec.Schema != nil) {
			v.forms[e.id] = rec.Fields()
		}
	default:
		v.learnPerson(e)
	}
}

// settle replaces what was learned of a definition by what it will be, now that it is
// known which stored one it changes.
func (v *view) settle(e *entry) {
	switch rec := e.old.(type) {
	case *objects.Definition:
		v.objects[rec.Name] = rec.Schema
	case *forms.Collection:
		v.forms[rec.ID] = rec.Fields()
		v.forms[e.rec.(*forms.Collection).ID] = rec.Fields() // the bundle may have its own id for it
	}
}

// definedFor returns the fields that are defined for what the report asks.
func (v *view) definedFor(r *reports.Report) schema.Fields {
	switch r.Class {
	case "Contacts":
		fields := make(schema.Fields, len(v.fields))
		for key, def := range v.fields {
			fields[key] = schema.Field{Title: def.Title, Type: def.Type}
		}
		return fields
	case "Records":
		return v.objects[r.Source]
	case "Submissions":
		return v.forms[r.Source]
	}
	return nil
}

// secretContactField reports whether values of the contact field are secret.
func (v *view) secretContactField(name string) bool {
	return v.fields[name].Type == schema.Encrypted
}

func secretIn(fields schema.Fields) func(string) bool {
	return func(name string) bool { return fields[name].Type == schema.Encrypted }
}

// Field makes the view a filters.Catalog of contacts.
func (v *view) Field(name string) (filters.Field, bool) {
	if f, ok := v.catalog.Field(name); ok {
		return f, true
	}
	def, ok := v.fields[name]
	if !ok {
		return filters.Field{}, false
	}
	return contacts.FilterField(def), true
}
