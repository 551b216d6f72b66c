package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/fault"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/imports/tabular"
	"tenantry/operation"
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

const noOrganization = "there is no organization %q; tenantry org list names those there are"

// Error is a command that failed, as it travels.
type Error struct {
	Code    string     `json:"code"`
	Message string     `json:"message"`
	Faults  fault.List `json:"faults,omitempty"`
}

func (e *Error) Error() string { return e.Message }

func fail(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// reworded says what was not found, or is there already, in other words: those whose error has the code.
func reworded(err error, code, format string, args ...any) error {
	if err != nil && errorOf(err).Code == code {
		return fail(code, format, args...)
	}
	return err
}

// errorOf returns the failure as it travels.
func errorOf(err error) *Error {
	if e, is := errors.AsType[*Error](err); is {
		return e
	}
	is := func(targets ...error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
	out := fail(CodeFailed, "%v", err)
	var invalid *fault.Error
	var duplicate *store.DuplicateError
	var refused *bundle.RefusedError
	var problem *operation.Problem
	switch {
	case errors.As(err, &invalid):
		out.Code, out.Faults = CodeInvalid, invalid.Faults
	case errors.As(err, &refused), is(tabular.ErrOptions):
		out.Code = CodeInvalid
	case errors.As(err, &duplicate):
		out.Code = CodeDuplicate
	case is(tenants.ErrUnknownTenant, store.ErrNotFound):
		out.Code = CodeNotFound
	case is(store.ErrConflict, keyring.ErrPrimary, keyring.ErrReadOnly, tenants.ErrMoving, tenants.ErrNotMoving, tenants.ErrDeleted, tenants.ErrNotDeleted):
		out.Code = CodeConflict
	case is(store.ErrUnavailable, tenants.ErrUnavailable, context.DeadlineExceeded, context.Canceled):
		out.Code = CodeUnavailable
	case errors.As(err, &problem) && problem.Code < http.StatusInternalServerError:
		out.Code = CodeInvalid
	}
	return out
}
