package files

import (
	"encoding/json"
	"reflect"
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

// OpenAPISchema describes both shapes; the type of the list stands for its schema.
func (c Children[T]) OpenAPISchema() map[string]any {
	list := reflect.TypeFor[[]T]()
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
