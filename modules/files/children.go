package files

import (
	"encoding/json"
	"reflect"

	"tenantry/operation"
)

// Children is a list of children: an array or, if the caller asked for a page, an object with that page.
type Children[T any] struct {
	all  []T
	page *operation.Page[T]
}

// The two kinds of children.
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

// OpenAPISchema describes both forms. Each type stands for its schema.
func (c Children[T]) OpenAPISchema() map[string]any {
	return map[string]any{"oneOf": []any{reflect.TypeFor[[]T](), reflect.TypeFor[operation.Page[T]]()}}
}
