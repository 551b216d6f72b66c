package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cespare/xxhash/v2"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// Envelope is the shape of every answer: three keys, always.
type Envelope struct {
	Status  string `json:"status"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

// Encode writes the envelope as it is sent.
func (e Envelope) Encode(into *bytes.Buffer) error {
	enc := json.NewEncoder(into)
	enc.SetEscapeHTML(false)
	err := enc.Encode(e)
	into.Truncate(max(into.Len()-1, 0)) // without the line's end
	return err
}

// Encoded is Data that was encoded with its envelope before, for another caller.
type Encoded struct {
	Body []byte
	Sum  uint64 // of its data
}

// Sum tells the data of an envelope from other data, in an ETag.
func Sum(envelope []byte) uint64 { return xxhash.Sum64(dataOf(envelope)) }

func dataOf(envelope []byte) []byte {
	_, data, _ := bytes.Cut(envelope, []byte(`,"data":`)) // within texts quotes are escaped
	return data
}

// MarshalJSON returns the data alone.
func (e *Encoded) MarshalJSON() ([]byte, error) {
	return bytes.TrimSuffix(dataOf(e.Body), []byte("}")), nil
}

// Encoded returns what data makes of a record that was peeked at, encoded once for all who ask the same. From is all
// that it depends on besides the record.
func (c *Call) Encoded(made *store.Derived, from any, data func() (any, error)) (any, error) {
	type asked struct{ operation, from any }
	return made.Of(asked{c.Operation.Name, from}, func() (any, error) {
		shown, err := data()
		if err != nil {
			return nil, err
		}
		var body bytes.Buffer
		err = Envelope{StatusOK, c.Operation.Message, shown}.Encode(&body)
		return &Encoded{body.Bytes(), Sum(body.Bytes())}, err
	})
}

// The two values of Envelope.Status.
const (
	StatusOK     = "ok"
	StatusFailed = "failed"
)

// DeniedMessage is the one message of every credential that is not accepted.
const DeniedMessage = "Token is either expired or does not have the correct permissions"

// Result is a success.
type Result struct {
	Message string // empty: the row's message
	Data    any
	Stream  Stream // of a row with Operation.Streams, in place of both
	Media   string // of the stream; empty: the first of the row
}

// Stream writes the answer of a row with Operation.Streams. The rows of it go out
// while they are read from the store: nothing holds all of them. An error before the first 64 KiB is
// answered as any other; a later one cuts the connection off, so that who reads to the end has everything.
// The answer is never compressed; the caller must read it within the row's Timeout, and it keeps the
// row's Weight until then. What a handler must refuse, it refuses before it returns one.
type Stream = func(ctx context.Context, w io.Writer) error

// Problem is a failure as the caller sees it. It is an error, so that handlers return it.
type Problem struct {
	Code       int // HTTP
	Message    string
	Data       any           // nil: []
	RetryAfter time.Duration // 0: no header
	Header     map[string]string
	Reason     string // for the log; callers never see it
	Err        error  // for the log
}

func (p *Problem) Error() string {
	if p.Reason != "" {
		return p.Message + ": " + p.Reason
	}
	return p.Message
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Envelope returns the body of the answer.
func (p *Problem) Envelope() Envelope {
	e := Envelope{Status: StatusFailed, Message: p.Message, Data: p.Data}
	if e.Data == nil {
		e.Data = []any{}
	}
	return e
}

// Denied is the answer to a credential that is not accepted. The reason goes to the log
// alone: all such answers are the same, byte for byte.
func Denied(reason string) *Problem {
	return &Problem{Code: http.StatusForbidden, Message: DeniedMessage, Reason: reason}
}

// MissingPermission names the permission the caller lacks.
func MissingPermission(permission string) *Problem {
	return &Problem{
		Code: http.StatusForbidden, Message: "Lacking necessary permission " + permission,
		Data: map[string]string{"permission": permission},
	}
}

// AdminRequired answers a caller who is no administrator.
func AdminRequired(label string) *Problem {
	return &Problem{Code: http.StatusForbidden, Message: label, Data: map[string]string{"permission": label}}
}

// Forbidden is a 403 with a message of its own.
func Forbidden(message string) *Problem {
	return &Problem{Code: http.StatusForbidden, Message: message}
}

// NotFound is a missing record that answers 404.
func NotFound(message string) *Problem { return &Problem{Code: http.StatusNotFound, Message: message} }

// OrMissing says in the words of the row that a record is not there; other errors are returned as they are.
func OrMissing(err error, message string) error {
	if errors.Is(err, store.ErrNotFound) {
		return NotFound(message)
	}
	return err
}

// Failed is a failure that answers 200, as some operations do; callers branch on status.
func Failed(message string, data any) *Problem {
	return &Problem{Code: http.StatusOK, Message: message, Data: data}
}

// BadRequest is input that could not be read.
func BadRequest(format string, args ...any) *Problem {
	return &Problem{Code: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// Unavailable answers while something the call needs is down.
func Unavailable(err error) *Problem {
	p := &Problem{
		Code: http.StatusServiceUnavailable, Message: "The service is temporarily unavailable, please retry later",
		RetryAfter: 2 * time.Second, Err: err,
	}
	switch {
	case errors.Is(err, store.ErrSlow):
		p.Reason = "stopped at its time limit" // which is no outage
	case errors.Is(err, store.ErrReadOnly):
		p.Message = "The data is damaged: it can be read as far as possible, but not changed until it has been restored"
		p.Reason, p.RetryAfter = "cannot be written", time.Minute
	}
	return p
}

// TooManyRequests answers a caller who is over a limit on requests.
func TooManyRequests(retryAfter time.Duration) *Problem {
	return &Problem{
		Code: http.StatusTooManyRequests, Message: "Too many requests, please retry later",
		RetryAfter: max(retryAfter, time.Second),
	}
}

// Internal is a fault of the program. The caller learns nothing about it.
func Internal(err error) *Problem {
	return &Problem{Code: http.StatusInternalServerError, Message: "Internal error", Err: err}
}

// FieldError is one fault as callers see it.
type FieldError fault.Fault

type fieldErrors struct {
	Errors []FieldError `json:"errors"`
}

// refused begins the message of what is wrong with an input.
const refused = "Validation failed: "

// invalid answers what is wrong with an input.
func invalid(code int, e *fault.Error) *Problem {
	data := fieldErrors{make([]FieldError, len(e.Faults))}
	for i, f := range e.Faults {
		data.Errors[i] = FieldError(f)
	}
	return &Problem{Code: code, Message: refused + e.Error(), Data: data}
}

// Refusal answers what a header or the like makes impossible, with its name and a code for programs.
func Refusal(code int, name, fault, message string) *Problem {
	return &Problem{Code: code, Message: message, Data: fieldErrors{[]FieldError{{Field: name, Code: fault, Message: message}}}}
}

// Duplicate is the 409 of a value that must be unique and is taken.
func Duplicate(fields ...string) *Problem { return Taken(&store.DuplicateError{Fields: fields}) }

// Taken is Duplicate, which says of those that are in the trash how they are found.
func Taken(e *store.DuplicateError) *Problem {
	var l fault.List
	for _, f := range e.Fields {
		if id := e.Trashed[f]; id != "" {
			l.Add(f, fault.Duplicate, "%s is already in use, by a record in the trash (id %s): restore it, or end it for good", f, id)
		} else {
			l.Add(f, fault.Duplicate, "%s is already in use", f)
		}
	}
	return invalid(http.StatusConflict, &fault.Error{Faults: l})
}

// quotaUsed is the data of an answer about a quota.
type quotaUsed struct {
	Limit   string `json:"limit"`
	Used    int64  `json:"used"`
	Allowed int64  `json:"allowed"`
}

// Full is the 507 of what an organization has no room left for.
func Full(e *store.QuotaError) *Problem {
	return &Problem{
		Code: http.StatusInsufficientStorage, Data: quotaUsed{e.Limit, e.Used, e.Allowed}, Reason: "limit " + e.Limit,
		Message: fmt.Sprintf("The organization may have %d %s and has %d, so nothing more was stored. Delete records for good, or ask the operator for a higher limit", e.Allowed, e.Limit, e.Used),
	}
}

// ErrorsOf returns what the answer to an error says of fields; nil where it says nothing of them.
func ErrorsOf(err error) []FieldError {
	data, _ := ProblemOf(err).Data.(fieldErrors)
	return data.Errors
}

// ProblemOf is the one mapping from errors to answers.
func ProblemOf(err error) *Problem {
	var p *Problem
	var dup *store.DuplicateError
	var refused *fault.Error
	var full *store.QuotaError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &dup):
		return Taken(dup)
	case errors.As(err, &refused) && len(refused.Faults) > 0:
		return invalid(http.StatusUnprocessableEntity, refused)
	case errors.As(err, &full):
		return Full(full)
	case errors.Is(err, tenants.ErrDenied), errors.Is(err, tenants.ErrUnknownTenant):
		return Denied(err.Error())
	case errors.Is(err, tenants.ErrUnavailable), errors.Is(err, store.ErrUnavailable),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unavailable(err)
	case errors.Is(err, store.ErrNotFound):
		return NotFound("Record not found")
	case errors.Is(err, store.ErrConflict):
		return &Problem{Code: http.StatusConflict, Message: "The record was changed meanwhile, please retry", Err: err}
	}
	return Internal(err)
}
