package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects of a body may nest.
const MaxDepth = 32

// Body is a JSON object, read strictly. The zero value is an empty one. Names are matched
// exactly, case included.
type Body struct {
	fields map[string]json.RawMessage
	names  []string // in the order given
}

// ParseBody reads one JSON object. Broken JSON, invalid UTF-8, a name given twice in one
// object, depth over MaxDepth and bytes after the object are a 400 that says where.
func ParseBody(raw []byte) (Body, error) {
	if err := CheckJSON(raw); err != nil {
		return Body{}, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return Body{}, BadRequest("The body must be a JSON object")
	}
	b := Body{fields: map[string]json.RawMessage{}}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return Body{}, BadRequest("The body is not valid JSON")
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return Body{}, BadRequest("The body is not valid JSON")
		}
		key, _ := name.(string)
		b.fields[key] = value
		b.names = append(b.names, key)
	}
	return b, nil
}

// CheckJSON reports whether raw is exactly one acceptable JSON value.
func CheckJSON(raw []byte) error {
	if bytes.HasPrefix(raw, []byte("\xef\xbb\xbf")) {
		return BadRequest("The body starts with a byte order mark; send plain UTF-8")
	}
	if !utf8.Valid(raw) {
		return BadRequest("The body is not valid UTF-8, at byte %d", invalidAt(raw)+1)
	}
	if len(bytes.TrimSpace(raw)) == 0 {
		return BadRequest("The body is empty; a JSON object is expected")
	}
	if at := tooDeep(raw); at >= 0 {
		return BadRequest("The body nests deeper than %d levels, at byte %d", MaxDepth, at+1)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := checkValue(dec, raw); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return BadRequest("The body has bytes after its JSON value, at byte %d", dec.InputOffset()+1)
	}
	return nil
}

// tooDeep returns where brackets outside strings first nest deeper than MaxDepth, -1 where
// they never do. It needs no valid JSON.
func tooDeep(raw []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > MaxDepth {
				return i
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return -1
}

// invalidAt returns where raw stops being UTF-8.
func invalidAt(raw []byte) int {
	at := 0
	for at < len(raw) {
		r, size := utf8.DecodeRune(raw[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

func checkValue(dec *json.Decoder, raw []byte) error {
	t, err := dec.Token()
	if err != nil {
		return brokenJSON(raw)
	}
	delim, ok := t.(json.Delim)
	if !ok {
		if s, isText := t.(string); isText && strings.ContainsRune(s, 0) {
			return BadRequest("The body contains a NUL character, at byte %d", dec.InputOffset())
		}
		return nil
	}
	seen := map[string]bool{}
	for dec.More() {
		if delim == '{' {
			name, err := dec.Token()
			if err != nil {
				return brokenJSON(raw)
			}
			key, _ := name.(string)
			if seen[key] {
				return BadRequest("The body gives the name %q twice in one object, at byte %d", Clip(key), dec.InputOffset())
			}
			if strings.ContainsRune(key, 0) {
				return BadRequest("The body contains a NUL character, at byte %d", dec.InputOffset())
			}
			seen[key] = true
		}
		if err := checkValue(dec, raw); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return brokenJSON(raw)
	}
	return nil
}

// brokenJSON says where raw stops being JSON, counting bytes from 1.
func brokenJSON(raw []byte) error {
	var v any
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(raw, &v), &syntax) {
		return BadRequest("The body is not valid JSON")
	}
	if syntax.Offset >= int64(len(raw)) && strings.Contains(syntax.Error(), "unexpected end") {
		return BadRequest("The body is not valid JSON: it ends too early, after byte %d", len(raw))
	}
	return BadRequest("The body is not valid JSON, at byte %d", syntax.Offset)
}

// Clip shortens outside text for a message.
func Clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "..."
	}
	return s
}

// Has reports whether the field is there.
func (b Body) Has(name string) bool { _, ok := b.fields[name]; return ok }

// Names returns the names of the fields in the order given.
func (b Body) Names() []string { return b.names }

// Raw returns the field's JSON, nil where it is absent.
func (b Body) Raw(name string) json.RawMessage { return b.fields[name] }

// Text returns a text field and whether it is there. Anything but a string is noted in errs.
func (b Body) Text(errs *Errors, name string) (string, bool) {
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
func (b Body) Required(errs *Errors, name string, maxRunes int) string {
	if !b.Has(name) {
		errs.Add(name, "required", "%s is required", name)
		return ""
	}
	return b.Optional(errs, name, maxRunes)
}

// Optional returns a text field that may be absent, but not blank, at most maxRunes long.
func (b Body) Optional(errs *Errors, name string, maxRunes int) string {
	s, ok := b.Text(errs, name)
	switch {
	case !ok:
		return ""
	case strings.TrimSpace(s) == "":
		errs.Add(name, "required", "%s must not be empty", name)
	case utf8.RuneCountInString(s) > maxRunes:
		errs.Add(name, "length", "%s must have at most %d characters", name, maxRunes)
	}
	return s
}

// Integer returns a whole-number field from least to most, or the fallback where it is
// absent. Anything else is noted in errs.
func (b Body) Integer(errs *Errors, name string, least, most, fallback int64) int64 {
	raw, ok := b.fields[name]
	if !ok {
		return fallback
	}
	var n int64
	if string(raw) == "null" || json.Unmarshal(raw, &n) != nil || n < least || n > most {
		errs.Add(name, "range", "%s must be a whole number from %d to %d", name, least, most)
		return fallback
	}
	return n
}

// Object returns an object field and whether it is there. Numbers in it are json.Number.
// Anything but an object is noted in errs.
func (b Body) Object(errs *Errors, name string) (map[string]any, bool) {
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

// BindBody holds the body against the operation's fields: what the operation does not
// know is noted as ignored.
func (c *Call) BindBody(b Body) {
	c.Body = b
	for _, name := range b.names {
		if name == "teams" && c.Operation.Teams {
			continue
		}
		known := false
		for _, f := range c.Operation.Body {
			known = known || f.Name == name
		}
		if !known {
			c.Ignore(name)
		}
	}
}
