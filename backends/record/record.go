// Package record describes the records of a resource in one place. The tags of the struct declare each field (see
// package declare), and Define adds what concerns the record as a whole. The store's specification, reading and
// checking of input, writing, and the references to other records follow from this description.
package record

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/field"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
)

// Of is the resource whose records are of type T.
type Of[T any] struct {
	*store.Kind[T]
	*Resource
}

// Resource describes the records of one kind, whatever their Go type. It is immutable and safe for concurrent use.
// Records are pointers to their structs.
type Resource struct {
	Traits
	// Fields are the fields that leave the server, in the order in which they are written.
	Fields     []field.Field
	Uniques    []Unique
	Records    Records
	Collection Collection // nil if the records are not in a collection
	// DefinitionField is the field that names the definition of a record's values; empty if all definitions apply to
	// all records.
	DefinitionField string

	// Ask, when set, makes the checks that only the module can make, if the other checks found no faults. It must be set
	// before the resource is used.
	Ask func(c *Checking, rec any)

	targets         map[string]*Resource // all resources, by name
	typ             reflect.Type
	index           map[string]int // of Fields, by name
	values, secrets []int          // index paths of the values of defined fields; nil if there are none
	valuesName      string
	definition      []int // index path of DefinitionField
	hooks           hooks
}

// Traits describe all records of a resource.
type Traits struct {
	Name string // such as "folder"; used in bundles, references and messages
	// Definition: the records define fields of other records. They are few, and read first.
	Definition bool
	// Control: the records are in the organization's part of the control workspace.
	Control bool
	// Rights: a change alters the permissions of people or keys.
	Rights bool
	// Carries: other records lie in a record of the resource, or show it, so that a change affects them as well. It
	// need not be set for definitions.
	Carries bool
	// Key is the field by which other records refer to a record; empty: id.
	Key string
	// Called is a unique field by which callers may name a record instead of its id, if Key is empty.
	Called string
	// Single: an organization has exactly one record.
	Single bool
	// Most is the number of records that an organization may have; 0: any number.
	Most int
	// Travels lists which of id, created_at and updated_at leave the server; empty: all of them.
	Travels string
	// Together: all records of the resource form a single definition.
	Together bool
	// DefinedBy is the resource whose records define the fields of the values. The field that refers to it names the
	// definition; without such a field all of its records apply.
	DefinedBy string
}

// Options complete the description of a resource with what tags cannot say. All but Name and Spec.Name may be zero.
type Options[T any] struct {
	Traits
	// Spec has the name, indexes and access paths of the records. Fields, unique indexes, Custom and scopes are added
	// from the struct.
	Spec store.Spec
	// Preset sets the defaults of a new record.
	Preset func(rec *T)
	// Derive sets the fields that follow from others, whenever those were set.
	Derive func(rec *T)
	// Fill completes a record before it is stored for the first time.
	Fill func(rec *T)
	// Number completes several records together before they are stored for the first time.
	Number func(ctx context.Context, ws *store.Workspace, recs []*T) error
	// Check checks the record as a whole. It adds no faults to fields that have some.
	Check func(c *Checking, rec *T)
	// Refers visits references that depend on other fields.
	Refers func(rec *T, visit Visitor)
	// Asks returns the definition against which the resource's Ask checks the record: its resource, and its name, which
	// is empty if the definitions are Together.
	Asks func(rec *T) (resource, name string)
	// Uses returns the definition that the record uses although none of its fields refers to it.
	Uses func(rec *T) Use
	// Defines returns the fields that the record defines, the name under which it defines them, and whether the record
	// gives them.
	Defines func(rec *T) (name string, fields schema.Fields, given bool)
}

// Visitor is called with a reference of a record: the field, the resource to which it refers, and the identifier, which
// it may replace.
type Visitor = func(field, target string, id *string)

type hooks struct {
	preset, derive, fill func(any)
	number               func(context.Context, *store.Workspace, []any) error
	check                func(*Checking, any)
	refers               func(any, Visitor)
	asks                 func(any) (string, string)
	uses                 func(any) Use
	defines              func(any) (string, schema.Fields, bool)
}

// Unique is a field whose value no two records share.
type Unique struct {
	Field    string // its name in the store
	Shown    string // its name for callers
	Identity Identity
	within   string // the stored field within whose values it is unique; empty: within all records
	sparse   bool   // records may lack a value
	index    []int
	group    []int // index path of within
}

// Free releases the value of a record: it clears the field or, if the field may not be empty, sets a random value.
func (u *Unique) Free(rec any) {
	v := at(rec, u.index)
	v.SetZero()
	if !u.sparse && v.Kind() == reflect.String {
		v.SetString("freed-" + rand.Text())
	}
}

// Identity says when a unique value identifies a record.
type Identity byte

// The identities.
const (
	Never  Identity = iota
	Named           // if no identifier is given
	Always          // even if another identifier is given
)

// Value returns the record's value as text, "" if it has none.
func (u *Unique) Value(rec any) string {
	v := at(rec, u.index)
	if v.Kind() == reflect.String {
		return v.String()
	}
	if n := v.Int(); n != 0 {
		return strconv.FormatInt(n, 10)
	}
	return ""
}

// Group returns the record's value of the field within which this one is unique, "" if there is no such field.
func (u *Unique) Group(rec any) string {
	if u.group == nil {
		return ""
	}
	return at(rec, u.group).String()
}

// Filter matches records of the group that have one of the values.
func (u *Unique) Filter(group string, values []string, number bool) store.Filter {
	f := store.In(u.Field, values...)
	if number {
		numbers := make([]int64, len(values))
		for i, v := range values {
			numbers[i], _ = strconv.ParseInt(v, 10, 64) // written by Value
		}
		f = store.In(u.Field, numbers...)
	}
	if u.group != nil {
		f = store.All(store.Eq(u.within, group), f)
	}
	return f
}

// Number reports whether the value is an integer.
func (u *Unique) Number(rec any) bool { return at(rec, u.index).Kind() != reflect.String }

// Identifying returns the fields that identify a record, the identifier first.
func (r *Resource) Identifying() []Unique {
	id := Unique{Field: "id", Shown: "id", Identity: Always, index: r.Fields[r.index["id"]].Index}
	never := func(u Unique) bool { return u.Identity == Never }
	return append([]Unique{id}, slices.DeleteFunc(slices.Clone(r.Uniques), never)...)
}

// Taken completes err, the refusal of a write of rec, if it is a *store.DuplicateError: the error then names every
// field whose value another record has (the store names one), and which of the other records that in shows are in the
// trash.
func (r *Resource) Taken(ctx context.Context, in *store.Workspace, rec any, err error) error {
	dup, ok := errors.AsType[*store.DuplicateError](err)
	if !ok {
		return err
	}
	all := &store.DuplicateError{Kind: dup.Kind, Position: dup.Position, Trashed: map[string]string{}}
	for i := range r.Uniques {
		u, taken := &r.Uniques[i], slices.Contains(dup.Fields, r.Uniques[i].Field)
		if value := u.Value(rec); value != "" {
			others := store.All(
				u.Filter(u.Group(rec), []string{value}, u.Number(rec)),
				store.Where(store.F("id"), store.OpNe, r.Meta(rec).ID),
			)
			found, lookup := r.Records.Find(ctx, in, store.Query{Filter: others, State: store.Either, Limit: 1})
			if lookup != nil {
				return err
			}
			if taken = taken || len(found) > 0; len(found) > 0 && r.Deleted(found[0]) {
				all.Trashed[u.Field] = r.Meta(found[0]).ID
			}
		}
		if taken {
			all.Fields = append(all.Fields, u.Field)
		}
	}
	if len(all.Fields) == 0 { // the duplicate is the identifier
		return err
	}
	return all
}

func at(rec any, index []int) reflect.Value { return reflect.ValueOf(rec).Elem().FieldByIndex(index) }

// Define returns the resource of a record type, which must embed store.Meta. An error is a bug in the program.
func Define[T any](o Options[T]) (*Of[T], error) {
	r, err := describe(reflect.TypeFor[T](), o.Traits, &o.Spec)
	if err != nil {
		return nil, fmt.Errorf("resource %s: %w", o.Name, err)
	}
	r.hooks = hooks{
		preset: erased(o.Preset), derive: erased(o.Derive), fill: erased(o.Fill),
		check: func(c *Checking, rec any) {
			if o.Check != nil {
				o.Check(c, rec.(*T))
			}
		},
		refers: func(rec any, visit Visitor) {
			if o.Refers != nil {
				o.Refers(rec.(*T), visit)
			}
		},
	}
	if o.Defines != nil {
		r.hooks.defines = func(rec any) (string, schema.Fields, bool) { return o.Defines(rec.(*T)) }
	}
	if o.Asks != nil {
		r.hooks.asks = func(rec any) (string, string) { return o.Asks(rec.(*T)) }
	}
	if o.Uses != nil {
		r.hooks.uses = func(rec any) Use { return o.Uses(rec.(*T)) }
	}
	if o.Number != nil {
		r.hooks.number = func(ctx context.Context, ws *store.Workspace, recs []any) error {
			return o.Number(ctx, ws, typed[T](recs))
		}
	}
	kind, err := store.Define[T](o.Spec)
	if err != nil {
		return nil, err
	}
	r.Collection = records[T]{kind}
	r.Records = r.Collection
	return &Of[T]{kind, r}, nil
}

// Must is Define that panics on an error.
func Must[T any](o Options[T]) *Of[T] {
	of, err := Define(o)
	if err != nil {
		panic(err)
	}
	return of
}

// Kept is a kind of records that a module stores: those of a resource, or records that never leave the server.
type Kept interface{ Spec() *store.Spec }

// Specs returns the specifications of the kinds, for the store.
func Specs(all []Kept) []*store.Spec {
	specs := make([]*store.Spec, len(all))
	for i, kept := range all {
		specs[i] = kept.Spec()
	}
	return specs
}

// Described returns the resources among the kinds, definitions first.
func Described(all []Kept) []*Resource {
	var definitions, others []*Resource
	for _, kept := range all {
		described, ok := kept.(interface{ self() *Resource })
		switch {
		case !ok:
		case described.self().Definition:
			definitions = append(definitions, described.self())
		default:
			others = append(others, described.self())
		}
	}
	return append(definitions, others...)
}

func (r *Resource) self() *Resource { return r }

// Link gives the resources access to each other, for their references. It must be called before they are used.
func Link(all []*Resource) {
	named := map[string]*Resource{}
	for _, r := range all {
		named[r.Name] = r
	}
	for _, r := range all {
		r.targets = named
	}
}

// erased returns a hook of T as a hook of untyped records, which does nothing if f is nil.
func erased[T any](f func(*T)) func(any) {
	return func(rec any) {
		if f != nil {
			f(rec.(*T))
		}
	}
}

func typed[T any](recs []any) []*T {
	out := make([]*T, len(recs))
	for i, rec := range recs {
		out[i] = rec.(*T)
	}
	return out
}

// Index returns the index in Fields of the field of that name.
func (r *Resource) Index(name string) (int, bool) { n, ok := r.index[name]; return n, ok }

// New returns a record with its defaults.
func (r *Resource) New() any {
	rec := reflect.New(r.typ).Interface()
	r.hooks.preset(rec)
	return rec
}

// Clone returns a shallow copy of the record.
func (r *Resource) Clone(rec any) any {
	c := reflect.New(r.typ)
	c.Elem().Set(reflect.ValueOf(rec).Elem())
	return c.Interface()
}

// Assign copies all fields of from to rec.
func (r *Resource) Assign(rec, from any) {
	reflect.ValueOf(rec).Elem().Set(reflect.ValueOf(from).Elem())
}

// Bare returns an empty record, without defaults.
func (r *Resource) Bare() any { return reflect.New(r.typ).Interface() }

// Meta returns the record's identifier, revision and times.
func (r *Resource) Meta(rec any) *store.Meta {
	return rec.(interface{ StoreMeta() *store.Meta }).StoreMeta()
}

// Revision returns a number that distinguishes the states of a record. It is the record's revision; if callers name
// records by Key, it also distinguishes the record from an earlier one of the same name.
func (r *Resource) Revision(rec any) int64 {
	meta := r.Meta(rec)
	if r.Key == "" || meta.Rev == 0 {
		return meta.Rev
	}
	return meta.CreatedAt<<20 + meta.Rev
}

// Derive sets the fields that follow from others.
func (r *Resource) Derive(rec any) { r.hooks.derive(rec) }

// Fill completes a record before it is stored for the first time.
func (r *Resource) Fill(rec any) { r.hooks.fill(rec) }

// Number completes several records together before they are stored for the first time. Error: store.ErrUnavailable.
func (r *Resource) Number(ctx context.Context, ws *store.Workspace, recs []any) error {
	if r.hooks.number == nil {
		return nil
	}
	return r.hooks.number(ctx, ws, recs)
}

// KeyField returns the field by which callers name a record: Key, or id if that is empty.
func (r *Resource) KeyField() *field.Field { return &r.Fields[r.index[cmp.Or(r.Key, "id")]] }

// Stored returns the name of a field in the store, "" if the resource has no such field.
func (r *Resource) Stored(name string) string {
	n, ok := r.index[name]
	if !ok {
		return ""
	}
	own, _, _ := strings.Cut(r.Fields[n].Tag.Get("json"), ",")
	return cmp.Or(own, name) // the id has no name in its tag
}

// Ref returns how queries name and compare a field; false if the store does not keep it apart from the record, or the
// resource has no such field.
func (r *Resource) Ref(name string) (store.Field, bool) {
	stored := r.Stored(name)
	typ, ok := r.Records.Spec().Type(stored)
	return store.Field{Name: stored, Type: typ}, ok
}

// Text returns the value of the text field of that name.
func (r *Resource) Text(rec any, name string) string {
	return at(rec, r.Fields[r.index[name]].Index).String()
}

// Deleted reports whether the record is in the trash.
func (r *Resource) Deleted(rec any) bool {
	n, ok := r.index["deleted"]
	return ok && at(rec, r.Fields[n].Index).Bool()
}

// Definer returns the resource whose records define the values of this one, nil if there is none.
func (r *Resource) Definer() *Resource { return r.targets[r.DefinedBy] }

// HasSecrets reports whether values of defined fields can be encrypted.
func (r *Resource) HasSecrets() bool { return r.secrets != nil }

// ValuesName returns the name of the field with the values of defined fields.
func (r *Resource) ValuesName() string { return r.valuesName }

// Values returns a pointer to the plain values of defined fields. The resource must have such values.
func (r *Resource) Values(rec any) *map[string]any {
	return at(rec, r.values).Addr().Interface().(*map[string]any)
}

// Secrets returns a pointer to the sealed values of defined fields. HasSecrets must be true.
func (r *Resource) Secrets(rec any) *map[string]string {
	return at(rec, r.secrets).Addr().Interface().(*map[string]string)
}

// Refers visits every reference of the record to another one.
func (r *Resource) Refers(rec any, visit Visitor) {
	for i := range r.Fields {
		f := &r.Fields[i]
		if f.Rule.Ref == "" || f.Rule.Format != "id" {
			continue
		}
		switch p := at(rec, f.Index).Addr().Interface().(type) {
		case *string:
			visit(f.Name, f.Rule.Ref, p)
		case *[]string:
			for i := range *p {
				visit(f.Name, f.Rule.Ref, &(*p)[i])
			}
		}
	}
	r.hooks.refers(rec, visit)
}

// Plural returns the plural of the name, such as "folders". It ends in "s".
func (r *Resource) Plural() string { return strings.TrimSuffix(r.Name, "s") + "s" }

// Aliases returns alternative names of the field's column in a file. They are in its tag alias, separated by |.
func Aliases(f *field.Field) []string {
	return strings.FieldsFunc(f.Tag.Get("alias"), func(r rune) bool { return r == '|' })
}

// NewPID returns a new public identifier: 128 random bits, URL-safe.
func NewPID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}
