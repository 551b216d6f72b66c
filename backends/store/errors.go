package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tenantry/backends/driver"
)

// Errors every method of this package may return, wrapped. Test with errors.Is.
var (
	// ErrNotFound: no such document in this workspace, scope and state.
	ErrNotFound = errors.New("not found")
	// ErrConflict: somebody else changed the document since it was read.
	ErrConflict = errors.New("changed by somebody else meanwhile")
	// ErrUnavailable: the store cannot answer now; the same call may work later.
	ErrUnavailable = driver.ErrUnavailable
	// ErrReadOnly: what is there can be read, and nothing can be written now. It is an ErrUnavailable.
	ErrReadOnly = driver.ErrReadOnly
	// ErrSlow: the call was ended by its deadline by an engine that is there. It is a context.DeadlineExceeded.
	ErrSlow = driver.ErrSlow
	// ErrForeign: what lies in the workspace belongs to another organization or installation,
	// and is left untouched. It is an ErrUnavailable.
	ErrForeign = driver.ErrForeign
	// ErrNewer: the data was written by a newer version of the program.
	ErrNewer = driver.ErrNewer
	// ErrQuery: the question names an unknown field, a field that may not be
	// asked for, or a value of the wrong type. Callers' input must be checked
	// before it gets here, so this is a fault of the program.
	ErrQuery = errors.New("invalid query")
)

// DuplicateError says which unique fields a write would have repeated.
type DuplicateError struct {
	Kind     string
	Fields   []string
	Position int // place in the batch
	// Trashed are the identifiers of those that were deleted, and may be restored, by the field. The store leaves it
	// out.
	Trashed map[string]string
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s: another record has the same %s", e.Kind, strings.Join(e.Fields, ", "))
}

// ConflictError says which record was changed by somebody else since it was read. It is an ErrConflict.
type ConflictError struct {
	Kind     string
	Position int // place in the batch
}

func (e *ConflictError) Error() string { return e.Kind + ": " + ErrConflict.Error() }

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// translate turns an engine's error into this package's.
func translate(spec *Spec, err error) error {
	if err == nil {
		return nil
	}
	if dup, is := errors.AsType[*driver.DuplicateError](err); is {
		return &DuplicateError{Kind: spec.Name, Fields: spec.uniqueFields(dup.Index), Position: dup.Position}
	}
	if conflict, is := errors.AsType[*driver.ConflictError](err); is {
		return &ConflictError{Kind: spec.Name, Position: conflict.Position}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%s: %w", spec.Name, err)
	}
	return fmt.Errorf("%s: store: %w", spec.Name, err)
}
