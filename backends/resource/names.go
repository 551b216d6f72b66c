package resource

import (
	"strings"

	"tenantry/backends/field"
)

// Plural returns what several records are called, such as "folders". It ends in "s".
func (r *Resource) Plural() string { return strings.TrimSuffix(r.Name, "s") + "s" }

// DefinitionField returns the field that says by which definition a record's values are, "" where all
// definitions are of all records.
func (r *Resource) DefinitionField() string {
	for i := range r.Fields {
		if f := &r.Fields[i]; r.DefinedBy != "" && f.Rule.Ref == r.DefinedBy {
			return f.Name
		}
	}
	return ""
}

// Alias returns what the column of a field may be called besides in a file: its tag alias.
func Alias(f *field.Field) string { return f.Tag.Get("alias") }
