package files

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Children is a list of children: an array or, where the caller asked for a page, an
// object with that page.
type Children[T any] struct {
	all  []T
	page *Page[T]
}

// Page is one page of children.
type Page[T any] struct {
	Page    int64 `json:"page"`
	Pages   int64 `json:"pages"`
	Count   int64 `json:"count"`
	Results []T   `json:"results"`
}

// The two lists of children.
type (
	FileChildren   = Children[FileAnswer]
	FolderChildren = Children[ChildFolder]
)

// MarshalJSON writes the array or the page.
func (c Children[T]) MarshalJSON() ([]byte, error) {
	if c.page != nil {
		return json.Marshal(c.page)
	}
	if c.all == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(c.all)
}

// OpenAPISchema describes both shapes.
func (c Children[T]) OpenAPISchema() map[string]any {
	list := map[string]any{"type": "array", "items": objectSchema(reflect.TypeFor[T]())}
	whole := func(least int, doc string) map[string]any {
		return map[string]any{"type": "integer", "minimum": least, "description": doc}
	}
	return map[string]any{"oneOf": []any{list, map[string]any{
		"type":                 "object",
		"required":             []string{"page", "pages", "count", "results"},
		"additionalProperties": false,
		"properties": map[string]any{
			"page":    whole(1, "The page asked for."),
			"pages":   whole(0, "How many pages there are; 0 where there is nothing."),
			"count":   whole(0, "How many children there are on all pages."),
			"results": list,
		},
	}}}
}

// objectSchema describes a flat answer by its tags: text, whole numbers, booleans and
// lists of text.
func objectSchema(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		typ, optional := f.Type, strings.Contains(options, "omitempty")
		nullable := typ.Kind() == reflect.Pointer && !optional
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		property := map[string]any{"description": f.Tag.Get("doc")}
		kind := "string"
		switch typ.Kind() {
		case reflect.Int64:
			kind = "integer"
		case reflect.Bool:
			kind = "boolean"
		case reflect.Slice:
			kind, property["items"] = "array", map[string]any{"type": "string"}
		}
		property["type"] = kind
		if nullable {
			property["type"] = []string{kind, "null"}
		}
		properties[name] = property
		if !optional {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}
