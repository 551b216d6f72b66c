package mongo

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"tenantry/backends/store/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// shape is what a collection's declaration amounts to. It is immutable and shared by all workspaces.
type shape struct {
	name      string
	fields    []driver.Field
	types     map[string]driver.Type
	indexes   []definition
	signature string // name and indexes
	finding   string // what a call does, for errors
	counting  string
}

// kind is a collection of a database.
type kind struct {
	*shape
	coll *mongo.Collection
}

func newShape(c *driver.Collection) (*shape, error) {
	if c == nil || c.Name == "" {
		return nil, errors.New("a collection has no name")
	}
	s := &shape{name: c.Name, finding: "find in " + c.Name, counting: "count in " + c.Name, fields: c.Fields, types: make(map[string]driver.Type, len(c.Fields))}
	for _, f := range c.Fields {
		if strings.Trim(f.Name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || f.Name == "" {
			return nil, fmt.Errorf("collection %s: field %q: a name consists of a-z, 0-9 and _", c.Name, f.Name)
		}
		s.types[f.Name] = f.Type
	}
	for _, x := range c.Indexes {
		for _, f := range x.Fields {
			if _, ok := s.types[f]; !ok {
				return nil, fmt.Errorf("collection %s: index %s names the undeclared field %q", c.Name, x.Name, f)
			}
		}
	}
	s.indexes = definitions(c)
	sum := sha256.New()
	for _, d := range s.indexes {
		sum.Write([]byte(d.name + "\x00"))
	}
	s.signature = c.Name + " " + hex.EncodeToString(sum.Sum(nil)[:8])
	return s, nil
}

// maxShapes bounds what is remembered of declarations, which a program has a few dozen of.
const maxShapes = 4096

func (e *Engine) kind(db *mongo.Database, c *driver.Collection) (*kind, error) {
	e.mu.Lock()
	s := e.shapes[c]
	e.mu.Unlock()
	if s == nil {
		var err error
		if s, err = newShape(c); err != nil {
			return nil, err
		}
		e.mu.Lock()
		if len(e.shapes) >= maxShapes {
			clear(e.shapes)
		}
		e.shapes[c] = s
		e.mu.Unlock()
	}
	return &kind{shape: s, coll: db.Collection(s.name)}, nil
}

// document returns what is stored for a document of the workspace at that revision.
func (k *kind) document(workspace string, d *driver.Document, rev int64) (bson.D, error) {
	if len(d.Values) != len(k.fields) {
		return nil, fmt.Errorf("document %s of %s has %d values for %d fields", d.ID, k.name, len(d.Values), len(k.fields))
	}
	if !utf8.Valid(d.Body) {
		return nil, fmt.Errorf("document %s of %s: the body is not UTF-8", d.ID, k.name)
	}
	doc := make(bson.D, 0, 8)
	doc = append(doc, bson.E{Key: "_id", Value: workspace + "/" + d.ID}, bson.E{Key: "org_id", Value: workspace},
		bson.E{Key: "rev", Value: rev}, bson.E{Key: "body", Value: string(d.Body)})
	if d.Custom != nil {
		doc = append(doc, bson.E{Key: "custom", Value: string(d.Custom)})
	}
	values := make(bson.D, 0, len(k.fields))
	for i, f := range k.fields {
		v, err := stored(f, d.Values[i])
		if err != nil {
			return nil, fmt.Errorf("document %s of %s: %w", d.ID, k.name, err)
		}
		if v != nil {
			values = append(values, bson.E{Key: f.Name, Value: v})
		}
	}
	if len(values) > 0 {
		doc = append(doc, bson.E{Key: "f", Value: values})
	}
	if d.Custom == nil {
		return doc, nil
	}
	scalars, lists, err := split(d.Custom)
	if err != nil {
		return nil, fmt.Errorf("document %s of %s: %w", d.ID, k.name, err)
	}
	if len(scalars) > 0 {
		doc = append(doc, bson.E{Key: "c", Value: scalars})
	}
	if len(lists) > 0 {
		doc = append(doc, bson.E{Key: "l", Value: lists})
	}
	return doc, nil
}

// stored returns what is stored for the value of a declared field, nil for what is absent.
func stored(f driver.Field, v any) (any, error) {
	ok := false
	switch x := v.(type) {
	case nil:
		return nil, nil
	case string:
		ok = f.Type == driver.String || f.Type == driver.Date || f.Type == driver.Any
		v = strings.ToValidUTF8(x, "\uFFFD")
	case int64:
		ok = numeric(f.Type) || f.Type == driver.Any
	case float64:
		ok = numeric(f.Type) || f.Type == driver.Any
		if math.IsNaN(x) {
			v = nil
		}
	case bool:
		ok = f.Type == driver.Bool || f.Type == driver.Any
	case []string:
		if ok = f.Type == driver.Strings; !ok {
			break
		}
		if len(x) == 0 {
			return nil, nil
		}
		list := make(bson.A, len(x))
		for i, s := range x {
			list[i] = strings.ToValidUTF8(s, "\uFFFD")
		}
		v = list
	}
	if !ok {
		return nil, fmt.Errorf("field %s cannot hold a %T", f.Name, v)
	}
	return v, nil
}

func numeric(t driver.Type) bool {
	return t == driver.Int || t == driver.Float || t == driver.Time
}

// split takes a custom object apart for questions. A list or object is also kept among the scalars, as
// binary: there it exists, equals nothing and is in no range.
func split(custom []byte) (scalars, lists bson.D, err error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(custom, &object); err != nil {
		return nil, nil, errors.New("the custom values are no JSON object")
	}
	for _, k := range slices.Sorted(maps.Keys(object)) {
		v, list, err := customValue(object[k])
		if err != nil {
			return nil, nil, err
		}
		if v != nil {
			scalars = append(scalars, bson.E{Key: encodeKey(k), Value: v})
		}
		if list != nil {
			lists = append(lists, bson.E{Key: encodeKey(k), Value: list})
		}
	}
	return scalars, lists, nil
}

// customValue returns the scalar of a custom value, nil for null, and the strings of a
// list, nil where it is none or has nothing but nulls.
func customValue(raw json.RawMessage) (any, bson.A, error) {
	switch raw[0] {
	case 'n':
		return nil, nil, nil
	case 't', 'f':
		return raw[0] == 't', nil, nil
	case '{':
		return composite(raw), nil, nil
	case '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return text, nil, err
	case '[':
		var elements []any
		if err := json.Unmarshal(raw, &elements); err != nil {
			return nil, nil, err
		}
		var list bson.A
		for _, e := range elements {
			if e != nil && list == nil {
				list = bson.A{}
			}
			if s, ok := e.(string); ok {
				list = append(list, s)
			}
		}
		return composite(raw), list, nil
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, nil, nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil && !math.IsInf(f, 0) {
		return nil, nil, errors.New("a custom number cannot be read")
	}
	return f, nil, nil
}

func composite(raw json.RawMessage) bson.Binary {
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // it has been decoded already
	return bson.Binary{Data: b.Bytes()}
}

// encodeKey makes a custom key the name of a field: no dot, dollar, NUL or empty name comes through, and
// two keys never become one. A percent sign is always encoded itself, so "%" alone is free for the empty key.
func encodeKey(key string) string {
	if key == "" {
		return "%"
	}
	const hexDigits = "0123456789ABCDEF"
	var b []byte
	for i := range len(key) {
		c := key[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			if b != nil {
				b = append(b, c)
			}
			continue
		}
		if b == nil {
			b = append(make([]byte, 0, 3*len(key)), key[:i]...)
		}
		b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
	}
	if b == nil {
		return key
	}
	return string(b)
}

// projection returns what decode reads, encoded.
func projection() (bson.Raw, error) {
	return bson.Marshal(bson.D{{Key: "_id", Value: int32(1)}, {Key: "rev", Value: int32(1)}, {Key: "body", Value: int32(1)}, {Key: "custom", Value: int32(1)}})
}

// decode returns the document that was stored.
func (w *workspace) decode(raw bson.Raw) (driver.Document, error) {
	var d driver.Document
	id, ok := raw.Lookup("_id").StringValueOK()
	if !ok || len(id) <= len(w.name) || id[:len(w.name)] != w.name || id[len(w.name)] != '/' {
		return d, fault{fmt.Errorf("workspace %s: a document has an _id that is not this program's", w.name)}
	}
	d.ID = id[len(w.name)+1:]
	if d.Rev, ok = raw.Lookup("rev").AsInt64OK(); !ok {
		return d, fault{fmt.Errorf("workspace %s: document %s has no revision", w.name, d.ID)}
	}
	d.Body, d.Custom = text(raw.Lookup("body")), text(raw.Lookup("custom"))
	return d, nil
}

// text returns a copy of a string's bytes, nil where the value is none.
func text(v bson.RawValue) []byte {
	if v.Type != bson.TypeString || len(v.Value) < 5 {
		return nil
	}
	return append(make([]byte, 0, len(v.Value)-5), v.Value[4:len(v.Value)-1]...)
}
