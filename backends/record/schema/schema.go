// Package schema is the vocabulary of fields that an organization defines itself: of
// custom objects, forms and contacts.
package schema

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
)

// Field is one defined field.
type Field struct {
	Title    string `json:"title" doc:"What people read."`
	Type     string `json:"type" doc:"StudlyCase name of a type, for example Text, Number or Date."`
	Required bool   `json:"required,omitempty" doc:"Every record must have a value."`
	Locked   bool   `json:"locked,omitempty" doc:"The field cannot be changed or removed."`
}

// Definitions are fields as callers define them, for the description of bodies.
type Definitions struct{}

// OpenAPISchema says what Parse checks.
func (Definitions) OpenAPISchema() map[string]any {
	return map[string]any{
		"type": "object", "maxProperties": MaxFields,
		"propertyNames":        map[string]any{"pattern": "^[A-Za-z0-9_-]{1,64}$"},
		"additionalProperties": definition(),
	}
}

// Numbered are Definitions, or an array of them, which makes fields named 0, 1, 2.
type Numbered struct{}

// OpenAPISchema describes both shapes.
func (Numbered) OpenAPISchema() map[string]any {
	list := map[string]any{"type": "array", "maxItems": MaxFields, "items": definition()}
	return map[string]any{"oneOf": []any{reflect.TypeFor[Definitions](), list}}
}

func definition() map[string]any {
	return map[string]any{
		"type": "object", "required": []string{"title", "type"},
		"properties": map[string]any{
			"title":    map[string]any{"type": "string", "minLength": 1, "maxLength": MaxTitle, "pattern": labelPattern},
			"type":     map[string]any{"type": "string", "maxLength": MaxTypeBytes, "pattern": "^[A-Z][A-Za-z0-9]*$"},
			"required": map[string]any{"type": "boolean"},
		},
	}
}

// Dependents know what asks for fields: the reports.
type Dependents interface {
	// Broken returns the identifiers of those on a source, a record of the resource, which the workspace shows
	// and which fit its fields before a change of them and not those after it; nil: the source is gone.
	Broken(ctx context.Context, ws *store.Workspace, resource, source string, before, after Fields) ([]string, error)
}

// Broken is what a change breaks of what asks for fields.
type Broken struct {
	Seen   []string // identifiers of those that the caller may see
	Others int      // how many more there are
}

// Breaks returns what a change of fields breaks, of all there is in the one workspace; the caller sees the other.
// Errors: those of Dependents.Broken.
func Breaks(ctx context.Context, by Dependents, all, seen *store.Workspace, resource, source string, before, after Fields) (b Broken, err error) {
	b.Seen = []string{}
	every, err := by.Broken(ctx, all, resource, source, before, after)
	if err != nil || len(every) == 0 {
		return b, err
	}
	found, err := by.Broken(ctx, seen, resource, source, before, after)
	b.Seen = append(b.Seen, found...)
	b.Others = len(every) - len(found)
	return b, err
}

// maxTold bounds the identifiers that a refusal names.
const maxTold = 20

// Refuse notes under the field that so many of what would be broken, if any.
func (b Broken) Refuse(errs *fault.List, field, things, broken string) {
	n, named := len(b.Seen)+b.Others, strings.Join(b.Seen[:min(len(b.Seen), maxTold)], ", ")
	if named != "" {
		named = " (" + named + ")"
	}
	if n > 0 {
		errs.Add(field, fault.Forbidden, "%d %s%s could not be %s any more; force=true changes it all the same", n, things, named, broken)
	}
}

// Reseals reports whether a change of a field's type leaves its values in clear where they are to be secret,
// or sealed where nobody can read them.
func Reseals(before, after string) bool { return (before == Encrypted) != (after == Encrypted) }

// Fields are defined fields by identifier.
type Fields map[string]Field

// The types whose values are checked. Any other StudlyCase name is a type too; its
// values are taken as they are.
const (
	Text        = "Text"
	LongText    = "LongText"
	Number      = "Number"
	Boolean     = "Boolean"
	Date        = "Date"     // "2006-01-02"
	DateTime    = "DateTime" // RFC 3339
	Email       = "Email"
	Phone       = "Phone"
	URL         = "Url"
	Select      = "Select"
	MultiSelect = "MultiSelect"
	Encrypted   = "Encrypted"
)

// KnownTypes returns the types whose values are checked, in a fixed order.
func KnownTypes() []string {
	return []string{Text, LongText, Number, Boolean, Date, DateTime, Email, Phone, URL, Select, MultiSelect, Encrypted}
}

// Unchecked returns, in words, which of the fields have a type of the organization's own that they had not before, and
// what it means for their values; "": none has.
func (f Fields) Unchecked(before Fields) string {
	var named []string
	for _, name := range f.Names() {
		if t := f[name].Type; t != before[name].Type && !slices.Contains(KnownTypes(), t) {
			named = append(named, name+" ("+t+")")
		}
	}
	if len(named) == 0 {
		return ""
	}
	return "types of your own: values of " + listed(named) + " are taken as they are, and not checked, summed or compared as numbers"
}

// Dropped returns, in words, which of the parts that Parse ignored no definition has, such as options; "": there are
// none.
func Dropped(ignored []string) string {
	parts := slices.DeleteFunc(slices.Clone(ignored), func(part string) bool { // which callers send as they were answered, or have always sent
		return strings.HasSuffix(part, ".locked") || strings.HasSuffix(part, "."+reserved)
	})
	if len(parts) == 0 {
		return ""
	}
	return "not stored, since fields have no such members: " + listed(parts)
}

// maxListed bounds what a sentence names.
const maxListed = 10

func listed(names []string) string {
	text := strings.Join(names[:min(len(names), maxListed)], ", ")
	if n := len(names) - maxListed; n > 0 {
		text += " and " + strconv.Itoa(n) + " more"
	}
	return text
}

// StoreType returns how values of the field type compare in questions. It is false for
// types whose values nobody may ask about.
func StoreType(fieldType string) (store.Type, bool) {
	switch fieldType {
	case Encrypted:
		return store.TypeAny, false
	case Text, LongText, Email, Phone, URL, Select:
		return store.TypeString, true
	case Number:
		return store.TypeFloat, true
	case Boolean:
		return store.TypeBool, true
	case Date, DateTime:
		return store.TypeDate, true
	case MultiSelect:
		return store.TypeStrings, true
	}
	return store.TypeAny, true
}

// Clone returns a copy that is never nil.
func (f Fields) Clone() Fields {
	c := make(Fields, len(f))
	maps.Copy(c, f)
	return c
}

// With returns a copy in which the given fields stand beside, or instead of, f's own.
func (f Fields) With(more Fields) Fields {
	c := f.Clone()
	maps.Copy(c, more)
	return c
}

// Names returns the identifiers, sorted.
func (f Fields) Names() []string { return slices.Sorted(maps.Keys(f)) }
