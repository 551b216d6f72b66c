package show

import (
	"strconv"

	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// DefinedField is a field that the organization defined.
type DefinedField struct {
	Key, Title, Kind string
	Required         bool
}

// TitleOf returns what people call a field by which a list is filtered.
func TitleOf(p *site.Page, name string, defined []DefinedField) string {
	for _, f := range defined {
		if f.Key == name {
			return f.Title
		}
	}
	return p.FieldTitle(name)
}

// MaxDefined bounds the fields that a page shows.
const MaxDefined = 200

// Defined returns the fields that the organization defined of the records.
func Defined(v *visit.Visit, row *operation.Row, path map[string]string) (fields []DefinedField) {
	by := v.Site.ListOf(row.Defined.By)
	if by == nil {
		return nil
	}
	for _, p := range row.Params {
		if p.In != operation.InPath || p.Ref != row.Defined.By || by.Each == nil {
			continue
		}
		a, err := v.Read(by.Each.Shows, map[string]string{by.Each.Key(): path[p.Name]}, "")
		if err != nil || !a.OK() {
			return nil
		}
		for _, m := range a.Data.Get("schema").Members {
			fields = append(fields, DefinedField{m.Name, m.Value.Get("title").Text, m.Value.Get("type").Text, m.Value.Get("required").Is == strictjson.True})
		}
		return fields
	}
	data, ok := v.Named(by.Shows.Name, "per_page="+strconv.Itoa(MaxDefined))
	if !ok {
		return nil
	}
	for _, r := range data.Get("results").Items {
		fields = append(fields, DefinedField{r.Get("key").Text, r.Get("title").Text, r.Get("type").Text, r.Get("required").Is == strictjson.True})
	}
	return fields
}
