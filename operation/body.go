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

// Body is a JSON object, read strictly. The zero value is an empty one. Names are matched
// exactly, case included.
type Body struct {
	fields map[string]json.RawMessage
	names  []string // in the order given
	// values are those of the whole body, also where they are not held, and objects those among them.
	values, objects int
}

// ParseBody reads one JSON object. Broken JSON, invalid UTF-8, a name given twice in one
// object, depth over strictjson.MaxDepth, more than MaxBulkValues and bytes after the object are a
// 400 that says where.
func ParseBody(raw []byte) (Body, error) { return readBody(nil, nil, raw) }

// ReadBody reads a body as ParseBody does, of at most ValuesMax values, while it arrives, and no
// further than to its first fault. Fields that the operation does not know are checked, and the
// first few of them named, but none is held; nor is an array or object where only a scalar can be
// right, in whose place an empty one stands, nor more than one element beyond those that a list may
// have. An error of src is returned as it is.
func (o *Row) ReadBody(src io.Reader) (Body, error) { return readBody(o, src, nil) }

// readBody reads an object with all its fields, or those of an operation.
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

// Memory returns about how many bytes of memory the body takes until what is made of it is stored.
func (b Body) Memory() int64 {
	bytes := 0
	for name, raw := range b.fields {
		bytes += len(name) + len(raw)
	}
	return strictjson.Memory(bytes, b.values, b.objects)
}

// takes returns what the operation does with a field of the body, and how many elements it may have
// if it is a list; 0: any number. Without an operation every field is wanted.
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

// Has reports whether the field is there.
func (b Body) Has(name string) bool { _, ok := b.fields[name]; return ok }

// read reports whether there was a body.
func (b Body) read() bool { return b.fields != nil }

// Names returns the names of the fields in the order given.
func (b Body) Names() []string { return b.names }

// Raw returns the field's JSON, nil where it is absent.
func (b Body) Raw(name string) json.RawMessage { return b.fields[name] }

// Value returns the field's value, null where it is absent.
func (b Body) Value(name string) strictjson.Value {
	var p strictjson.Parser
	v, _ := p.Parse(string(b.fields[name])) // it was checked when it was read; "" is null
	return v
}

// Text returns a text field and whether it is there. Anything but a string is noted in errs.
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

// Required returns a text field that must be there and not blank, at most maxRunes long.
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

// Object returns an object field and whether it is there. Numbers in it are json.Number.
// Anything but an object is noted in errs.
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

// Decode decodes checked JSON, keeping numbers as json.Number.
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
			return []string{""} // no identifier, but named
		}
		return []string{one}
	}
	var teams []string
	for _, v := range values {
		if s, ok := v.(string); ok {
			teams = append(teams, s)
		} else {
			teams = append(teams, "") // not an identifier, but named
		}
	}
	return teams
}

// BindBody holds the body against the operation's fields. What the operation does not know
// is noted as ignored where it is the contract's, else as Unknown: a 422 that names all of it.
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
	errs.Add(texts.Clip(name), fault.Unknown, "%q is no field that can be set here", texts.Clip(name))
}
