package mongo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

const (
	// maxNesting stays below the nesting that MongoDB accepts.
	maxNesting = 80
	// maxTree bounds the size of a document as BSON, which takes much space for long lists of short values. A body that
	// exceeds it is stored as text.
	maxTree = 8 << 20
)

// Names of fields that this package adds to documents. Fields of records with such a name get an underscore at the end.
const (
	fieldID     = "_id"
	fieldOrg    = "org_id"
	fieldRev    = "rev"
	fieldCustom = "custom"
	fieldJSON   = "json" // {<field>: <its JSON>} of values that BSON cannot reproduce byte for byte
	fieldBody   = "body" // in fieldJSON: the entire body
)

func reserved(name string) bool {
	switch name {
	case fieldID, fieldOrg, fieldRev, fieldCustom, fieldJSON, fieldBody:
		return true
	}
	return false
}

// column returns the name under which a field of a record is stored.
func column(name string) string {
	if reserved(name) {
		return name + "_"
	}
	return name
}

// fieldOf returns the name of the field that is stored under the name column.
func fieldOf(column string) string {
	if name, is := strings.CutSuffix(column, "_"); is && reserved(name) {
		return name
	}
	return column
}

// plain reports whether a field of a body can be stored under its own name.
func plain(name string) bool { return name != "" && encodeKey(name) == name && fieldOf(name) == name }

// member is a value of a JSON object.
type member struct {
	name string
	raw  json.RawMessage
}

// members returns the members of a JSON object. Of members with the same name only the last remains.
func members(object []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not a JSON object")
	}
	var all []member
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errors.New("it is not a JSON object")
		}
		m := member{name: name}
		if err := dec.Decode(&m.raw); err != nil {
			return nil, errors.New("it is not a JSON object")
		}
		if seen[name] {
			all = slices.DeleteFunc(all, func(m member) bool { return m.name == name })
		}
		seen[name] = true
		all = append(all, m)
	}
	if _, err := dec.Token(); err != nil || len(bytes.TrimSpace(object[dec.InputOffset():])) > 0 {
		return nil, errors.New("it is not a JSON object")
	}
	return all, nil
}

// record is a document that is being encoded as BSON.
type record struct {
	k         *kind
	workspace string
	d         *driver.Document
	rev       int64
	values    []any // as stored, by declared field
	body      []member
	custom    []member
}

// document encodes a document of the workspace at that revision. Decoding it returns the same bytes: document verifies
// that, and stores the values that BSON cannot reproduce as text as well.
func (k *kind) document(workspace string, d *driver.Document, rev int64) (bson.Raw, error) {
	if len(d.Values) != len(k.fields) {
		return nil, fmt.Errorf("document %s of %s has %d values for %d fields", d.ID, k.name, len(d.Values), len(k.fields))
	}
	if !utf8.Valid(d.Body) {
		return nil, fmt.Errorf("document %s of %s: the body is not UTF-8", d.ID, k.name)
	}
	r := &record{k: k, workspace: workspace, d: d, rev: rev, values: make([]any, len(k.fields))}
	var err error
	for i, f := range k.fields {
		if r.values[i], err = stored(f, d.Values[i]); err != nil {
			return nil, fmt.Errorf("document %s of %s: %w", d.ID, k.name, err)
		}
	}
	if d.Custom != nil {
		if r.custom, err = members(d.Custom); err != nil {
			return nil, fmt.Errorf("document %s of %s: the custom values: %w", d.ID, k.name, err)
		}
	}
	whole := bson.D{{Key: fieldBody, Value: string(d.Body)}}
	r.body, err = members(d.Body)
	if err != nil || slices.ContainsFunc(r.body, func(m member) bool { return !plain(m.name) && !reserved(m.name) }) {
		r.body = nil
		return r.marshal(append(whole, r.text()...))
	}
	doc, err := r.marshal(nil)
	if err != nil || r.same(doc) {
		return doc, err
	}
	texts := r.texts(doc)
	if doc, err = r.marshal(texts); err != nil || r.same(doc) {
		return doc, err
	}
	r.body = nil
	return r.marshal(append(whole, r.text()...))
}

// same reports whether decoding the document returns the original body and custom values.
func (r *record) same(doc bson.Raw) bool {
	if len(doc) > maxTree {
		return false
	}
	body, custom, err := r.k.texts(doc)
	return err == nil && bytes.Equal(body, r.d.Body) && bytes.Equal(custom, r.d.Custom)
}

// texts returns the fields whose values the document does not reproduce, with their JSON.
func (r *record) texts(doc bson.Raw) bson.D {
	var texts bson.D
	for _, m := range r.body {
		name := column(m.name)
		got, err := appendValue(nil, doc.Lookup(name), r.k.null(m.name))
		if err != nil || !bytes.Equal(got, m.raw) {
			texts = append(texts, bson.E{Key: name, Value: string(m.raw)})
		}
	}
	return append(texts, r.text()...)
}

// text returns the custom values as text if BSON does not reproduce them.
func (r *record) text() bson.D {
	if r.d.Custom == nil {
		return nil
	}
	if b, err := appendCustom(nil, r.custom); err == nil {
		v := bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: b}
		if got, err := appendValue(nil, v, "null"); err == nil && bytes.Equal(got, r.d.Custom) {
			return nil
		}
	}
	return bson.D{{Key: fieldCustom, Value: string(r.d.Custom)}}
}

// marshal encodes the document with these texts.
func (r *record) marshal(texts bson.D) (bson.Raw, error) {
	at, b := bsoncore.AppendDocumentStart(make([]byte, 0, 256+2*len(r.d.Body)+2*len(r.d.Custom)))
	b = bsoncore.AppendStringElement(b, fieldID, r.workspace+"/"+r.d.ID)
	b = bsoncore.AppendStringElement(b, fieldOrg, r.workspace)
	var set [256]bool
	done := set[:]
	if len(r.values) > len(done) {
		done = make([]bool, len(r.values))
	}
	for _, m := range r.body {
		name := column(m.name)
		if i, declared := r.k.at[m.name]; declared {
			done[i] = true
			b = appendStored(b, name, r.values[i])
			continue
		}
		with, err := appendJSON(b, name, m.raw)
		if err != nil {
			with = bsoncore.AppendNullElement(b, name)
		}
		b = with
	}
	// Fields after the revision are for queries only: declared values that the body does not contain.
	b = bsoncore.AppendInt64Element(b, fieldRev, r.rev)
	for i, v := range r.values {
		if v != nil && !done[i] {
			b = appendStored(b, column(r.k.fields[i].Name), v)
		}
	}
	var err error
	if r.d.Custom != nil {
		b = bsoncore.AppendHeader(b, bsoncore.TypeEmbeddedDocument, fieldCustom)
		if b, err = appendCustom(b, r.custom); err != nil {
			return nil, fmt.Errorf("document %s of %s: %w", r.d.ID, r.k.name, err)
		}
	}
	if len(texts) > 0 {
		raw, err := bson.Marshal(texts)
		if err != nil {
			return nil, err
		}
		b = bsoncore.AppendDocumentElement(b, fieldJSON, bsoncore.Document(raw))
	}
	b, err = bsoncore.AppendDocumentEnd(b, at)
	return bson.Raw(b), err
}

// appendStored appends a value of a declared field.
func appendStored(b []byte, name string, v any) []byte {
	switch v := v.(type) {
	case string:
		return bsoncore.AppendStringElement(b, name, v)
	case int64:
		return bsoncore.AppendInt64Element(b, name, v)
	case float64:
		return bsoncore.AppendDoubleElement(b, name, v)
	case bool:
		return bsoncore.AppendBooleanElement(b, name, v)
	case bson.DateTime:
		return bsoncore.AppendDateTimeElement(b, name, int64(v))
	case []string:
		at, b := bsoncore.AppendArrayElementStart(b, name)
		for i, s := range v {
			b = bsoncore.AppendStringElement(b, strconv.Itoa(i), s)
		}
		b, _ = bsoncore.AppendArrayEnd(b, at) // it was begun above
		return b
	}
	return bsoncore.AppendNullElement(b, name)
}

// appendCustom appends custom values as a document. A value that BSON cannot represent is stored as binary, which
// exists, but equals no value and is in no range.
func appendCustom(b []byte, all []member) ([]byte, error) {
	at, b := bsoncore.AppendDocumentStart(b)
	for _, m := range all {
		name := encodeKey(m.name)
		with, err := appendJSON(b, name, m.raw)
		if err != nil {
			with = bsoncore.AppendBinaryElement(b, name, 0, m.raw)
		}
		b = with
	}
	return bsoncore.AppendDocumentEnd(b, at)
}

var errNoBSON = errors.New("BSON cannot represent the value")

// appendJSON appends a JSON value.
func appendJSON(b []byte, name string, raw []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return appendNext(b, name, dec, 0)
}

// appendNext appends the next value of the decoder.
func appendNext(b []byte, name string, dec *json.Decoder, depth int) ([]byte, error) {
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case nil:
		return bsoncore.AppendNullElement(b, name), nil
	case bool:
		return bsoncore.AppendBooleanElement(b, name, t), nil
	case string:
		return bsoncore.AppendStringElement(b, name, t), nil
	case json.Number:
		if n, err := strconv.ParseInt(string(t), 10, 64); err == nil {
			return bsoncore.AppendInt64Element(b, name, n), nil
		}
		f, err := strconv.ParseFloat(string(t), 64)
		if err != nil && !math.IsInf(f, 0) {
			return nil, errNoBSON
		}
		return bsoncore.AppendDoubleElement(b, name, f), nil
	}
	if depth == maxNesting {
		return nil, errNoBSON
	}
	if t == json.Delim('[') {
		at, b := bsoncore.AppendArrayElementStart(b, name)
		for i := 0; dec.More(); i++ {
			if b, err = appendNext(b, strconv.Itoa(i), dec, depth+1); err != nil {
				return nil, err
			}
		}
		if _, err := dec.Token(); err != nil {
			return nil, err
		}
		return bsoncore.AppendArrayEnd(b, at)
	}
	at, b := bsoncore.AppendDocumentElementStart(b, name)
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok || seen[key] {
			return nil, errNoBSON
		}
		seen[key] = true
		if b, err = appendNext(b, encodeKey(key), dec, depth+1); err != nil {
			return nil, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	return bsoncore.AppendDocumentEnd(b, at)
}

// null returns the JSON value that null stands for in a field: the empty value of its type.
func (s *shape) null(name string) string {
	if i, declared := s.at[name]; declared {
		return s.nulls[i]
	}
	return "null"
}

// emptyJSON returns the JSON value of an empty field of the type.
func emptyJSON(t driver.Type) string {
	switch t {
	case driver.String, driver.Date:
		return `""`
	case driver.Time:
		return "0"
	case driver.Strings:
		return "[]"
	}
	return "null"
}

// decode returns the stored document; if it cannot be read, its ID if it has one, and an error. Errors contain no
// values of the document apart from a foreign _id.
func (w *workspace) decode(k *kind, raw bson.Raw) (driver.Document, error) {
	var d driver.Document
	id, ok := raw.Lookup(fieldID).StringValueOK()
	if !ok || len(id) <= len(w.name) || id[:len(w.name)] != w.name || id[len(w.name)] != '/' {
		return d, fmt.Errorf("the _id %s is not this program's", clip(raw.Lookup(fieldID).String()))
	}
	d.ID = id[len(w.name)+1:]
	if d.Rev, ok = raw.Lookup(fieldRev).AsInt64OK(); !ok {
		return d, errors.New("it has no revision")
	}
	var err error
	if d.Body, d.Custom, err = k.texts(raw); err != nil {
		return driver.Document{ID: d.ID}, err
	}
	return d, nil
}

// text returns a copy of a string's bytes, nil if the value is not a string.
func text(v bson.RawValue) []byte {
	if v.Type != bson.TypeString || len(v.Value) < 5 {
		return nil
	}
	return append(make([]byte, 0, len(v.Value)-5), v.Value[4:len(v.Value)-1]...)
}

// eachElement calls do with the elements of a document or list. Keys and values share memory with raw.
func eachElement(raw []byte, do func(key []byte, v bson.RawValue) error) error {
	if len(raw) < 5 {
		return errNoDocument
	}
	for rest := raw[4:]; len(rest) > 1; {
		e, after, ok := bsoncore.ReadElement(rest)
		if !ok {
			return errNoDocument
		}
		v := e.Value()
		if err := do(e.KeyBytes(), bson.RawValue{Type: bson.Type(v.Type), Value: v.Data}); err != nil {
			return err
		}
		rest = after
	}
	return nil
}

var errNoDocument = errors.New("it is not valid BSON")

// texts returns body and custom values as JSON.
func (k *kind) texts(raw bson.Raw) (body, custom []byte, err error) {
	var kept bson.Raw
	if v := raw.Lookup(fieldJSON); v.Type == bson.TypeEmbeddedDocument {
		kept = v.Document()
		body, custom = text(kept.Lookup(fieldBody)), text(kept.Lookup(fieldCustom))
	}
	whole := body != nil
	ended := whole
	if !whole {
		body = append(make([]byte, 0, len(raw)), '{')
	}
	err = eachElement(raw, func(key []byte, v bson.RawValue) (err error) {
		switch string(key) {
		case fieldRev:
			ended = true
		case fieldCustom:
			if custom == nil && v.Type == bson.TypeEmbeddedDocument {
				if custom, err = appendValue(make([]byte, 0, len(v.Value)), v, "null"); err != nil {
					return fmt.Errorf("the custom values: %w", err)
				}
			}
		}
		if ended || reserved(string(key)) {
			return nil
		}
		i, declared := k.at[string(key)]
		null := "null"
		if declared {
			null = k.nulls[i]
		} else if field := fieldOf(string(key)); len(field) < len(key) {
			null, key = k.null(field), []byte(field)
		}
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(append(append(body, '"'), key...), '"', ':')
		if kept != nil {
			if t := kept.Lookup(column(string(key))); t.Type == bson.TypeString {
				body = append(body, text(t)...)
				return nil
			}
		}
		if body, err = appendValue(body, v, null); err != nil {
			return fmt.Errorf("field %s: %w", key, err)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if !whole {
		body = append(body, '}')
	}
	return body, custom, nil
}

// appendValue appends a value as encoding/json writes it. Null is the text for a missing value.
func appendValue(b []byte, v bson.RawValue, null string) ([]byte, error) {
	switch v.Type {
	case 0, bson.TypeNull:
		return append(b, null...), nil
	case bson.TypeString:
		if len(v.Value) < 5 {
			return nil, errNoDocument
		}
		return appendText(b, v.Value[4:len(v.Value)-1]), nil
	case bson.TypeInt32, bson.TypeInt64:
		return strconv.AppendInt(b, v.AsInt64(), 10), nil
	case bson.TypeDateTime:
		return strconv.AppendInt(b, v.DateTime(), 10), nil
	case bson.TypeBoolean:
		return strconv.AppendBool(b, v.Boolean()), nil
	case bson.TypeDouble:
		number, err := json.Marshal(v.Double())
		return append(b, number...), err
	case bson.TypeBinary:
		_, raw := v.Binary()
		return append(b, raw...), nil
	case bson.TypeArray, bson.TypeEmbeddedDocument:
		open, end := byte('{'), byte('}')
		if v.Type == bson.TypeArray {
			open, end = '[', ']'
		}
		b = append(b, open)
		first := true
		err := eachElement(v.Value, func(key []byte, v bson.RawValue) (err error) {
			if !first {
				b = append(b, ',')
			}
			first = false
			if open == '{' {
				if bytes.IndexByte(key, '%') >= 0 {
					key = []byte(decodeKey(string(key)))
				}
				b = append(appendText(b, key), ':')
			}
			b, err = appendValue(b, v, "null")
			return err
		})
		return append(b, end), err
	}
	return nil, fmt.Errorf("a value of the type %s is not this program's", v.Type)
}

// appendText appends a JSON string.
func appendText(b, s []byte) []byte {
	for _, c := range s {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			var quoted bytes.Buffer
			enc := json.NewEncoder(&quoted)
			enc.SetEscapeHTML(false)
			if enc.Encode(string(s)) != nil { // it never fails for text
				return append(b, `""`...)
			}
			return append(b, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
