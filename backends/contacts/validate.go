package contacts

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tenantry/backends/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
)

// Limits of a contact, in characters and numbers of elements.
const (
	maxName  = 200
	maxPhone = 64
	maxTag   = 100
	maxTags  = 200
	maxTitle = 200
)

// Validate checks a contact whose secrets were taken from its Fields. Every problem goes
// into errs. Values are brought into the form in which they are stored; empty ones are
// left out. defs are the organization's own fields (Module.Definitions).
func Validate(c *Contact, defs map[string]FieldDef, errs *fault.List) {
	if c.Email != "" && !schema.ValidEmail(c.Email) {
		errs.Add("email", "format", "email must be an e-mail address")
	}
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"first_name", c.FirstName, maxName}, {"last_name", c.LastName, maxName}, {"phone", c.Phone, maxPhone},
		{"country", c.Country, maxName}, {"city", c.City, maxName}, {"status", c.Status, maxName},
		{"external_id", c.ExternalID, maxName},
	} {
		checkLine(errs, f.name, f.value, f.most)
	}
	if len(c.Tags) > maxTags {
		errs.Add("tags", "length", "tags must have at most %d elements", maxTags)
	}
	for _, tag := range c.Tags {
		if tag == "" {
			errs.Add("tags", "required", "tags must not hold an empty text")
			break
		}
		checkLine(errs, "tags", tag, maxTag)
	}
	if len(c.Teams) > store.MaxTeams {
		errs.Add("teams", "length", "teams must have at most %d elements", store.MaxTeams)
	}
	if slices.ContainsFunc(c.Teams, func(t string) bool { return !store.ValidID(t) }) {
		errs.Add("teams", "format", "teams must hold team identifiers (24 lower-case hexadecimal digits)")
	}
	validateFields(c, defs, errs)
}

func checkLine(errs *fault.List, name, value string, most int) {
	switch {
	case utf8.RuneCountInString(value) > most:
		errs.Add(name, "length", "%s must have at most %d characters", name, most)
	case strings.ContainsFunc(value, unicode.IsControl):
		errs.Add(name, "format", "%s must not hold control characters", name)
	}
}

func validateFields(c *Contact, defs map[string]FieldDef, errs *fault.List) {
	plain := map[string]any{}
	known := schema.Fields{}
	for key, value := range c.Fields {
		def, ok := defs[key]
		if ok {
			known[key] = schema.Field{Title: def.Title, Type: def.Type}
		}
		if value != "" {
			plain[key] = value
		}
	}
	clean, unknown := known.CheckValues(errs, "fields", plain)
	for _, key := range unknown {
		at := "fields." + shown(key)
		errs.Add(at, "unknown", "%s is not a contact field of this organization", at)
	}
	if c.Fields != nil {
		c.Fields = clean
	}
}

// shown makes a name from outside fit for an error.
func shown(name string) string {
	if store.ValidKey(name) {
		return name
	}
	quoted, _ := json.Marshal(name)
	if len(quoted) > 64 {
		return strings.ToValidUTF8(string(quoted[:64]), "") + "..."
	}
	return string(quoted)
}

// ValidateField checks the definition of a contact field. Every problem goes into errs.
func ValidateField(def *FieldDef, errs *fault.List) {
	_, standard := standardFields()[def.Key]
	switch {
	case !store.ValidKey(def.Key):
		errs.Add("key", "format", "key must be 1 to 64 letters, digits, _ or -")
	case standard || slices.Contains([]string{"id", "or", "teams", "fields", "updated_at"}, def.Key):
		errs.Add("key", "forbidden", "key is the name of something that every contact has")
	}
	switch {
	case strings.TrimSpace(def.Title) == "":
		errs.Add("title", "required", "title is required")
	default:
		checkLine(errs, "title", def.Title, maxTitle)
	}
	schema.CheckType(errs, "type", def.Type)
}
