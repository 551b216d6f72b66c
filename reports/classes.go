package reports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/operation/filters"
	"tenantry/tenants"
)

// TableOf opens a kind's table in a workspace: the method value kind.Table.
type TableOf func(*store.Workspace) store.Table

// FieldsOf returns the fields that the organization defined for a source; the source is
// "" for classes that need none. Encrypted ones are secret. It returns an error that wraps
// store.ErrNotFound where there is no such source.
type FieldsOf func(ctx context.Context, ws *store.Workspace, source string) (schema.Fields, error)

// NewContactsClass returns the class Contacts.
func NewContactsClass(table TableOf, fields FieldsOf) Class {
	return &class{name: "Contacts", table: table, custom: fields, own: []Field{
		text("id", "Id"), text("email", "E-mail"), text("first_name", "First name"), text("last_name", "Last name"),
		text("phone", "Phone"), text("country", "Country"), text("city", "City"), text("status", "Status"),
		declared("tags", "Tags", TypeList, store.TypeStrings), text("external_id", "External id"),
		instant("created_at", "Created"), instant("updated_at", "Updated"),
	}}
}

// NewRecordsClass returns the class Records; its source is the name of a custom object.
func NewRecordsClass(table TableOf, fields FieldsOf) Class {
	return &class{name: "Records", table: table, custom: fields, source: "object", own: []Field{
		text("id", "Id"), text("external_id", "External id"), instant("created_at", "Created"), instant("updated_at", "Updated"),
	}}
}

// classSubmissions is the class of reports on what was filled in.
const classSubmissions = "Submissions"

// NewSubmissionsClass returns the class Submissions; its source is the id of a form.
func NewSubmissionsClass(table TableOf, fields FieldsOf) Class {
	return &class{name: classSubmissions, table: table, custom: fields, source: "form", own: []Field{
		text("id", "Id"), instant("created_at", "Created"), instant("updated_at", "Updated"),
	}}
}

// NewFilesClass returns the class Files. Public identifiers and hashes, which lead to a
// file's bytes, are no part of it.
func NewFilesClass(table TableOf) Class {
	return &class{name: "Files", table: table, own: []Field{
		text("id", "Id"), text("filename", "File name"), text("mimetype", "MIME type"), text("type", "Type"),
		text("folder_id", "Folder"), text("contact_id", "Contact"), declared("user_id", "User", TypeNumber, store.TypeInt),
		instant("created_at", "Created"), instant("updated_at", "Updated"),
	}}
}

// NewCampaignsClass returns the class Campaigns.
func NewCampaignsClass(table TableOf) Class {
	return &class{name: "Campaigns", table: table, own: []Field{
		text("id", "Id"), text("name", "Name"), instant("created_at", "Created"), instant("updated_at", "Updated"),
	}}
}

func declared(name, title, columnType string, storeType store.Type) Field {
	return Field{Column: Column{name, title, columnType}, Ref: store.Field{Name: name, Type: storeType}}
}

func text(name, title string) Field { return declared(name, title, TypeText, store.TypeString) }

func instant(name, title string) Field { return declared(name, title, TypeDatetime, store.TypeTime) }

type class struct {
	name   string
	own    []Field
	table  TableOf
	custom FieldsOf // nil: the organization defines no fields
	source string   // the field that holds a record's source, "" where there is none
}

func (c *class) Name() string      { return c.name }
func (c *class) NeedsSource() bool { return c.source != "" }

func (c *class) Dataset(ctx context.Context, _ *tenants.Tenant, ws *store.Workspace, source string) (Dataset, error) {
	if c.source == "" {
		source = ""
	}
	var defined schema.Fields
	if c.custom != nil && (c.source == "" || source != "") {
		var err error
		defined, err = c.custom(ctx, ws, source)
		if errors.Is(err, store.ErrNotFound) {
			return Dataset{}, fmt.Errorf("%w: %w", ErrSource, err)
		}
		if err != nil {
			return Dataset{}, fmt.Errorf("fields of report class %s: %w", c.name, err)
		}
	}
	return c.over(c.table(ws), source, defined)
}

// over returns the dataset of a source whose defined fields are known.
func (c *class) over(table store.Table, source string, defined schema.Fields) (Dataset, error) {
	base := store.All()
	if c.source != "" {
		if source == "" {
			return Dataset{}, fmt.Errorf("%w: reports of class %s need one", ErrSource, c.name)
		}
		base = store.Eq(c.source, source)
	}
	fields := slices.Clone(c.own)
	for _, name := range defined.Names() {
		if store.ValidKey(name) {
			fields = append(fields, customField(name, defined[name]))
		}
	}
	return NewDataset(table, base, fields), nil
}

// customField returns a field that the organization defined.
func customField(name string, defined schema.Field) Field {
	of := filters.Defined(name, defined.Type)
	shown := map[filters.Notation]string{
		filters.Number: TypeNumber, filters.Boolean: TypeBoolean, filters.List: TypeList, filters.Date: TypeDatetime, filters.Time: TypeDatetime,
	}[of.Notation]
	if defined.Type == schema.Date {
		shown = TypeDate
	}
	return Field{Column{name, cmp.Or(defined.Title, name), cmp.Or(shown, TypeText)}, of.Ref, of.Notation == filters.Secret}
}
