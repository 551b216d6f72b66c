package schema

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// MaxLabel is how many characters a label may have.
const MaxLabel = 200

const maxName = 64

// Naming is what custom objects and forms are called. Each part is unique among its kind
// in an organization.
type Naming struct {
	Name        string
	Label       string
	LabelPlural string
}

// Taken returns err, the refusal of a write of rec, so that it names each part of its naming that other records
// have: the store names one. T declares name, label and label_plural as unique.
func Taken[T any](ctx context.Context, in store.Collection[T], naming func(*T) Naming, rec *T, err error) error {
	dup, ok := errors.AsType[*store.DuplicateError](err)
	if !ok {
		return err
	}
	n, id := naming(rec), any(rec).(interface{ StoreMeta() *store.Meta }).StoreMeta().ID
	clash := store.AnyOf(store.Eq("name", n.Name), store.Eq("label", n.Label), store.Eq("label_plural", n.LabelPlural))
	found, lookup := in.Find(ctx, store.Query{Limit: 3, State: store.Either, Filter: store.All(clash, store.Where(store.F("id"), store.OpNe, id))})
	var taken []string
	for _, part := range []struct {
		name string
		of   func(Naming) string
	}{
		{"name", func(n Naming) string { return n.Name }}, {"label", func(n Naming) string { return n.Label }}, {"label_plural", func(n Naming) string { return n.LabelPlural }},
	} {
		if slices.ContainsFunc(found, func(o T) bool { return part.of(naming(&o)) == part.of(n) }) {
			taken = append(taken, part.name)
		}
	}
	if lookup != nil || len(taken) == 0 {
		return err
	}
	return &store.DuplicateError{Kind: dup.Kind, Fields: taken}
}

// NameBounds and LabelBounds are for the rows of operations that take what CheckName and
// CheckLabel check.
func NameBounds() declare.Bounds {
	return declare.Bounds{MinLength: 1, MaxLength: maxName, Pattern: "^[a-z][a-z0-9_]*$"}
}

// LabelBounds is said at NameBounds.
func LabelBounds() declare.Bounds {
	return declare.Bounds{MinLength: 1, MaxLength: MaxLabel, Pattern: labelPattern}
}

// labelPattern is that of one line that is not blank.
const labelPattern = `^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$`

// ValidName reports whether text can name a custom object or a form: 1 to 64 lower-case
// letters, digits and "_", a letter first.
func ValidName(text string) bool {
	return texts.PlainLower(text, maxName, "_") && text[0] >= 'a'
}

// CheckName notes in errs where the value cannot name a custom object or a form.
func CheckName(errs *fault.List, field, value string) {
	if !ValidName(value) {
		errs.Add(field, "format", `%s must have 1 to 64 lower-case letters, digits or "_" and start with a letter`, field)
	}
}

// CheckLabel notes in errs where the value cannot be a label or a title: it must not be
// blank, have at most MaxLabel characters and none that controls a terminal or a header.
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
