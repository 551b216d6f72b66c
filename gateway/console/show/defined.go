package show

import (
	"strconv"

	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// DefinedField is a field that the organization has added to records.
type DefinedField struct {
	Key, Title, Kind string
	Required         bool
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
			required := m.Value.Get("required").Is == strictjson.True
			fields = append(fields, DefinedField{m.Name, m.Value.Get("title").Text, m.Value.Get("type").Text, required})
		}
		return fields
	}
	data, ok := v.ReadNamed(by.Shows.Name, "per_page="+strconv.Itoa(MaxDefined))
	if !ok {
		return nil
	}
	for _, r := range data.Get("results").Items {
		required := r.Get("required").Is == strictjson.True
		fields = append(fields, DefinedField{r.Get("key").Text, r.Get("title").Text, r.Get("type").Text, required})
	}
	return fields
}
