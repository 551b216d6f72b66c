package control

import (
	"context"
	"errors"
	"net/http"

	"tenantry/backends/api"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// Codes of an Error.
const (
	CodeInvalid     = "invalid"     // the input has faults
	CodeNotFound    = "not_found"   // what was named does not exist
	CodeDuplicate   = "duplicate"   // a unique value is taken
	CodeConflict    = "conflict"    // the state of things forbids it
	CodeUnavailable = "unavailable" // the same may work later
	CodeUnknown     = "unknown"     // the server does not know the command
	CodeFailed      = "failed"      // anything else
)

// Error is a command that failed, as it travels.
type Error struct {
	Code    string     `json:"code"`
	Message string     `json:"message"`
	Faults  fault.List `json:"faults,omitempty"`
}

func (e *Error) Error() string { return e.Message }

func (e *Error) status() int {
	switch e.Code {
	case CodeInvalid:
		return http.StatusUnprocessableEntity
	case CodeNotFound, CodeUnknown:
		return http.StatusNotFound
	case CodeDuplicate, CodeConflict:
		return http.StatusConflict
	case CodeUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// errorOf returns the failure as it travels.
func errorOf(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	out := &Error{Code: CodeFailed, Message: err.Error()}
	var invalid *fault.Error
	var duplicate *store.DuplicateError
	var problem *api.Problem
	switch {
	case errors.As(err, &invalid):
		out.Code = CodeInvalid
		out.Faults = invalid.Faults
	case errors.As(err, &duplicate):
		out.Code = CodeDuplicate
	case errors.Is(err, tenants.ErrUnknownTenant), errors.Is(err, store.ErrNotFound):
		out.Code = CodeNotFound
	case errors.Is(err, store.ErrConflict), errors.Is(err, keyring.ErrPrimary), errors.Is(err, keyring.ErrReadOnly), errors.Is(err, tenants.ErrMoving), errors.Is(err, tenants.ErrNotMoving):
		out.Code = CodeConflict
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, tenants.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		out.Code = CodeUnavailable
	case errors.As(err, &problem):
		if problem.Code < http.StatusInternalServerError {
			out.Code = CodeInvalid
		}
	}
	return out
}
