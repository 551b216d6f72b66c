package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// object is a JSON object that keeps the order of its members, so that the document reads
// in the order people expect.
type object []member

type member struct {
	name  string
	value any
}

// with returns the object with the member set, replaced in place where it is there already.
func (o object) with(name string, value any) object {
	for i := range o {
		if o[i].name == name {
			changed := slices.Clone(o)
			changed[i].value = value
			return changed
		}
	}
	return append(slices.Clip(o), member{name, value})
}

// get returns the member's value, nil where there is none.
func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// sorted returns the members of m in the order of their names.
func sorted[V any](m map[string]V) object {
	o := object{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		o = append(o, member{name, m[name]})
	}
	return o
}

// MarshalJSON returns the members in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := encode(m.name)
		if err != nil {
			return nil, err
		}
		value, err := encode(m.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode is json.Marshal without the escapes for HTML, which make descriptions unreadable.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
