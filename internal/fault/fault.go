// Package fault collects the faults of an input, each with its field, so that all are reported together.
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
	Mismatch  = "mismatch" // of the bytes that arrived and their digest
	// Unavailable: the input could not be checked because a server does not answer, so it may be valid.
	Unavailable = "unavailable"
)

// Fault is one problem with one field.
type Fault struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

// List collects the faults of an input. The zero value is ready to use. Messages contain no secrets and never repeat
// the caller's value.
type List []Fault

// maxFaults bounds the size of an answer.
const maxFaults = 100

// Add adds a fault. Faults after the first 100 are dropped.
func (l *List) Add(field, code, format string, args ...any) {
	if len(*l) < maxFaults {
		*l = append(*l, Fault{field, code, fmt.Sprintf(format, args...)})
	}
}

// Err returns an *Error, or nil if there is no fault.
func (l List) Err() error {
	if len(l) == 0 {
		return nil
	}
	return &Error{Faults: l}
}

// Error says why an input is refused. If a value that must be unique is taken, the error is a *store.DuplicateError
// instead.
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
