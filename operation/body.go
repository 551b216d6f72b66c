package operation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// Body is a JSON object, read strictly. The zero value is an empty object. Names are case-sensitive.
type Body struct {
	fields map[string]json.RawMessage
	names  []string // in the order given
	// values counts all values of the body, including those that are not held; objects counts the objects among them.
	values, objects int
}

// ParseBody reads one JSON object. Its error is a 400 that says where the fault is: malformed JSON, invalid UTF-8, a
// duplicate name in an object, more levels than strictjson.MaxDepth, more values than MaxBulkValues, or bytes after
// the object.
func ParseBody(raw []byte) (Body, error) { return readBody(nil, nil, raw) }

// ReadBody reads a body as ParseBody does, while it arrives, and stops at the first fault. It allows ValuesMax values.
// Fields that the operation does not know are checked, and the first maxIgnored are named, but their values are not
// held. An array or object in place of a scalar is held as an empty one, and of a list at most one element more than
// allowed is held. An error of src is returned unchanged.
func (o *Row) ReadBody(src io.Reader) (Body, error) { return readBody(o, src, nil) }

// readBody reads an object with all its fields, or only those of an operation if o is not nil.
func readBody(o *Row, src io.Reader, raw []byte) (Body, error) {
	b := Body{fields: map[string]json.RawMessage{}}
	most, unknown := MaxBulkValues, 0
	if o != nil {
		most = o.ValuesMax()
	}
	read, err := strictjson.ReadObject(src, raw, most, func(name []byte) (wanted strictjson.Want, elements int) {
		wanted, elements = o.takes(name)
		if wanted == strictjson.Skip {
			if unknown++; unknown > maxIgnored {
				return wanted, elements
			}
		}
		b.names = append(b.names, string(name))
		return wanted, elements
	})
	var fault strictjson.Error
	switch {
	case errors.As(err, &fault):
		return Body{}, BadRequest("The body %s", string(fault))
	case err != nil:
		return Body{}, err
	}
	b.values, b.objects = read.Values, read.Objects
	for _, f := range read.All {
		b.fields[f.Name] = f.Raw
	}
	return b, nil
}

// Memory estimates how many bytes of memory the body takes until the values made of it are stored.
func (b Body) Memory() int64 {
	bytes := 0
	for name, raw := range b.fields {
		bytes += len(name) + len(raw)
	}
	return strictjson.Memory(bytes, b.values, b.objects)
}

// takes returns how the operation reads a field of the body, and how many elements the field may have if it is a list;
// 0: any number. A nil operation reads every field.
func (o *Row) takes(name []byte) (wanted strictjson.Want, elements int) {
	if o == nil || o.Teams && string(name) == "teams" {
		return strictjson.Whole, 0
	}
	for i := range o.Body {
		if f := &o.Body[i]; f.Name == string(name) {
			if f.Shape == Text || f.Shape == Integer || f.Shape == Boolean {
				return strictjson.Scalar, 0
			}
			return strictjson.Whole, f.Elements
		}
	}
	return strictjson.Skip, 0
}

// Has reports whether the field is present.
func (b Body) Has(name string) bool { _, ok := b.fields[name]; return ok }

// read reports whether there was a body.
func (b Body) read() bool { return b.fields != nil }

// Names returns the names of the fields in the order given.
func (b Body) Names() []string { return b.names }

// Raw returns the field's JSON; nil if the field is absent.
func (b Body) Raw(name string) json.RawMessage { return b.fields[name] }

// Value returns the field's value; null if the field is absent.
func (b Body) Value(name string) strictjson.Value {
	var p strictjson.Parser
	v, _ := p.Parse(string(b.fields[name])) // readBody has checked it; "" is null
	return v
}

// Text returns a text field and whether it is present. A value of another type is noted in errs.
func (b Body) Text(errs *fault.List, name string) (string, bool) {
	raw, ok := b.fields[name]
	if !ok {
		return "", false
	}
	if len(raw) == 0 || raw[0] != '"' {
		errs.Add(name, "type", "%s must be a string", name)
		return "", false
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		errs.Add(name, "type", "%s must be a string", name)
		return "", false
	}
	return s, true
}

// Required returns a required text field of at most maxRunes characters. A field that is absent, blank or longer is
// noted in errs.
func (b Body) Required(errs *fault.List, name string, maxRunes int) string {
	if !b.Has(name) {
		errs.Add(name, "required", "%s is required", name)
		return ""
	}
	s, ok := b.Text(errs, name)
	switch {
	case !ok:
	case strings.TrimSpace(s) == "":
		errs.Add(name, "required", "%s must not be empty", name)
	case utf8.RuneCountInString(s) > maxRunes:
		errs.Add(name, "length", "%s must have at most %d characters", name, maxRunes)
	}
	return s
}

// Object returns an object field and whether it is present. Numbers in it are json.Number. A value of another type is
// noted in errs.
func (b Body) Object(errs *fault.List, name string) (map[string]any, bool) {
	raw, ok := b.fields[name]
	if !ok {
		return nil, false
	}
	if len(raw) == 0 || raw[0] != '{' {
		errs.Add(name, "type", "%s must be an object", name)
		return nil, false
	}
	var m map[string]any
	if err := Decode(raw, &m); err != nil {
		errs.Add(name, "type", "%s must be an object", name)
		return nil, false
	}
	return m, true
}

// Decode decodes JSON and keeps numbers as json.Number.
func Decode(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("decoding JSON: %w", err)
	}
	return nil
}

func (b Body) teams() []string {
	raw, ok := b.fields["teams"]
	if !ok {
		return nil
	}
	var values []any
	if json.Unmarshal(raw, &values) != nil {
		var one string
		if string(raw) == "null" || json.Unmarshal(raw, &one) != nil {
			return []string{""} // not an identifier, but given
		}
		return []string{one}
	}
	var teams []string
	for _, v := range values {
		if s, ok := v.(string); ok {
			teams = append(teams, s)
		} else {
			teams = append(teams, "") // not an identifier, but given
		}
	}
	return teams
}

// BindBody checks the names of the body against the operation's fields. Unknown fields are ignored by operations of
// the contract; for other operations they are collected in Unknown, for one 422 that names all of them.
func (c *Call) BindBody(b Body) {
	c.Body = b
	for _, name := range b.names {
		switch wanted, _ := c.Operation.takes([]byte(name)); {
		case wanted != strictjson.Skip:
		case c.Operation.Contract:
			c.Ignore(name)
		default:
			Unknown(&c.Unknown, name)
		}
	}
}

// Unknown notes that callers cannot set a field of that name.
func Unknown(errs *fault.List, name string) {
	errs.Add(texts.Clip(name), fault.Unknown, "%q is not a field that can be set here", texts.Clip(name))
}
