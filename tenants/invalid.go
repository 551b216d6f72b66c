package tenants

import (
	"fmt"
	"strings"
)

// Codes of a Fault.
const (
	CodeRequired  = "required"
	CodeFormat    = "format"
	CodeLength    = "length"
	CodeRange     = "range"
	CodeUnknown   = "unknown"
	CodeForbidden = "forbidden"
)

// Fault is one problem with one field.
type Fault struct {
	Field   string
	Code    string
	Message string
}

// InvalidError lists everything that is wrong with an input. A value that must be unique
// and is taken is a *store.DuplicateError instead.
type InvalidError struct{ Faults []Fault }

func (e *InvalidError) Error() string {
	words := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		words[i] = f.Message
	}
	return strings.Join(words, "; ")
}

// Faults collects the problems of an input. The zero value is ready to use.
type Faults []Fault

const maxFaults = 100

// Add notes a problem. Messages must not hold secrets.
func (f *Faults) Add(field, code, format string, args ...any) {
	if len(*f) < maxFaults {
		*f = append(*f, Fault{field, code, fmt.Sprintf(format, args...)})
	}
}

// Err returns an *InvalidError, or nil where there is no problem.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return &InvalidError{Faults: f}
}
