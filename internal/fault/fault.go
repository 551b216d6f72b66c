// Package fault lists what is wrong with an input: every fault at once, each with its field.
package fault

import (
	"fmt"
	"strings"
)

// Codes of a Fault.
const (
	Required  = "required"
	Type      = "type"
	Format    = "format"
	Length    = "length"
	Range     = "range"
	Unknown   = "unknown"
	Duplicate = "duplicate"
	Forbidden = "forbidden"
	Stale     = "stale"
	// Unavailable: what the input would be held against does not answer, so it may be right.
	Unavailable = "unavailable"
)

// Fault is one problem with one field.
type Fault struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// List collects the faults of an input. The zero value is ready to use. Messages hold no secrets
// and never repeat the caller's value.
type List []Fault

// most bounds an answer.
const most = 100

// Add notes a fault.
func (l *List) Add(field, code, format string, args ...any) {
	if len(*l) < most {
		*l = append(*l, Fault{field, code, fmt.Sprintf(format, args...)})
	}
}

// Err returns an *Error, or nil where there is no fault.
func (l List) Err() error {
	if len(l) == 0 {
		return nil
	}
	return &Error{Faults: l}
}

// Error says that an input is refused, and why. A value that must be unique and is taken is a
// *store.DuplicateError instead.
type Error struct{ Faults List }

func (e *Error) Error() string {
	words := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		words[i] = f.Message
	}
	return strings.Join(words, "; ")
}

// One returns the *Error of a single fault.
func One(field, code, format string, args ...any) error {
	var l List
	l.Add(field, code, format, args...)
	return l.Err()
}
