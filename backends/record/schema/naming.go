package schema

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// MaxLabel is the number of characters that a label may have.
const MaxLabel = 200

const maxName = 64

// NameBounds returns the bounds of what CheckName accepts, for the rows of operations.
func NameBounds() declare.Bounds {
	return declare.Bounds{MinLength: 1, MaxLength: maxName, Pattern: "^[a-z][a-z0-9_]*$"}
}

// LabelBounds returns the bounds of what CheckLabel accepts, for the rows of operations.
func LabelBounds() declare.Bounds {
	return declare.Bounds{MinLength: 1, MaxLength: MaxLabel, Pattern: labelPattern}
}

// labelPattern matches one line that is not blank.
const labelPattern = `^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$`

// ValidName reports whether text can name a custom object or a form: 1 to 64 lower-case letters, digits or "_",
// starting with a letter.
func ValidName(text string) bool {
	return texts.PlainLower(text, maxName, "_") && text[0] >= 'a'
}

// CheckName notes a fault if the value cannot name a custom object or a form.
func CheckName(errs *fault.List, field, value string) {
	if !ValidName(value) {
		errs.Add(field, "format", `%s must have 1 to 64 of a-z, 0-9 and "_" and start with a letter`, field)
	}
}

// CheckLabel notes a fault if the value is not a valid label or title: it must not be blank, and must have at most
// MaxLabel characters and no control characters.
func CheckLabel(errs *fault.List, field, value string) {
	switch {
	case strings.TrimSpace(value) == "":
		errs.Add(field, "required", "%s must not be empty", field)
	case utf8.RuneCountInString(value) > MaxLabel:
		errs.Add(field, "length", "%s must have at most %d characters", field, MaxLabel)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		errs.Add(field, "format", "%s must not contain control characters", field)
	}
}
