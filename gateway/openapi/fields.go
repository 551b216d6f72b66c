package openapi

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// field is a member that encoding/json writes for a struct.
type field struct {
	name   string
	typ    reflect.Type
	tag    reflect.StructTag
	always bool // the member is there in every value
	null   bool // a nil pointer is written as null
	quoted bool
}

// jsonFields returns the members that encoding/json writes for a struct type, in its order: embedded structs are
// flattened, and of several fields of one name the shallowest wins, among equals none. That goes by their names in Go;
// answers have none that are one by the names in JSON alone.
func jsonFields(t reflect.Type) []field {
	var fields []field
	var apart []int // the last embedded struct that is a member itself, or none: so its fields are not
	for _, sf := range reflect.VisibleFields(t) {
		if len(apart) > 0 && len(sf.Index) > len(apart) && slices.Equal(sf.Index[:len(apart)], apart) {
			continue
		}
		tag := sf.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		elem := pointed(sf.Type)
		embedded := sf.Anonymous && elem.Kind() == reflect.Struct
		if embedded && name == "" {
			continue
		} else if embedded {
			apart = sf.Index
		}
		if tag == "-" || !sf.IsExported() && !embedded {
			continue
		}
		option := strings.Split(options, ",")
		f := field{name: cmp.Or(name, sf.Name), typ: sf.Type, tag: sf.Tag}
		f.always = !slices.Contains(option, "omitzero") && !(slices.Contains(option, "omitempty") && canBeEmpty(sf.Type))
		f.null = f.always && sf.Type.Kind() == reflect.Pointer
		for n := 1; n < len(sf.Index); n++ { // below an embedded pointer, which may be nil
			f.always = f.always && t.FieldByIndex(sf.Index[:n]).Type.Kind() != reflect.Pointer
		}
		f.quoted = slices.Contains(option, "string") && isScalar(elem)
		fields = append(fields, f)
	}
	return fields
}

// pointed returns what an unnamed pointer type points to, any other type itself.
func pointed(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		return t.Elem()
	}
	return t
}

// canBeEmpty reports whether omitempty can leave a value of the type out.
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
