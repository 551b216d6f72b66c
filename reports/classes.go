package reports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/operation/filters"
	"tenantry/tenants"
)

// FieldsOf returns the fields that the organization defined for a source; the source is "" for classes that need none.
// Encrypted fields are secret. Error: store.ErrNotFound, wrapped, if there is no such source.
type FieldsOf func(ctx context.Context, ws *store.Workspace, source string) (schema.Fields, error)

// classSubmissions is the class of reports on form submissions.
const classSubmissions = "Submissions"

// NewClass returns the class of the records of a kind. Reports may name the id, the fields with a tag report, which is
// their title, the times of creation and last change, and fields that the organization defines. The field called
// source holds a record's source; empty: the class needs none. It panics if the tags of T cannot be read.
func NewClass[T any](name string, kind *store.Kind[T], source string, defined FieldsOf) Class {
	return &class{
		name: name, own: reportable(reflect.TypeFor[T](), kind.Spec()), table: kind.Table, custom: defined, source: source,
	}
}

// reportable returns the fields of a struct type that reports may name. It panics if its tags are invalid or spec
// does not store such a field.
func reportable(t reflect.Type, spec *store.Spec) []Field {
	declared, err := declare.Of(t)
	if err != nil {
		panic("reports: " + err.Error())
	}

	titles := [][2]string{{"id", "Id"}}
	for _, d := range declared {
		if title := d.Tag.Get("report"); title != "" {
			titles = append(titles, [2]string{d.Name, title})
		}
	}

	var fields []Field
	for _, t := range append(titles, [2]string{"created_at", "Created"}, [2]string{"updated_at", "Updated"}) {
		name, title := t[0], t[1]
		typ, ok := spec.Type(name)
		if !ok {
			panic("reports: " + spec.Name + " does not store " + name + " in a field of its own")
		}
		fields = append(fields, Field{
			Column: Column{name, title, columnType(typ)}, Ref: store.Field{Name: name, Type: typ},
		})
	}
	return fields
}

type class struct {
	name   string
	own    []Field
	table  func(*store.Workspace) store.Table
	custom FieldsOf // nil: the organization defines no fields
	source string   // the field that holds a record's source; "" if there is none
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

// over returns the dataset of a source with known defined fields.
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
	column := Column{name, cmp.Or(defined.Title, name), columnType(of.Ref.Type)}
	if defined.Type == schema.Date {
		column.Type = TypeDate
	}
	return Field{column, of.Ref, of.Secret}
}
