// Package schema defines the fields that organizations define themselves, for custom objects, forms and contacts: their
// types, definitions and values.
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

// Field is a defined field. Fields are compared with ==, so every member must be comparable. CONTRIBUTING, "A property
// of a defined field", says where a further member is read.
type Field struct {
	Title    string `json:"title" doc:"What people read."`
	Type     string `json:"type" doc:"StudlyCase name of a type, for example Text, Number or Date."`
	Required bool   `json:"required,omitempty" doc:"Every record must have a value."`
	Locked   bool   `json:"locked,omitempty" doc:"The field cannot be changed or removed."`

	// Only fields of the type File have these.
	Accept   Accept `json:"accept,omitempty" doc:"Media types of files, such as application/pdf or image/*, which does not include SVG. Left out: all."`
	MaxSize  int64  `json:"max_size,omitempty" doc:"Size of a file in bytes, at most. Left out: 10 MiB with a browser key, otherwise the limit of the organization."`
	MaxFiles int    `json:"max_files,omitempty" doc:"Files of a value, at most. Left out: 1. With more than 1, values are lists."`
	FolderID string `json:"folder_id,omitempty" doc:"Folder for files that are uploaded for the field. Left out: none."`
}

// Definitions stands for field definitions in the OpenAPI schemas of bodies.
type Definitions struct{}

// OpenAPISchema describes what Parse accepts.
func (Definitions) OpenAPISchema() map[string]any {
	return map[string]any{
		"type": "object", "maxProperties": MaxFields,
		"propertyNames":        map[string]any{"pattern": "^[A-Za-z0-9_-]{1,64}$"},
		"additionalProperties": definition(),
	}
}

// Numbered stands for Definitions, or an array of definitions, which become fields named 0, 1, 2.
type Numbered struct{}

// OpenAPISchema describes both forms.
func (Numbered) OpenAPISchema() map[string]any {
	list := map[string]any{"type": "array", "maxItems": MaxFields, "items": definition()}
	return map[string]any{"oneOf": []any{reflect.TypeFor[Definitions](), list}}
}

func definition() map[string]any {
	members := map[string]any{
		"title":    map[string]any{"type": "string", "minLength": 1, "maxLength": MaxTitle, "pattern": labelPattern},
		"type":     map[string]any{"type": "string", "maxLength": MaxTypeBytes, "pattern": "^[A-Z][A-Za-z0-9]*$"},
		"required": map[string]any{"type": "boolean"},
	}
	maps.Copy(members, fileMembers())
	return map[string]any{"type": "object", "required": []string{"title", "type"}, "properties": members}
}

// Dependents finds the dependents of fields: the reports that query them.
type Dependents interface {
	// Broken returns the identifiers of the dependents in the workspace that a change of fields breaks: they are valid
	// with the fields before the change, but not after it. Source is the record of the resource that defines the
	// fields. If after is nil, the source is removed.
	Broken(ctx context.Context, ws *store.Workspace, resource, source string, before, after Fields) ([]string, error)
}

// Broken lists the dependents that a change of fields breaks.
type Broken struct {
	Seen   []string // identifiers of those that the caller may see
	Others int      // the number of others
}

// Breaks returns the dependents in the workspace all that a change of fields breaks. Seen is the workspace of the
// caller. Errors: those of Dependents.Broken.
func Breaks(
	ctx context.Context, by Dependents, all, seen *store.Workspace, resource, source string, before, after Fields,
) (b Broken, err error) {
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

// maxNamed bounds the identifiers that a refusal names.
const maxNamed = 20

// Refuse notes a fault of the field if there are broken dependents. Things is their plural, broken the participle of
// what could not be done with them any more, such as "reports" and "run".
func (b Broken) Refuse(errs *fault.List, field, things, broken string) {
	n, named := len(b.Seen)+b.Others, strings.Join(b.Seen[:min(len(b.Seen), maxNamed)], ", ")
	if named != "" {
		named = " (" + named + ")"
	}
	if n > 0 {
		errs.Add(field, fault.Forbidden, "%d %s%s could not be %s any more; force=true changes it all the same",
			n, things, named, broken)
	}
}

// Rule returns what decides which values the field accepts: its type, and how many files a value may name.
func (f Field) Rule() Field {
	f.Title, f.Required, f.Locked = "", false, false
	f.Accept, f.MaxSize, f.FolderID = "", 0, "" // these are about uploads
	return f
}

// Reseals reports whether a change of a field's type starts or stops encrypting it. Stored values would stay in plain
// text, or sealed and unreadable.
func Reseals(before, after string) bool { return (before == Encrypted) != (after == Encrypted) }

// Fields are defined fields by identifier.
type Fields map[string]Field

// The types whose values are checked. Any other StudlyCase name is a valid type too, whose values are accepted without
// checks.
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
	File        = "File" // the identifier of a file, or a list of some
)

// KnownTypes returns the types whose values are checked, in a fixed order.
func KnownTypes() []string {
	return []string{Text, LongText, Number, Boolean, Date, DateTime, Email, Phone, URL, Select, MultiSelect, Encrypted, File}
}

// Unchecked returns a warning that names the fields whose type is new and not one of KnownTypes, and says that their
// values are not checked; "" if there are none.
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
	return "types of your own: values of " + listed(named) +
		" are taken as they are, and not checked, summed or compared as numbers"
}

// Dropped returns a warning that names the ignored members which definitions do not have, such as options; "" if there
// are none.
func Dropped(ignored []string) string {
	// Callers send locked back as they received it, and older clients send the reserved list.
	parts := slices.DeleteFunc(slices.Clone(ignored), func(part string) bool {
		return strings.HasSuffix(part, ".locked") || strings.HasSuffix(part, "."+reserved)
	})
	if len(parts) == 0 {
		return ""
	}
	return "not stored, since fields have no such members: " + listed(parts)
}

// maxListed bounds the names in a sentence.
const maxListed = 10

// listed joins the first names, and counts the others.
func listed(names []string) string {
	text := strings.Join(names[:min(len(names), maxListed)], ", ")
	if n := len(names) - maxListed; n > 0 {
		text += " and " + strconv.Itoa(n) + " more"
	}
	return text
}

// StoreType returns the type as which values of the field type compare in queries, and false if queries cannot use the
// field.
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

// With returns a copy to which more is added, replacing fields of the same identifier.
func (f Fields) With(more Fields) Fields {
	c := f.Clone()
	maps.Copy(c, more)
	return c
}

// Names returns the identifiers, sorted.
func (f Fields) Names() []string { return slices.Sorted(maps.Keys(f)) }
