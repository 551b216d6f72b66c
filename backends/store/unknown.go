package store

import (
	"encoding/json"
	"reflect"
	"strings"
)

// unknown finds the members of stored bodies that a record type has no field for. During an upgrade, and after one was
// undone, a newer version of the program has written them. They are kept when the record is written again, so that a
// version does not drop what another one stored.
//
// Only the members of the body itself are kept, not those of objects inside it: a field that is added later belongs
// into the record, or is dropped by earlier versions.
type unknown struct {
	names map[string]struct{} // of the type's fields; nil: the type encodes itself
}

func newUnknown(typ reflect.Type) unknown {
	for _, own := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler]()} {
		if reflect.PointerTo(typ).Implements(own) {
			return unknown{}
		}
	}
	names := map[string]struct{}{}
	for _, f := range reflect.VisibleFields(typ) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && !f.Anonymous {
			name = f.Name
		}
		if name != "" && name != "-" {
			names[name] = struct{}{}
		}
	}
	return unknown{names}
}

// of returns the unknown members of a body, which is a valid JSON object, each with a comma before it.
func (u unknown) of(body []byte) string {
	if u.names == nil {
		return ""
	}
	var members []byte
	for i := skipTo(body, 0, '{') + 1; i < len(body); {
		start := skipTo(body, i, '"')
		if start == len(body) {
			break
		}
		end := textEnd(body, start)
		i = valueEnd(body, end)
		if !u.knows(body[start:end]) {
			members = append(append(members, ','), body[start:i]...)
		}
	}
	return string(members)
}

// knows reports whether the JSON string names a field of the type, to which encoding/json decodes it regardless of case.
func (u unknown) knows(quoted []byte) bool {
	if _, known := u.names[string(quoted[1:len(quoted)-1])]; known {
		return true
	}
	var name string
	if json.Unmarshal(quoted, &name) != nil {
		return false
	}
	for field := range u.names {
		if strings.EqualFold(field, name) {
			return true
		}
	}
	return false
}

// with returns the body with the members added.
func with(body []byte, members string) []byte {
	if members == "" {
		return body
	}
	return append(append(body[:len(body)-1], members...), '}')
}

// skipTo returns the index of the next such byte, or the length of the text.
func skipTo(text []byte, i int, b byte) int {
	for i < len(text) && text[i] != b {
		i++
	}
	return i
}

// textEnd returns the index behind the JSON string that begins at i.
func textEnd(text []byte, i int) int {
	for i++; i < len(text) && text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return min(i+1, len(text))
}

// valueEnd returns the index of the comma or brace that ends the member whose name ends at i.
func valueEnd(text []byte, i int) int {
	for depth := 0; i < len(text); {
		switch text[i] {
		case '"':
			i = textEnd(text, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
		case ',':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}
