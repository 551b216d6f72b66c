package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// Limits of a definition.
const (
	MaxFields    = 500
	MaxTitle     = 200 // characters
	MaxTypeBytes = 64
	// BodyLimit is the limit of a body with definitions, in bytes. The maximum number of fields, with texts of full
	// length in ASCII and about 60 bytes of JSON each, takes 196 KB. The rest is for names, labels and the other members
	// of a form.
	BodyLimit = 256 << 10
)

// reserved is the name that older clients used for a second list of definitions. It is ignored everywhere.
const reserved = "fields"

// Parse reads field definitions as callers write them: an object of {title, type, required?} by identifier; the type
// File has further members. All faults are noted in errs under path ("schema.color.type"). Fields is never nil, and
// valid only if no fault was noted. Ignored names the members that callers may not set, or that definitions do not
// have, such as "schema.color.locked". A type that looks like a misspelled known type is a fault, unless the field has
// that type in stored.
func Parse(errs *fault.List, path string, raw map[string]any, stored Fields) (fields Fields, ignored []string) {
	fields = make(Fields, min(len(raw), MaxFields))
	names := slices.Sorted(maps.Keys(raw))
	if i, found := slices.BinarySearch(names, reserved); found {
		names = slices.Delete(names, i, i+1)
		ignored = append(ignored, path+"."+reserved)
	}
	if len(names) > MaxFields {
		errs.Add(path, "length", "%s must have at most %d fields", path, MaxFields)
		return fields, ignored
	}
	for _, name := range names {
		at := path + "." + Printable(name)
		if !store.ValidKey(name) {
			errs.Add(at, "format",
				`%s: a field identifier has 1 to 64 of A-Z, a-z, 0-9, "_" and "-"; put the label into title`, at)
			continue
		}
		definition, ok := raw[name].(map[string]any)
		if !ok {
			errs.Add(at, "type", "%s must be an object with title and type", at)
			continue
		}
		field, more := parseField(errs, at, definition)
		if field.Type != "" && field.Type != stored[name].Type {
			CheckType(errs, at+".type", field.Type)
		}
		fields[name] = field
		ignored = append(ignored, more...)
	}
	return fields, ignored
}

// Strict is Parse that does not ignore members silently: a member that callers may not set is a fault. Locked fields of
// stored are kept, and a definition of one must repeat it.
func Strict(errs *fault.List, path string, raw map[string]any, stored Fields) Fields {
	fields, ignored := Parse(errs, path, raw, stored)
	for _, name := range stored.Names() {
		was, at := stored[name], path+"."+name
		if !was.Locked {
			continue
		}
		// Callers may send the member locked back as they received it.
		ignored = slices.DeleteFunc(ignored, func(part string) bool { return part == at+".locked" })
		given, ok := fields[name]
		if given.Locked = true; ok && given != was {
			errs.Add(at, fault.Forbidden, "%s is locked and cannot be changed", at)
		}
		fields[name] = was
	}
	for _, part := range ignored {
		errs.Add(part, fault.Unknown, "%s cannot be set", part)
	}
	return fields
}

// ReadValue reads the definitions in a line of a bundle, which may also have the member locked.
func (f *Fields) ReadValue(name string, v strictjson.Value, errs *fault.List) {
	if v.Is != strictjson.Object {
		errs.Add(name, fault.Type, "%s must be an object of fields by identifier", name)
		return
	}
	*f, _ = Parse(errs, name, v.Table(), nil)
	for i := range v.Members {
		if d, ok := (*f)[v.Members[i].Name]; ok && v.Members[i].Value.Get("locked").Is == strictjson.True {
			d.Locked = true
			(*f)[v.Members[i].Name] = d
		}
	}
}

// ReadStored reads stored definitions without checking them.
func (f *Fields) ReadStored(v strictjson.Value) error { return json.Unmarshal(v.Raw(), f) }

func parseField(errs *fault.List, at string, definition map[string]any) (field Field, ignored []string) {
	field.Title = text(errs, at+".title", definition, "title")
	if field.Title != "" {
		field.Title = texts.Trim(field.Title)
		CheckLabel(errs, at+".title", field.Title)
	}
	field.Type = text(errs, at+".type", definition, "type")
	for _, name := range slices.Sorted(maps.Keys(definition)) {
		switch name {
		case "title", "type":
		case "required":
			var ok bool
			if field.Required, ok = definition[name].(bool); !ok {
				errs.Add(at+".required", "type", "%s.required must be true or false", at)
			}
		default:
			if !parseFile(errs, at, name, definition[name], &field) {
				ignored = append(ignored, at+"."+Printable(name))
			}
		}
	}
	return field, ignored
}

// text returns a required text member, "" if it has a fault.
func text(errs *fault.List, at string, definition map[string]any, name string) string {
	value, ok := definition[name]
	if !ok {
		errs.Add(at, "required", "%s is required", at)
		return ""
	}
	s, ok := value.(string)
	if !ok {
		errs.Add(at, "type", "%s must be a string", at)
		return ""
	}
	if strings.TrimSpace(s) == "" {
		errs.Add(at, "required", "%s must not be empty", at)
		return ""
	}
	return s
}

// CheckType notes a fault if the value cannot name a type, or looks like a misspelled known type.
func CheckType(errs *fault.List, field, value string) {
	if !ValidType(value) {
		errs.Add(field, "format", "%s must be StudlyCase, such as LongText, of at most %d characters", field, MaxTypeBytes)
	} else if meant := misspelled(value); meant != "" {
		errs.Add(field, "unknown", "%s: unknown type %q; did you mean %s?", field, value, meant)
	}
}

// ValidType reports whether text can name a field type.
func ValidType(text string) bool {
	return texts.Plain(text, MaxTypeBytes, "") && text[0] >= 'A' && text[0] <= 'Z'
}

// Printable returns a name from outside for use in a message: a valid key as it is, any other text shortened and quoted.
func Printable(name string) string {
	if store.ValidKey(name) {
		return name
	}
	return strconv.Quote(texts.Clip(name))
}
