// Package record describes what a record is, once: the tags of its struct declare each field
// (see package declare), and Define adds what concerns the record as a whole. From that come the
// store's specification, what is read of a line or a body and how it is checked, what is written,
// and which other records it refers to.
//
// Besides the tags that package declare reads, a field may bear as:"id", its name where callers and
// bundles see it, and store:"custom", the values of fields that the organization defined.
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

// Resource is what one kind of record is, whatever its type. It is immutable and safe for
// concurrent use. Records are pointers to their structs.
type Resource struct {
	Traits
	// Fields are those that travel, in the order in which they are written.
	Fields     []field.Field
	Uniques    []Unique
	Records    Records
	Collection Collection // nil where the records are in none
	// DefinitionField says by which definition a record's values are; empty where all definitions are of
	// all records.
	DefinitionField string

	// Ask, where set, looks at a record that is good otherwise, for what only its module can tell.
	// It is set before the resource is used.
	Ask func(c *Checking, rec any)

	targets         map[string]*Resource // those that the fields refer to, by name
	typ             reflect.Type
	index           map[string]int
	values, secrets []int // where the values of defined fields are; nil: there are none
	valuesName      string
	definition      []int // the field called DefinitionField
	hooks           hooks
}

// Traits are what holds of all records of a resource.
type Traits struct {
	Name string // "folder": in bundles, references and messages
	// Definition: other records are checked against these, which are read first and few.
	Definition bool
	// Control: the records are in the organization's part of the control workspace.
	Control bool
	// Rights: a change alters what people or keys may do.
	Rights bool
	// Carries: other records lie in a record of these or show it, so that its change is theirs as well. It goes
	// without saying of definitions.
	Carries bool
	// Key is the field by which other records refer to one; empty: id.
	Key string
	// Called is a unique field by which callers may name one besides, where Key is empty.
	Called string
	// Single: an organization has one record.
	Single bool
	// Most is how many records an organization may have; 0: any number.
	Most int
	// Travels says which of id, created_at and updated_at travel; empty: all of them.
	Travels string
	// Together: the fields that records define are of one definition, which is all of them.
	Together bool
	// DefinedBy is the resource whose records define the fields of the values. The field with
	// that reference says which one; where there is none, all of them do together.
	DefinedBy string
}

// Options are what tags cannot say of a resource. All but Name and Spec.Name may be zero.
type Options[T any] struct {
	Traits
	// Spec has the name, indexes and questions of the records. Fields, unique values, Custom and
	// what the struct says of scopes are added to it.
	Spec store.Spec
	// Preset gives a record what holds where its line does not say otherwise.
	Preset func(rec *T)
	// Derive sets what follows from other fields, whenever those were set.
	Derive func(rec *T)
	// Fill completes a record that is stored for the first time.
	Fill func(rec *T)
	// Number completes records that are stored for the first time, together.
	Number func(ctx context.Context, ws *store.Workspace, recs []*T) error
	// Check looks at a whole record whose fields are all in order.
	Check func(c *Checking, rec *T)
	// Refers visits references that depend on other fields.
	Refers func(rec *T, visit Visitor)
	// Asks returns the definition that the resource's Ask holds the record against: of which resource, and
	// its name, empty where all are one.
	Asks func(rec *T) (resource, name string)
	// Uses returns the definition that the record asks for although none of its fields refers to it.
	Uses func(rec *T) Use
	// Defines returns the name under which the record defines fields, those, and whether the
	// record says which they are.
	Defines func(rec *T) (name string, fields schema.Fields, given bool)
}

// Visitor is called with a reference of a record: the field, the resource it leads to, and the
// identifier, which it may replace.
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

// Unique is a value that no two records share. Its identity says when it tells which record is meant.
type Unique struct {
	Field    string // as it is stored
	Shown    string // as callers know it
	Identity Identity
	within   string // the stored field within which it is unique
	sparse   bool   // records may have no value
	index    []int
	group    []int
}

// Free takes the value from a record: it has none then, or one that nobody else has or knows.
func (u *Unique) Free(rec any) {
	v := at(rec, u.index)
	v.SetZero()
	if !u.sparse && v.Kind() == reflect.String {
		v.SetString("freed-" + rand.Text())
	}
}

// Identity says when a unique value tells which record is meant.
type Identity byte

// The identities.
const (
	Never  Identity = iota
	Named           // where no identifier is given
	Always          // also where another identifier is given
)

// Value returns the record's value as text, "" where it has none.
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

// Group returns the value within which the other is unique, "" where it is so everywhere.
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

// Number reports whether the value is a whole number.
func (u *Unique) Number(rec any) bool { return at(rec, u.index).Kind() != reflect.String }

// Identifying returns the values that tell which record is meant, the identifier first.
func (r *Resource) Identifying() []Unique {
	id := Unique{Field: "id", Shown: "id", Identity: Always, index: r.Fields[r.index["id"]].Index}
	return append([]Unique{id}, slices.DeleteFunc(slices.Clone(r.Uniques), func(u Unique) bool { return u.Identity == Never })...)
}

// Taken returns err, the refusal of a write of rec, so that it names each field of which another record has the value
// (the store names one) and says which of those that in shows are deleted.
func (r *Resource) Taken(ctx context.Context, in *store.Workspace, rec any, err error) error {
	dup, ok := errors.AsType[*store.DuplicateError](err)
	if !ok {
		return err
	}
	all := &store.DuplicateError{Kind: dup.Kind, Position: dup.Position, Trashed: map[string]string{}}
	for i := range r.Uniques {
		u, taken := &r.Uniques[i], slices.Contains(dup.Fields, r.Uniques[i].Field)
		if value := u.Value(rec); value != "" {
			same := store.All(u.Filter(u.Group(rec), []string{value}, u.Number(rec)), store.Where(store.F("id"), store.OpNe, r.Meta(rec).ID))
			found, lookup := r.Records.Find(ctx, in, store.Query{Filter: same, State: store.Either, Limit: 1})
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
	if len(all.Fields) == 0 { // it is the identifier
		return err
	}
	return all
}

func at(rec any, index []int) reflect.Value { return reflect.ValueOf(rec).Elem().FieldByIndex(index) }

// Define returns the resource of a record type, which must embed store.Meta. An error is a fault
// of the program.
func Define[T any](o Options[T]) (*Of[T], error) {
	r, err := describe(reflect.TypeFor[T](), o.Traits, &o.Spec)
	if err != nil {
		return nil, fmt.Errorf("resource %s: %w", o.Name, err)
	}
	r.hooks = hooks{
		preset: erased(o.Preset), derive: erased(o.Derive), fill: erased(o.Fill),
		check: func(c *Checking, rec any) { call2(o.Check, c, rec) },
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

// Must is Define where an error would be a fault of the program, which ends it.
func Must[T any](o Options[T]) *Of[T] {
	of, err := Define(o)
	if err != nil {
		panic(err)
	}
	return of
}

// Kept is what a module stores: the records of a resource, or some that never travel.
type Kept interface{ Spec() *store.Spec }

// Specs returns the specifications of what is kept, for the store.
func Specs(all []Kept) []*store.Spec {
	specs := make([]*store.Spec, len(all))
	for i, kept := range all {
		specs[i] = kept.Spec()
	}
	return specs
}

// Described returns the resources among what is kept, definitions first.
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

// Link tells resources of those that their fields refer to. It is called before they are used.
func Link(all []*Resource) {
	named := map[string]*Resource{}
	for _, r := range all {
		named[r.Name] = r
	}
	for _, r := range all {
		r.targets = named
	}
}

func erased[T any](f func(*T)) func(any) {
	return func(rec any) {
		if f != nil {
			f(rec.(*T))
		}
	}
}

func call2[T any](f func(*Checking, *T), c *Checking, rec any) {
	if f != nil {
		f(c, rec.(*T))
	}
}

func typed[T any](recs []any) []*T {
	out := make([]*T, len(recs))
	for i, rec := range recs {
		out[i] = rec.(*T)
	}
	return out
}

// Index returns where in Fields the field of that name is.
func (r *Resource) Index(name string) (int, bool) { n, ok := r.index[name]; return n, ok }

// New returns an empty record, with what holds where nobody says otherwise.
func (r *Resource) New() any {
	rec := reflect.New(r.typ).Interface()
	r.hooks.preset(rec)
	return rec
}

// Clone returns a copy of the record, which shares what its members point to.
func (r *Resource) Clone(rec any) any {
	c := reflect.New(r.typ)
	c.Elem().Set(reflect.ValueOf(rec).Elem())
	return c.Interface()
}

// Assign makes a record what another is.
func (r *Resource) Assign(rec, from any) {
	reflect.ValueOf(rec).Elem().Set(reflect.ValueOf(from).Elem())
}

// Bare returns an empty record.
func (r *Resource) Bare() any { return reflect.New(r.typ).Interface() }

// Meta returns the record's identifier, revision and times.
func (r *Resource) Meta(rec any) *store.Meta {
	return rec.(interface{ StoreMeta() *store.Meta }).StoreMeta()
}

// Revision returns what tells the states of a record apart: its revision, or where callers name records by what another
// may have been called before, one that no record of that name had.
func (r *Resource) Revision(rec any) int64 {
	meta := r.Meta(rec)
	if r.Key == "" || meta.Rev == 0 {
		return meta.Rev
	}
	return meta.CreatedAt<<20 + meta.Rev
}

// Derive sets what follows from the fields that were set.
func (r *Resource) Derive(rec any) { r.hooks.derive(rec) }

// Fill completes a record that is stored for the first time.
func (r *Resource) Fill(rec any) { r.hooks.fill(rec) }

// Number completes records that are stored for the first time, together. Errors: store.ErrUnavailable.
func (r *Resource) Number(ctx context.Context, ws *store.Workspace, recs []any) error {
	if r.hooks.number == nil {
		return nil
	}
	return r.hooks.number(ctx, ws, recs)
}

// KeyField returns the field by which callers name a record: that of Key, else id.
func (r *Resource) KeyField() *field.Field { return &r.Fields[r.index[cmp.Or(r.Key, "id")]] }

// Stored returns the name under which the store knows a field, "" where there is none of that name.
func (r *Resource) Stored(name string) string {
	n, ok := r.index[name]
	if !ok {
		return ""
	}
	own, _, _ := strings.Cut(r.Fields[n].Tag.Get("json"), ",")
	return cmp.Or(own, name) // what every record has bears no tag
}

// Text returns the value of a text field of that name.
func (r *Resource) Text(rec any, name string) string {
	return at(rec, r.Fields[r.index[name]].Index).String()
}

// Deleted reports whether the record is deleted, and may be restored.
func (r *Resource) Deleted(rec any) bool {
	n, ok := r.index["deleted"]
	return ok && at(rec, r.Fields[n].Index).Bool()
}

// Definer returns the resource whose records define this one's values; nil: there is none.
func (r *Resource) Definer() *Resource { return r.targets[r.DefinedBy] }

// HasSecrets reports whether values of defined fields can be encrypted.
func (r *Resource) HasSecrets() bool { return r.secrets != nil }

// ValuesName returns what the values of defined fields are called.
func (r *Resource) ValuesName() string { return r.valuesName }

// Values leads to the plain values of defined fields, Secrets to the sealed ones. Only records
// that HasSecrets have both.
func (r *Resource) Values(rec any) *map[string]any {
	return at(rec, r.values).Addr().Interface().(*map[string]any)
}

// Secrets is said at Values.
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

// Plural returns what several records are called, such as "folders". It ends in "s".
func (r *Resource) Plural() string { return strings.TrimSuffix(r.Name, "s") + "s" }

// Aliases returns what the column of a field may be called besides in a file: its tag alias, separated by |.
func Aliases(f *field.Field) []string {
	return strings.FieldsFunc(f.Tag.Get("alias"), func(r rune) bool { return r == '|' })
}

// NewPID returns a new public identifier: 128 random bits, URL-safe.
func NewPID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}
