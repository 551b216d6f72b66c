package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"tenantry/backends/driver"
	"tenantry/internal/cache"
)

// Meta holds the fields that every record has. Record types embed it.
type Meta struct {
	ID        string `json:"-"`
	Rev       int64  `json:"-"`
	CreatedAt int64  `json:"created_at"` // Unix milliseconds; set on insert if zero
	UpdatedAt int64  `json:"updated_at"` // Unix milliseconds; set on insert if zero, and on every other write

	bytes   int64  // size of the document as last read or written; 0: unknown
	was     *prior // what it was when it was last read or written; nil: live, without teams
	unknown string // members of the stored body that the record type has no field for, see unknown.go
}

// Bare returns the Meta without what a newer version stored in the record, so that a replacement drops that.
func (m *Meta) Bare() Meta {
	bare := *m
	bare.unknown = ""
	return bare
}

// StoreMeta gives package store access to the embedded Meta.
func (m *Meta) StoreMeta() *Meta { return m }

type record interface{ StoreMeta() *Meta }

// metaOf returns the Meta of a record. Define has checked that the type embeds it.
func metaOf(rec any) *Meta { return rec.(record).StoreMeta() } //nolint:forcetypeassert // see above

// Index orders a kind by its fields, then by id.
//
// An index on a single Strings field serves look-ups of elements. A Strings field at the end of a longer index is only
// included, so that a count in a scope can be answered from the index.
type Index struct {
	Fields []string
	Unique bool     // records that lack one of the fields are ignored
	Sparse bool     // for a field that most records lack: serves queries for a value, but no order
	Rides  []string // fields included after the id, which do not change the order
}

// Access is a query that a module makes regularly: equality on the fields of Where, or a range on the last of them,
// ordered by Sort. Tests require every engine to answer it from an index, and MongoDB to have no index that no Access
// needs.
type Access struct {
	Where []string
	Sort  []string
}

// Spec declares a kind of record. The json tags of the record type declare the fields and their types; the Spec says
// which of them queries may name.
type Spec struct {
	Name string
	// Fields can be filtered, sorted and indexed, as can created_at and updated_at. All other fields of the record are
	// hidden from queries.
	Fields  []string
	Indexes []Index
	Access  []Access
	// Custom: the record type has a map[string]any field tagged `store:"custom"`, with the values of fields that the
	// organization defined. Of names the declared field that identifies the definition; it is empty if all records share
	// one definition.
	Custom bool
	Of     string
	// Teams: the record has a field teams []string. A limited scope sees only records without teams, or with one of the
	// scope's teams.
	Teams bool
	// SoftDelete: the record has a field deleted bool. Queries see live records unless their State says otherwise. With
	// omitempty in the field's tag, records without the field are live: they were stored before the kind had a trash.
	SoftDelete bool
	// Partition: records of several organizations share the workspace. The field org_id separates them; the workspace's
	// partition sets it and adds it to every query and index.
	Partition bool
	// Uncounted: the records are notes of the gateway, and not counted among the organization's documents.
	Uncounted bool

	collection *driver.Collection
	values     func(driver.Document) ([]any, error) // returns the declared values of a stored document
	indexes    map[string][]string                  // fields by name of the index
	zeros      map[string]any                       // zero values of declared fields that always have a value

	liveOmitted bool   // live records may lack the field deleted
	told        string // see Store.Tell
}

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

// uniqueFields returns the fields of a unique index without the partition; the id for an index that is not declared.
func (s *Spec) uniqueFields(index string) []string {
	if fields, ok := s.indexes[index]; ok {
		return slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == partitionField })
	}
	return []string{"id"}
}

const partitionField = "org_id"

// ordered reports whether a declared Access reads the fields in order, with more than one value of the last.
func (s *Spec) ordered(fields []string) bool {
	return slices.ContainsFunc(s.Access, func(a Access) bool {
		return len(a.Where) < len(fields) && len(a.Sort) > 0 && slices.Equal(slices.Concat(a.Where, a.Sort), fields)
	})
}

// Kind binds a record type to its Spec. It is immutable and safe for concurrent use.
type Kind[T any] struct {
	spec   *Spec
	fields []fieldPath // in the order of spec.collection.Fields
	custom []int       // index path of the custom map
	trash  []int       // index path of the field deleted; nil if the kind has no trash
	teams  []int       // index path of the field teams; nil if the kind has none
	others unknown
	// decoded caches the records that Peek decoded.
	decoded *cache.Map[orgDocument, *decoded[T]]
}

// orgDocument identifies a document of a kind.
type orgDocument struct {
	org int64
	id  string
}

// decoded is a record with the document from which it was decoded.
type decoded[T any] struct {
	rev          int64
	body, custom []byte
	rec          *T
	made         Derived
}

// Bounds of the records that Peek caches of one kind.
const (
	maxDecoded      = 1024     // records
	maxDecodedBytes = 16 << 10 // bytes of one document
)

type fieldPath struct {
	path []int
	typ  driver.Type
}

// Must is Define that panics on an error.
func Must[T any](spec Spec) *Kind[T] {
	k, err := Define[T](spec)
	if err != nil {
		panic(err)
	}
	return k
}

// Define checks the Spec against the record type T, which must embed Meta. The error names the mismatch, which is a bug
// in the program.
func Define[T any](spec Spec) (*Kind[T], error) {
	typ := reflect.TypeFor[T]()
	if _, ok := any(new(T)).(record); !ok {
		return nil, fmt.Errorf("store: %s does not embed store.Meta", typ)
	}
	if !namePattern.MatchString(spec.Name) {
		return nil, fmt.Errorf("store: invalid kind name %q", spec.Name)
	}
	paths, custom, err := recordFields(typ)
	if err != nil {
		return nil, err
	}
	if spec.Custom != (custom != nil) {
		return nil, fmt.Errorf("store: %s: Custom and the store:\"custom\" tag of %s disagree", spec.Name, typ)
	}
	names := append(slices.Clone(spec.Fields), "created_at", "updated_at")
	special := map[string]struct {
		on  bool
		typ driver.Type
	}{
		"teams":        {spec.Teams, driver.Strings},
		"deleted":      {spec.SoftDelete, driver.Bool},
		partitionField: {spec.Partition, driver.Int},
	}
	for extra, s := range special {
		if s.on {
			names = append(names, extra)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if spec.Of != "" && (!spec.Custom || !slices.Contains(spec.Fields, spec.Of)) {
		return nil, fmt.Errorf("store: %s: Of needs Custom and a declared field, and %q is none", spec.Name, spec.Of)
	}
	k := &Kind[T]{spec: &spec, custom: custom, others: newUnknown(typ), decoded: cache.New[orgDocument, *decoded[T]](maxDecoded)}
	spec.collection = &driver.Collection{Name: spec.Name, Custom: spec.Custom, Of: spec.Of, Uncounted: spec.Uncounted}
	for _, f := range names {
		if spec.Custom && special[f].on {
			spec.collection.Rides = append(spec.collection.Rides, f)
		}
	}
	spec.zeros = map[string]any{}
	for _, name := range names {
		f, ok := paths[name]
		t, known := portableType(name, f)
		if !ok || !known || !namePattern.MatchString(name) || name == "id" { // the id is that of Meta
			return nil, fmt.Errorf("store: %s: field %q is not a portable field of %s", spec.Name, name, typ)
		}
		if s := special[name]; s.on && (t != s.typ || f.Type.Kind() == reflect.Pointer) {
			return nil, fmt.Errorf("store: %s: field %q of %s has another type than the Spec requires",
				spec.Name, name, typ)
		}
		if name == "teams" && spec.Teams {
			k.teams = f.Index
		}
		spec.zeros[name] = portableValue(reflect.Zero(f.Type), t)
		if name == "deleted" && spec.SoftDelete {
			k.trash = f.Index
			spec.liveOmitted = strings.Contains(f.Tag.Get("json"), ",omitempty")
		}
		spec.collection.Fields = append(spec.collection.Fields, driver.Field{Name: name, Type: t})
		k.fields = append(k.fields, fieldPath{f.Index, t})
	}
	spec.values = k.valuesOf
	spec.indexes = map[string][]string{}
	for _, index := range spec.Indexes {
		fields := slices.Clone(index.Fields)
		if spec.Partition && (len(fields) == 0 || fields[0] != partitionField) {
			fields = append([]string{partitionField}, fields...)
		}
		name := strings.Join(fields, "_")
		if _, twice := spec.indexes[name]; twice || name == "" {
			return nil, fmt.Errorf("store: %s: index %q has no fields, or those of another index", spec.Name, name)
		}
		for _, f := range slices.Concat(fields, index.Rides) {
			if _, found := slices.BinarySearch(names, f); !found {
				return nil, fmt.Errorf("store: %s: index %s names the undeclared field %q", spec.Name, name, f)
			}
		}
		spec.indexes[name] = fields
		spec.collection.Indexes = append(spec.collection.Indexes, driver.Index{
			Name: name, Fields: fields, Unique: index.Unique, Sparse: index.Sparse, Rides: index.Rides,
			Ordered: index.Unique && spec.ordered(index.Fields),
		})
	}
	return k, nil
}

// recordFields returns the fields of a record type by JSON name, and the index path of the field with the custom
// values.
func recordFields(typ reflect.Type) (paths map[string]reflect.StructField, custom []int, err error) {
	paths = map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(typ) {
		if f.Anonymous {
			if f.Type.Kind() == reflect.Pointer {
				return nil, nil, fmt.Errorf("store: %s embeds %s by a pointer, which can be nil", typ, f.Name)
			}
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Tag.Get("store") == "custom" {
			if custom != nil || f.Type != reflect.TypeFor[map[string]any]() {
				return nil, nil, fmt.Errorf("store: the store:\"custom\" tag of %s belongs on one map[string]any", typ)
			}
			custom = f.Index
			continue
		}
		if name != "" && name != "-" {
			if _, twice := paths[name]; twice {
				return nil, nil, fmt.Errorf("store: %s has the JSON name %q twice", typ, name)
			}
			paths[name] = f
		}
	}
	return paths, custom, nil
}

func portableType(name string, f reflect.StructField) (driver.Type, bool) {
	if f.Type == nil {
		return 0, false
	}
	if t := f.Tag.Get("store"); t == "time" || name == "created_at" || name == "updated_at" {
		return driver.Time, f.Type.Kind() == reflect.Int64
	}
	typ := f.Type
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch typ.Kind() {
	case reflect.String:
		return driver.String, true
	case reflect.Int, reflect.Int64:
		return driver.Int, true
	case reflect.Float64:
		return driver.Float, true
	case reflect.Bool:
		return driver.Bool, true
	case reflect.Slice:
		return driver.Strings, typ.Elem().Kind() == reflect.String
	}
	return 0, false
}

// Type returns how the engines store and compare a declared field; false if the Spec declares no such field.
func (s *Spec) Type(field string) (Type, bool) {
	ref, err := s.ref(F(field))
	return ref.Type, err == nil
}

// Spec returns the kind's declaration.
func (k *Kind[T]) Spec() *Spec { return k.spec }

// encode splits the record into body, custom values and declared values.
func (k *Kind[T]) encode(rec *T) (driver.Document, error) {
	meta := metaOf(rec)
	v := reflect.ValueOf(rec).Elem()
	doc := driver.Document{ID: meta.ID, Rev: meta.Rev, Values: k.values(v)}
	var err error
	if k.custom == nil {
		doc.Body, err = k.marshal(rec, meta)
		return doc, err
	}
	field := v.FieldByIndex(k.custom)
	values := field.Interface()
	if !field.IsNil() {
		if doc.Custom, err = marshal(values); err != nil {
			return doc, err
		}
	}
	bare := *rec // without the custom values, which are stored separately from the body
	reflect.ValueOf(&bare).Elem().FieldByIndex(k.custom).SetZero()
	doc.Body, err = k.marshal(&bare, meta)
	return doc, err
}

func (k *Kind[T]) marshal(rec *T, meta *Meta) ([]byte, error) {
	body, err := marshal(rec)
	return with(body, meta.unknown), err
}

// values returns the declared values of a record.
func (k *Kind[T]) values(rec reflect.Value) []any {
	values := make([]any, len(k.fields))
	for i, f := range k.fields {
		values[i] = portableValue(rec.FieldByIndex(f.path), f.typ)
	}
	return values
}

// valuesOf returns the declared values of a stored document, as encode set them.
func (k *Kind[T]) valuesOf(doc driver.Document) ([]any, error) {
	rec := new(T)
	if err := k.decode(&doc, rec); err != nil {
		return nil, err
	}
	return k.values(reflect.ValueOf(rec).Elem()), nil
}

func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("store: encoding a record: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// portableValue converts a field's value to that of a declared value. Empty values (a nil pointer, "", an empty list,
// the zero time) become nil, which queries treat as missing; 0 and false remain values.
func portableValue(v reflect.Value, typ driver.Type) any {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		if v.Len() == 0 {
			return nil
		}
		return validUTF8(v.String())
	case reflect.Int, reflect.Int64:
		if typ == driver.Time && v.Int() == 0 {
			return nil
		}
		return v.Int()
	case reflect.Float64:
		return v.Float()
	case reflect.Bool:
		return v.Bool()
	case reflect.Slice:
		if v.Len() == 0 {
			return nil
		}
		list := make([]string, v.Len()) // converts elements of a named string type
		for i := range list {
			list[i] = validUTF8(v.Index(i).String())
		}
		return list
	}
	return nil
}

// validUTF8 returns the text as it is in the body, where JSON replaces every byte that is not valid UTF-8.
func validUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}

func (k *Kind[T]) decode(doc *driver.Document, rec *T) error {
	if doc.Damage != nil {
		return &damage{doc.Damage}
	}
	if err := json.Unmarshal(doc.Body, rec); err != nil {
		return fmt.Errorf("store: %s %s is damaged: %w", k.spec.Name, doc.ID, err)
	}
	if k.custom != nil && len(doc.Custom) > 0 {
		dec := json.NewDecoder(bytes.NewReader(doc.Custom))
		dec.UseNumber() // float64 would round integers above 2^53
		if err := dec.Decode(reflect.ValueOf(rec).Elem().FieldByIndex(k.custom).Addr().Interface()); err != nil {
			return fmt.Errorf("store: %s %s has damaged custom values: %w", k.spec.Name, doc.ID, err)
		}
	}
	meta := metaOf(rec)
	meta.ID, meta.Rev, meta.bytes, meta.unknown = doc.ID, doc.Rev, doc.Size(), k.others.of(doc.Body)
	meta.was = k.priorOf(rec)
	return nil
}

// Collection returns the kind's declaration for an engine. It is for tests of engines.
func (s *Spec) Collection() *driver.Collection { return s.collection }
