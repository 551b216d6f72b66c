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
	index  []int
	tagged bool
	always bool // the member is there in every value
	null   bool // a nil pointer is written as null
	quoted bool
}

// jsonFields returns the members that encoding/json writes for a struct type, in its
// order: embedded structs are flattened, and of several fields of one name the shallowest
// wins, among equals the only tagged one, else none.
func jsonFields(t reflect.Type) []field {
	var all []field
	collect(t, nil, true, nil, &all)
	byName := map[string][]field{}
	for _, f := range all {
		byName[f.name] = append(byName[f.name], f)
	}
	var kept []field
	for _, candidates := range byName {
		if f, ok := dominant(candidates); ok {
			kept = append(kept, f)
		}
	}
	slices.SortFunc(kept, func(a, b field) int { return slices.Compare(a.index, b.index) })
	return kept
}

func dominant(candidates []field) (field, bool) {
	slices.SortStableFunc(candidates, func(a, b field) int {
		if c := cmp.Compare(len(a.index), len(b.index)); c != 0 {
			return c
		}
		switch {
		case a.tagged == b.tagged:
			return 0
		case a.tagged:
			return -1
		}
		return 1
	})
	first := candidates[0]
	if len(candidates) > 1 {
		second := candidates[1]
		if len(second.index) == len(first.index) && second.tagged == first.tagged {
			return field{}, false
		}
	}
	return first, true
}

// collect gathers the fields of t and of the structs it embeds. Always is false below an
// embedded pointer, whose fields are missing where it is nil.
func collect(t reflect.Type, index []int, always bool, above []reflect.Type, into *[]field) {
	if slices.Contains(above, t) {
		return
	}
	above = append(slices.Clip(above), t)
	for i := range t.NumField() {
		sf := t.Field(i)
		tag := sf.Tag.Get("json")
		if tag == "-" {
			continue
		}
		elem := sf.Type
		if elem.Kind() == reflect.Pointer && elem.Name() == "" {
			elem = elem.Elem()
		}
		if !sf.IsExported() && (!sf.Anonymous || elem.Kind() != reflect.Struct) {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		at := append(slices.Clone(index), i)
		if sf.Anonymous && name == "" && elem.Kind() == reflect.Struct {
			collect(elem, at, always && sf.Type.Kind() != reflect.Pointer, above, into)
			continue
		}
		f := field{name: name, typ: sf.Type, tag: sf.Tag, index: at, tagged: name != ""}
		if name == "" {
			f.name = sf.Name
		}
		option := strings.Split(options, ",")
		omitted := slices.Contains(option, "omitzero") || slices.Contains(option, "omitempty") && canBeEmpty(sf.Type)
		f.always = always && !omitted
		f.null = sf.Type.Kind() == reflect.Pointer && !omitted
		f.quoted = slices.Contains(option, "string") && isScalar(elem)
		*into = append(*into, f)
	}
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
