package console

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// definedField is a field that the organization defined.
type definedField struct {
	key, title, kind string
	required         bool
}

// namingField returns the key of the field by which people know a record that has no name besides: one that is called so,
// else the first text, one that every record has if there is any. Empty: there is no text.
func namingField(defined []definedField) (key string) {
	best := -1
	for _, f := range defined {
		rank := 0
		switch {
		case f.kind != "Text":
			continue
		case slices.Contains(naming(), f.key) || strings.HasSuffix(f.key, "_name"):
			rank = 2
		case f.required:
			rank = 1
		}
		if rank > best {
			best, key = rank, f.key
		}
	}
	return key
}

// nameOf returns what people call a record, where it has no name of its own by a field that the organization defined.
func (v *visit) nameOf(row *operation.Row, path map[string]string, record strictjson.Value, otherwise string) string {
	return v.namesOf(row, path)(record, otherwise)
}

// namesOf is nameOf for many records of a list. What is defined is read once, where it is needed.
func (v *visit) namesOf(row *operation.Row, path map[string]string) func(record strictjson.Value, otherwise string) string {
	field := sync.OnceValue(func() string { return namingField(v.defined(row, path)) })
	return func(record strictjson.Value, otherwise string) string {
		if values := row.Defined.Values; values != "" && nameOf(without(record, "id", "external_id"), "") == "" {
			if name := record.Get(values).Get(field()); name.Is == strictjson.Text && name.Text != "" {
				return name.Text
			}
		}
		return nameOf(record, otherwise)
	}
}

// titleOf returns what people call a field by which a list is filtered.
func (p *page) titleOf(name string, defined []definedField) string {
	for _, f := range defined {
		if f.key == name {
			return f.title
		}
	}
	return p.called(name)
}

// maxDefined bounds the fields that a page shows.
const maxDefined = 200

// defined returns the fields that the organization defined of the records.
func (v *visit) defined(row *operation.Row, path map[string]string) (fields []definedField) {
	by := v.site.listOf(row.Defined.By)
	if by == nil {
		return nil
	}
	for _, p := range row.Params {
		if p.In != operation.InPath || p.Ref != row.Defined.By || by.each == nil {
			continue
		}
		a, err := v.read(by.each.shows, map[string]string{by.each.key(): path[p.Name]}, "")
		if err != nil || !a.ok() {
			return nil
		}
		for _, m := range a.data.Get("schema").Members {
			fields = append(fields, definedField{m.Name, m.Value.Get("title").Text, m.Value.Get("type").Text, m.Value.Get("required").Is == strictjson.True})
		}
		return fields
	}
	data, ok := v.named(by.shows.Name, "per_page="+strconv.Itoa(maxDefined))
	if !ok {
		return nil
	}
	for _, r := range data.Get("results").Items {
		fields = append(fields, definedField{r.Get("key").Text, r.Get("title").Text, r.Get("type").Text, r.Get("required").Is == strictjson.True})
	}
	return fields
}
