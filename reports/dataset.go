package reports

import (
	"context"
	"errors"

	"tenantry/backends/store"
	"tenantry/operation/filters"
	"tenantry/tenants"
)

// The types of a column: how answers name the type that is stored.
const (
	TypeText     = "text"
	TypeNumber   = "number"
	TypeBoolean  = "boolean"
	TypeDate     = "date"
	TypeDatetime = "datetime"
	TypeList     = "list"
)

// columnType returns the type of the column that shows values of a stored type.
func columnType(stored store.Type) string {
	switch stored {
	case store.TypeInt, store.TypeFloat:
		return TypeNumber
	case store.TypeBool:
		return TypeBoolean
	case store.TypeTime, store.TypeDate:
		return TypeDatetime
	case store.TypeStrings:
		return TypeList
	default:
		return TypeText
	}
}

// ErrSource says that a report's source does not exist.
var ErrSource = errors.New("the source of the report does not exist")

// Class is a class of records that reports can query. Implementations must be safe for concurrent use.
type Class interface {
	// Name returns the name of the class in reports.
	Name() string
	// NeedsSource reports whether a report of the class must name a source.
	NeedsSource() bool
	// Dataset returns the data that the workspace shows. Its error wraps ErrSource if the source does not exist.
	Dataset(ctx context.Context, t *tenants.Tenant, ws *store.Workspace, source string) (Dataset, error)
}

// Column describes one column.
type Column struct {
	Name  string `json:"name" doc:"Name of the column: a field, count, or <op>_<field>"`
	Title string `json:"title" doc:"Title for people"`
	Type  string `json:"type" doc:"text, number, boolean, date, datetime or list"`
}

// Field is one field of a Dataset; Ref has the type of its values. A Secret field is only known so that it can be refused
// by name.
type Field struct {
	Column
	Ref    store.Field
	Secret bool
}

// Dataset is the data of a report: the records of a table that match Base, and the fields that queries may name. It is
// immutable and safe for concurrent use.
type Dataset struct {
	Table  store.Table
	Base   store.Filter
	fields []Field
	index  map[string]int
}

// NewDataset returns a Dataset. Of several fields with the same name, the first is used.
func NewDataset(table store.Table, base store.Filter, fields []Field) Dataset {
	d := Dataset{Table: table, Base: base, index: make(map[string]int, len(fields))}
	for _, f := range fields {
		if _, taken := d.index[f.Name]; !taken {
			d.index[f.Name] = len(d.fields)
			d.fields = append(d.fields, f)
		}
	}
	return d
}

// Columns returns the columns that a report may show, in their usual order.
func (d *Dataset) Columns() []Column {
	var columns []Column
	for _, f := range d.fields {
		if !f.Secret {
			columns = append(columns, f.Column)
		}
	}
	return columns
}

// Field returns the field as a filter sees it. It makes the dataset a filters.Catalog.
func (d *Dataset) Field(name string) (filters.Field, bool) {
	f, ok := d.find(name)
	return f.filter(), ok
}

// filter returns the field as a filter sees it.
func (f Field) filter() filters.Field {
	return filters.Field{Name: f.Name, Ref: f.Ref, Secret: f.Secret}
}

func (d *Dataset) find(name string) (Field, bool) {
	i, ok := d.index[name]
	if !ok {
		return Field{}, false
	}
	return d.fields[i], true
}
