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

// Meta is what every record has. Record types embed it.
type Meta struct {
	ID        string `json:"-"`
	Rev       int64  `json:"-"`
	CreatedAt int64  `json:"created_at"` // Unix milliseconds; stamped on insert where zero
	UpdatedAt int64  `json:"updated_at"` // Unix milliseconds; stamped on every write

	bytes int64 // of the stored document, as it was read or written last; 0: not known
}

// StoreMeta gives package store access to the embedded Meta.
func (m *Meta) StoreMeta() *Meta { return m }

type record interface{ StoreMeta() *Meta }

// metaOf returns what every record has. Define saw to it that rec is one.
func metaOf(rec any) *Meta { return rec.(record).StoreMeta() } //nolint:forcetypeassert // see above

// Index orders a kind by its fields, then by id. A unique index ignores records in
// which one of its fields is missing. An index over a single Strings field serves
// look-ups of elements; a Strings field at the end of a longer index only rides along,
// so that a scoped count need not leave the index. So do the fields of Rides, after the id, where
// the order of ids stays as it is. A sparse one is of a field that most records lack: it serves questions for a
// value, and no order.
type Index struct {
	Fields []string
	Unique bool
	Sparse bool
	Rides  []string
}

// Access is a question that a module asks regularly: equality (or a range, in the last
// of Where) on the fields of Where, ordered by Sort. Tests hold every engine to
// answering it by an index, and MongoDB to having no index that none of them needs.
type Access struct {
	Where []string
	Sort  []string
}

// Spec declares a kind of record. The record type's own json tags say which fields
// exist and their types; the Spec says which of them questions may name.
type Spec struct {
	Name string
	// Fields can be filtered, sorted and indexed. created_at and updated_at always can.
	// Every other field of the record is hidden from questions.
	Fields  []string
	Indexes []Index
	Access  []Access
	// Custom: the record type has a map[string]any field tagged `store:"custom"` with the values of fields that the
	// organization defined. Of is the one of Fields that says which of its definitions that is; it is empty where there
	// is one for all records.
	Custom bool
	Of     string
	// Teams: the record has a field teams []string, and a limited scope sees only records
	// without teams or with one of the scope's.
	Teams bool
	// SoftDelete: the record has a field deleted bool, and questions see live records
	// unless they ask otherwise. Where its tag says omitempty, records that say nothing of it
	// are live: they were stored before there was a trash.
	SoftDelete bool
	// Partition: records of several organizations share the workspace, told apart by the
	// field org_id, which the workspace's partition sets and adds to every question and index.
	Partition bool
	// Aside: the records are notes of the gateway, which count among nobody's documents.
	Aside bool

	collection *driver.Collection
	values     func(driver.Document) ([]any, error) // the declared values of a stored document
	indexes    map[string][]string
	zeros      map[string]any // of the declared fields that always have a value

	liveSaysNothing bool
}

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)

func (s *Spec) uniqueFields(index string) []string {
	if fields, ok := s.indexes[index]; ok {
		return slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == partitionField })
	}
	return []string{"id"}
}

const partitionField = "org_id"

// ordered reports whether a declared question is asked in the order of the fields, for more than one value of the last.
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
	trash  []int       // index path of the field deleted; nil: there is no trash
	// decoded are records as Peek last decoded them.
	decoded *cache.Map[owned, *decoded[T]]
}

// owned is a document of an organization.
type owned struct {
	org int64
	id  string
}

// decoded is a record together with the document it came from.
type decoded[T any] struct {
	rev          int64
	body, custom []byte
	rec          *T
	made         Made
}

// Bounds of what Peek keeps of one kind.
const (
	maxDecoded      = 1024
	maxDecodedBytes = 16 << 10
)

type fieldPath struct {
	path []int
	typ  driver.Type
}

// Must is Define where an error would be a fault of the program, which ends it.
func Must[T any](spec Spec) *Kind[T] {
	k, err := Define[T](spec)
	if err != nil {
		panic(err)
	}
	return k
}

// Define checks the Spec against the record type T, which must embed Meta.
// The error names what does not fit; it is a fault of the program.
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
	}{"teams": {spec.Teams, driver.Strings}, "deleted": {spec.SoftDelete, driver.Bool}, partitionField: {spec.Partition, driver.Int}}
	for extra, s := range special {
		if s.on {
			names = append(names, extra)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if spec.Of != "" && (!spec.Custom || !slices.Contains(spec.Fields, spec.Of)) {
		return nil, fmt.Errorf("store: %s: %q is to say what is defined, and is not declared", spec.Name, spec.Of)
	}
	k := &Kind[T]{spec: &spec, custom: custom, decoded: cache.New[owned, *decoded[T]](maxDecoded)}
	spec.collection = &driver.Collection{Name: spec.Name, Custom: spec.Custom, Of: spec.Of, Uncounted: spec.Aside}
	for _, f := range names {
		if spec.Custom && special[f].on {
			spec.collection.Rides = append(spec.collection.Rides, f)
		}
	}
	spec.zeros = map[string]any{}
	for _, name := range names {
		f, ok := paths[name]
		t, known := portableType(name, f)
		if !ok || !known || !namePattern.MatchString(name) || name == "id" { // every record has an id of its own
			return nil, fmt.Errorf("store: %s: field %q is not a portable field of %s", spec.Name, name, typ)
		}
		if s := special[name]; s.on && (t != s.typ || f.Type.Kind() == reflect.Pointer) {
			return nil, fmt.Errorf("store: %s: field %q of %s has the wrong type for what the Spec says", spec.Name, name, typ)
		}
		spec.zeros[name] = portableValue(reflect.Zero(f.Type), t)
		if name == "deleted" && spec.SoftDelete {
			k.trash = f.Index
			spec.liveSaysNothing = strings.Contains(f.Tag.Get("json"), ",omitempty")
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
			return nil, fmt.Errorf("store: %s: index %q has no field or the name of another", spec.Name, name)
		}
		for _, f := range slices.Concat(fields, index.Rides) {
			if _, found := slices.BinarySearch(names, f); !found {
				return nil, fmt.Errorf("store: %s: index %s names the undeclared field %q", spec.Name, name, f)
			}
		}
		spec.indexes[name] = fields
		spec.collection.Indexes = append(spec.collection.Indexes, driver.Index{Name: name, Fields: fields, Unique: index.Unique, Sparse: index.Sparse, Rides: index.Rides, Ordered: index.Unique && spec.ordered(index.Fields)})
	}
	return k, nil
}

// recordFields returns the fields of a record type by their JSON names, and the index path
// of the one with the custom values.
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

// Spec returns the kind's declaration, for the workspace's list of kinds.
func (k *Kind[T]) Spec() *Spec { return k.spec }

// encode splits the record into body, custom values and declared values.
func (k *Kind[T]) encode(rec *T) (driver.Document, error) {
	meta := metaOf(rec)
	v := reflect.ValueOf(rec).Elem()
	doc := driver.Document{ID: meta.ID, Rev: meta.Rev, Values: k.values(v)}
	var err error
	if k.custom == nil {
		doc.Body, err = marshal(rec)
		return doc, err
	}
	field := v.FieldByIndex(k.custom)
	values := field.Interface()
	if !field.IsNil() {
		if doc.Custom, err = marshal(values); err != nil {
			return doc, err
		}
	}
	bare := *rec // the custom values are stored beside the body, not in it
	reflect.ValueOf(&bare).Elem().FieldByIndex(k.custom).SetZero()
	doc.Body, err = marshal(&bare)
	return doc, err
}

// values returns the declared values of a record.
func (k *Kind[T]) values(rec reflect.Value) []any {
	values := make([]any, len(k.fields))
	for i, f := range k.fields {
		values[i] = portableValue(rec.FieldByIndex(f.path), f.typ)
	}
	return values
}

// valuesOf returns the declared values of a document as encode had them.
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

// portableValue maps what is empty to nil, which questions take as missing: a nil
// pointer, "", an empty list, the zero time. 0 and false are values.
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
		return stored(v.String())
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
		list := make([]string, v.Len()) // the elements may have a type of their own
		for i := range list {
			list[i] = stored(v.Index(i).String())
		}
		return list
	}
	return nil
}

// stored returns the text as the body has it: JSON replaces every byte that is not UTF-8.
func stored(text string) string {
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
		dec.UseNumber() // 2^53+1 must survive
		if err := dec.Decode(reflect.ValueOf(rec).Elem().FieldByIndex(k.custom).Addr().Interface()); err != nil {
			return fmt.Errorf("store: %s %s has damaged custom values: %w", k.spec.Name, doc.ID, err)
		}
	}
	meta := metaOf(rec)
	meta.ID, meta.Rev, meta.bytes = doc.ID, doc.Rev, doc.Size()
	return nil
}

// Collection returns what an engine is told of the kind, for tests of engines.
func (s *Spec) Collection() *driver.Collection { return s.collection }
