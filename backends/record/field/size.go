package field

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Size returns the size of the record's value as JSON in bytes, 0 if it is empty. It is approximate for numbers.
func (f *Field) Size(rec any) int {
	v := at(rec, f.Index)
	switch {
	case empty(v):
		return 0
	case v.Kind() == reflect.String:
		return textSize(v.String())
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		size := 2
		for i := range v.Len() {
			size += 1 + textSize(v.Index(i).String())
		}
		return size
	case v.Kind() == reflect.Bool, v.CanInt():
		return 8 // approximately
	}
	if values, ok := v.Interface().(map[string]any); ok {
		return SizeOf(values)
	}
	return len(f.Append(nil, rec))
}

// SizeOf returns the size of a value of a defined field as JSON in bytes, which is approximate for some types.
func SizeOf(value any) int {
	size := 2
	switch v := value.(type) {
	case string:
		return textSize(v)
	case json.Number:
		return len(v)
	case []any:
		for i := range v {
			size += 1 + SizeOf(v[i])
		}
	case []string:
		for i := range v {
			size += 1 + textSize(v[i])
		}
	case map[string]any:
		for name, one := range v {
			size += 2 + textSize(name) + SizeOf(one)
		}
	default: // true, false, null and Go numbers
		return 8
	}
	return size
}

// Values returns the approximate number of JSON values in the record's value, 0 if it is empty.
func (f *Field) Values(rec any) int {
	v := at(rec, f.Index)
	if empty(v) {
		return 0
	}
	if values, ok := v.Interface().(map[string]any); ok {
		return ValuesOf(values)
	}
	switch v.Kind() {
	case reflect.String, reflect.Bool:
		return 1
	case reflect.Slice:
		return 1 + v.Len()
	}
	text := f.Append(nil, rec)
	return 1 + bytes.Count(text, []byte(",")) + bytes.Count(text, []byte("[")) + bytes.Count(text, []byte("{"))
}

// ValuesOf returns the number of JSON values in a value of a defined field: itself, its elements and its members.
func ValuesOf(value any) int {
	n := 1
	switch v := value.(type) {
	case []any:
		for i := range v {
			n += ValuesOf(v[i])
		}
	case []string:
		n += len(v)
	case map[string]any:
		for _, one := range v {
			n += ValuesOf(one)
		}
	}
	return n
}

// textSize returns how many bytes strictjson.AppendText writes for a text.
func textSize(s string) int {
	size := len(s) + 2
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
			size++
		case c < ' ':
			size += 5
		}
	}
	return size
}
