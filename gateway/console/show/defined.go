package show

import (
	"encoding/json"
	"strconv"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// DefinedField is a field that the organization has added to records.
type DefinedField struct {
	Key string
	schema.Field
}

// defined returns the field that a definition in an answer describes.
func defined(key string, definition strictjson.Value) DefinedField {
	d := DefinedField{Key: key}
	_ = json.Unmarshal(definition.Raw(), &d.Field) // the operation made it from a field
	return d
}

// TitleOf returns the title of a declared or defined field.
func TitleOf(p *site.Page, name string, defined []DefinedField) string {
	for _, f := range defined {
		if f.Key == name {
			return f.Title
		}
	}
	return p.FieldTitle(name)
}

// MaxDefined bounds the defined fields that a page shows.
const MaxDefined = 200

// Defined returns the defined fields of the records that an operation answers; nil if there are none, or the person may
// not read the definitions.
func Defined(v *visit.Visit, row *operation.Row, path map[string]string) (fields []DefinedField) {
	by := v.Site.ListOf(row.Defined.By)
	if by == nil {
		return nil
	}
	for _, p := range row.Params {
		if p.In != operation.InPath || p.Ref != row.Defined.By || by.Record == nil {
			continue
		}
		a, err := v.Read(by.Record.Shows, map[string]string{by.Record.Key(): path[p.Name]}, "")
		if err != nil || !a.OK() {
			return nil
		}
		for _, m := range a.Data.Get("schema").Members {
			fields = append(fields, defined(m.Name, m.Value))
		}
		return fields
	}
	data, ok := v.ReadNamed(by.Shows.Name, "per_page="+strconv.Itoa(MaxDefined))
	if !ok {
		return nil
	}
	for _, r := range data.Get("results").Items {
		fields = append(fields, defined(r.Get("key").Text, r))
	}
	return fields
}
