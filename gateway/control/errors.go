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
	CodeNotFound    = "not_found"   // the named record does not exist
	CodeDuplicate   = "duplicate"   // a unique value is taken
	CodeConflict    = "conflict"    // the current state forbids the command
	CodeUnavailable = "unavailable" // the command may work later
	CodeUnknown     = "unknown"     // the server does not know the command
	CodeFailed      = "failed"      // anything else
)

const noOrganization = "there is no organization %q; tenantry org list shows all organizations"

// Error is the error of a command, as it is sent over the socket.
type Error struct {
	Code    string     `json:"code"`
	Message string     `json:"message"`
	Faults  fault.List `json:"faults,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// fail returns an Error.
func fail(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// withMessage replaces the message of an error that has the code, such as CodeNotFound. Other errors are returned as
// they are.
func withMessage(err error, code, format string, args ...any) error {
	if err != nil && errorOf(err).Code == code {
		return fail(code, format, args...)
	}
	return err
}

// errorOf converts an error to an Error.
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
	case is(store.ErrConflict, keyring.ErrPrimary, keyring.ErrReadOnly,
		tenants.ErrMoving, tenants.ErrNotMoving, tenants.ErrDeleted, tenants.ErrNotDeleted):
		out.Code = CodeConflict
	case is(store.ErrUnavailable, tenants.ErrUnavailable, context.DeadlineExceeded, context.Canceled):
		out.Code = CodeUnavailable
	case errors.As(err, &problem) && problem.Code < http.StatusInternalServerError:
		out.Code = CodeInvalid
	}
	return out
}
