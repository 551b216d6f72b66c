package openapi

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// field is a struct field that encoding/json writes.
type field struct {
	name     string
	typ      reflect.Type
	tag      reflect.StructTag
	required bool // every value has the member
	nullable bool // a nil pointer is written as null
	quoted   bool
}

// jsonFields returns the fields of a struct type that encoding/json writes, in order. Embedded structs are flattened.
// Among fields of the same name the shallowest wins; if there are several at that depth, none does. Unlike
// encoding/json it compares Go names; types of answers have no fields whose names clash in JSON alone.
func jsonFields(t reflect.Type) []field {
	var fields []field
	var parent []int // index of the last embedded struct that is a member itself, so that its fields are not
	for _, sf := range reflect.VisibleFields(t) {
		if len(parent) > 0 && len(sf.Index) > len(parent) && slices.Equal(sf.Index[:len(parent)], parent) {
			continue
		}
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		elem := deref(sf.Type)
		embedded := sf.Anonymous && elem.Kind() == reflect.Struct
		if embedded && name == "" {
			continue
		} else if embedded {
			parent = sf.Index
		}
		if tag == "-" || !sf.IsExported() && !embedded {
			continue
		}
		option := strings.Split(options, ",")
		f := field{name: cmp.Or(name, sf.Name), typ: sf.Type, tag: sf.Tag}
		f.required = !slices.Contains(option, "omitzero") &&
			!(slices.Contains(option, "omitempty") && canBeEmpty(sf.Type))
		f.nullable = f.required && sf.Type.Kind() == reflect.Pointer
		for n := 1; n < len(sf.Index); n++ { // below an embedded pointer, which may be nil
			f.required = f.required && t.FieldByIndex(sf.Index[:n]).Type.Kind() != reflect.Pointer
		}
		f.quoted = slices.Contains(option, "string") && isScalar(elem)
		fields = append(fields, f)
	}
	return fields
}

// deref returns the element type of an unnamed pointer type, and other types as they are.
func deref(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		return t.Elem()
	}
	return t
}

// canBeEmpty reports whether omitempty can leave out a value of the type.
func canBeEmpty(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return false
	case reflect.Array:
		return t.Len() == 0
	}
	return true
}

func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return true
	}
	return false
}
