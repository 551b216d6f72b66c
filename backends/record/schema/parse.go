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
	// BodyLimit is that of a body with definitions, in bytes. As many fields as there may be,
	// with their texts at full length in ASCII and some 60 bytes of JSON around them, take
	// 196 KB; that leaves room for names, labels and what else a form has.
	BodyLimit = 256 << 10
)

// reserved is the name that older clients used for a second list of definitions. It is
// dropped wherever it stands.
const reserved = "fields"

// Parse reads field definitions as callers write them: an object of {title, type,
// required?} by identifier. Every problem is noted in errs under path ("schema.color.type").
// Fields is never nil; it is to be used only where errs stayed empty. Ignored names what
// callers may not set or what no definition knows, such as "schema.color.locked".
// A type that looks like a misspelled known one is a problem, except where the field has it
// already in stored.
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
			errs.Add(at, "format", `%s: a field identifier has 1 to 64 letters, digits, "_" or "-"`, at)
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

// Strict is Parse where nothing is dropped in silence: what callers may not set is a problem too. Locked fields
// of stored stay, and a definition of one must say what it is.
func Strict(errs *fault.List, path string, raw map[string]any, stored Fields) Fields {
	fields, ignored := Parse(errs, path, raw, stored)
	for _, name := range stored.Names() {
		was, at := stored[name], path+"."+name
		if !was.Locked {
			continue
		}
		ignored = slices.DeleteFunc(ignored, func(part string) bool { return part == at+".locked" }) // as it was answered
		if given, ok := fields[name]; ok && (given.Title != was.Title || given.Type != was.Type || given.Required != was.Required) {
			errs.Add(at, fault.Forbidden, "%s is locked and cannot be changed", at)
		}
		fields[name] = was
	}
	for _, part := range ignored {
		errs.Add(part, fault.Unknown, "%s cannot be set", part)
	}
	return fields
}

// ReadValue reads the definitions of a line, where also what callers may not set counts.
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

// ReadStored takes the definitions as they were stored.
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
			ignored = append(ignored, at+"."+Printable(name))
		}
	}
	return field, ignored
}

// text returns a required text member, "" where there is a problem.
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

// CheckType notes in errs where the value cannot name a type, or looks like a misspelled known one.
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

// Printable returns a name from outside so that it can stand in a message or a header:
// short and in printable ASCII, quoted where it was not.
func Printable(name string) string {
	if store.ValidKey(name) {
		return name
	}
	return strconv.QuoteToASCII(texts.Clip(name))
}
