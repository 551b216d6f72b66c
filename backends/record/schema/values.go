package schema

import (
	"encoding/json"
	"maps"
	"math"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// Limits of values.
const (
	MaxText      = 10_000    // characters
	MaxLongText  = 1_000_000 // characters
	MaxEncrypted = 64 << 10  // bytes
	MaxChoices   = 1000      // of a MultiSelect
	maxChoice    = 1000      // characters
	maxURL       = 2048      // bytes
	maxEmail     = 254       // bytes
)

// CheckValues checks the values of a record. Faults are noted in errs under path ("values.color"). It returns the
// values to store, with DateTime in UTC and without null, and the sorted names of values whose field is unknown, which
// it leaves out.
func (f Fields) CheckValues(
	errs *fault.List, path string, values map[string]any,
) (clean map[string]any, unknown []string) {
	return f.CheckChanged(errs, path, values, func(string) bool { return true })
}

// CheckChanged is CheckValues for an existing record: unchanged values are kept, even if they are no longer valid.
func (f Fields) CheckChanged(
	errs *fault.List, path string, values map[string]any, changed func(name string) bool,
) (clean map[string]any, unknown []string) {
	clean = make(map[string]any, len(values))
	for _, name := range f.Names() {
		value, at := values[name], path+"."+name
		if !changed(name) {
			if value != nil {
				clean[name] = value
			}
			continue
		}
		if value == nil || value == "" {
			if f[name].Required {
				errs.Add(at, "required", "%s is required", at)
			}
			if value == nil || f[name].Required {
				continue
			}
		}
		if v, complaint := check(f[name], value); complaint != "" {
			errs.Add(at, codeOf(f[name].Type, value), "%s must be %s", at, complaint)
		} else {
			clean[name] = v
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, ok := f[name]; !ok {
			unknown = append(unknown, name)
		}
	}
	return clean, unknown
}

// Invalid returns, for each value that its field no longer accepts because the definition has changed, what it must be.
// It returns nil if all values are valid.
func (f Fields) Invalid(values map[string]any) (invalid map[string]string) {
	for name, value := range values {
		field, defined := f[name]
		if !defined || value == nil || value == "" {
			continue
		}
		if _, complaint := check(field, value); complaint != "" {
			if invalid == nil {
				invalid = map[string]string{}
			}
			invalid[name] = "must be " + complaint
		}
	}
	return invalid
}

// CheckValue returns the value to store in the field. Faults are noted in errs under path.
func CheckValue(errs *fault.List, path string, f Field, value any) any {
	v, complaint := check(f, value)
	if complaint != "" {
		errs.Add(path, codeOf(f.Type, value), "%s must be %s", path, complaint)
	}
	return v
}

// codeOf returns "type" for a value of the wrong JSON type, "format" for one of the wrong format.
func codeOf(fieldType string, value any) string {
	_, isText := value.(string)
	_, isList := value.([]any)
	switch fieldType {
	case Number, Boolean:
		return "type"
	case MultiSelect:
		if isList {
			return "format"
		}
		return "type"
	case File:
		if isList {
			return "format"
		}
	}
	if isText {
		return "format"
	}
	return "type"
}

// check returns the value to store in the field, or a complaint that says what it must be.
func check(f Field, value any) (stored any, complaint string) {
	switch f.Type {
	case Number:
		return value, unless(isNumber(value), "a number")
	case Boolean:
		_, ok := value.(bool)
		return value, unless(ok, "true or false")
	case MultiSelect:
		return value, unless(isChoices(value), "a list of at most "+strconv.Itoa(MaxChoices)+" different strings")
	case File:
		return checkFiles(f, value)
	case Text, LongText, Date, DateTime, Email, Phone, URL, Select, Encrypted:
		s, ok := value.(string)
		if !ok {
			return value, "a string"
		}
		return checkText(f.Type, s)
	}
	return value, ""
}

func checkText(fieldType, s string) (stored any, complaint string) {
	if s == "" {
		return s, ""
	}
	switch fieldType {
	case LongText:
		return s, unless(utf8.RuneCountInString(s) <= MaxLongText,
			"a text of at most "+strconv.Itoa(MaxLongText)+" characters")
	case Encrypted:
		return s, unless(len(s) <= MaxEncrypted, "a text of at most "+strconv.Itoa(MaxEncrypted)+" bytes")
	case Date:
		t, err := time.Parse(time.DateOnly, s)
		return s, unless(err == nil && t.Year() > 0, "a date like 2024-05-17"+texts.NoSuchTime(s))
	case DateTime:
		t, err := time.Parse(time.RFC3339Nano, s)
		if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
			return s, "a time like 2024-05-17T08:30:00Z" + texts.NoSuchTime(s)
		}
		return t.UTC().Format(texts.TimeLayout), ""
	case Email:
		return s, unless(ValidEmail(s), "an e-mail address")
	case Phone:
		return s, unless(validPhone(s), "a telephone number")
	case URL:
		return s, unless(validURL(s), "an http or https address of at most "+strconv.Itoa(maxURL)+" bytes")
	case Select:
		return s, unless(utf8.RuneCountInString(s) <= maxChoice,
			"a text of at most "+strconv.Itoa(maxChoice)+" characters")
	}
	return s, unless(utf8.RuneCountInString(s) <= MaxText, "a text of at most "+strconv.Itoa(MaxText)+" characters")
}

func unless(ok bool, complaint string) string {
	if ok {
		return ""
	}
	return complaint
}

func isNumber(value any) bool {
	switch n := value.(type) {
	case json.Number:
		f, err := n.Float64()
		return err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
	case float64:
		return !math.IsInf(n, 0) && !math.IsNaN(n)
	case int, int64:
		return true
	}
	return false
}

func isChoices(value any) bool {
	var choices []string
	switch list := value.(type) {
	case []string:
		choices = list
	case []any:
		for _, v := range list {
			s, ok := v.(string)
			if !ok {
				return false
			}
			choices = append(choices, s)
		}
	default:
		return false
	}
	seen := make(map[string]bool, len(choices))
	for _, s := range choices {
		if s == "" || seen[s] || utf8.RuneCountInString(s) > maxChoice {
			return false
		}
		seen[s] = true
	}
	return len(choices) <= MaxChoices
}

// ValidEmail reports whether text is one bare e-mail address.
func ValidEmail(text string) bool {
	if len(text) > maxEmail || strings.ContainsFunc(text, isSpaceOrControl) {
		return false
	}
	a, err := mail.ParseAddress(text)
	return err == nil && a.Name == "" && a.Address == text
}

func isSpaceOrControl(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func validURL(text string) bool {
	if len(text) > maxURL || strings.ContainsFunc(text, isSpaceOrControl) {
		return false
	}
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

func validPhone(text string) bool {
	if len(text) > 40 {
		return false
	}
	body, extension := text, ""
	if i := strings.IndexAny(text, "xe"); i > 0 { // "x12" or "ext. 12"
		body, extension = text[:i], strings.TrimLeft(strings.TrimLeft(text[i:], "ext."), " ")
		if extension == "" || strings.Trim(extension, "0123456789") != "" {
			return false
		}
	}
	digits := 0
	for i, r := range body {
		switch {
		case r >= '0' && r <= '9':
			digits++
		case r == '+' && i > 0, !strings.ContainsRune("+ ().-/", r):
			return false
		}
	}
	return digits >= 3 && digits <= 20
}
