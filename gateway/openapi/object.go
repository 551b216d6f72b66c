package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// object is a JSON object that keeps the order of its members, so that the document has the order that people expect.
type object []member

type member struct {
	name  string
	value any
}

// with returns a copy with the member set, in its place if the object has it already.
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

// get returns the value of a member, or nil if there is none.
func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// sorted returns the entries of m as members, sorted by name.
func sorted[V any](m map[string]V) object {
	o := object{}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		o = append(o, member{name, m[name]})
	}
	return o
}

// MarshalJSON returns the members in their order.
func (o object) MarshalJSON() ([]byte, error) { return encode(o) }

// encode returns v as compact JSON. Objects keep their order, and HTML is not escaped, because escapes make
// descriptions unreadable.
func encode(v any) ([]byte, error) {
	w := &writer{}
	w.leaves = json.NewEncoder(&w.Buffer)
	w.leaves.SetEscapeHTML(false)
	err := w.write(v)
	return w.Bytes(), err
}

// writer writes objects and lists itself, because encoding/json parses the output of a json.Marshaler again at each
// level.
type writer struct {
	bytes.Buffer
	leaves *json.Encoder // writes other values to the Buffer
}

func (w *writer) write(v any) error {
	switch v := v.(type) {
	case object:
		w.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				w.WriteByte(',')
			}
			if err := w.write(m.name); err != nil {
				return err
			}
			w.WriteByte(':')
			if err := w.write(m.value); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
		w.WriteByte('}')
		return nil
	case []object:
		return writeList(w, v)
	case []any:
		return writeList(w, v)
	}
	if err := w.leaves.Encode(v); err != nil {
		return err
	}
	w.Truncate(w.Len() - 1) // Encode ends with a new line
	return nil
}

func writeList[V any](w *writer, list []V) error {
	w.WriteByte('[')
	for i, v := range list {
		if i > 0 {
			w.WriteByte(',')
		}
		if err := w.write(v); err != nil {
			return err
		}
	}
	w.WriteByte(']')
	return nil
}
