package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tenantry/backends/driver"
)

// The errors that methods of this package return, wrapped. Test with errors.Is.
var (
	// ErrNotFound: the workspace has no such document in this scope and state.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the document was changed or removed by another writer since it was read.
	ErrConflict = errors.New("changed by another writer in the meantime")
	// ErrUnavailable: the store cannot answer now; the same call may succeed later.
	ErrUnavailable = driver.ErrUnavailable
	// ErrReadOnly: documents can be read, but not written at the moment. It is an ErrUnavailable.
	ErrReadOnly = driver.ErrReadOnly
	// ErrSlow: the deadline ended the call although the engine is available. It is a context.DeadlineExceeded.
	ErrSlow = driver.ErrSlow
	// ErrForeign: the workspace belongs to another organization or installation, and was left untouched. It is an
	// ErrUnavailable.
	ErrForeign = driver.ErrForeign
	// ErrInUse: another process uses the data of a backend.
	ErrInUse = driver.ErrInUse
	// ErrNewer: the data was written by a newer version of the program.
	ErrNewer = driver.ErrNewer
	// ErrQuery: the query names an unknown or hidden field, or a value of the wrong type. It is a bug in the program,
	// because input of callers must be checked before it reaches the store.
	ErrQuery = errors.New("invalid query")
)

// DuplicateError says which unique fields of a write already have the same values in another record.
type DuplicateError struct {
	Kind     string
	Fields   []string
	Position int // index of the write in the batch
	// Trashed maps a field to the identifier of the other record, if that record is in the trash. The store does not
	// fill it.
	Trashed map[string]string
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("%s: another record has the same %s", e.Kind, strings.Join(e.Fields, ", "))
}

// ConflictError says which record was changed by another writer since it was read. It is an ErrConflict.
type ConflictError struct {
	Kind     string
	Position int // index of the write in the batch
}

func (e *ConflictError) Error() string { return e.Kind + ": " + ErrConflict.Error() }

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// translate turns an error of an engine into one of this package.
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
