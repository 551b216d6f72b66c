package operation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"tenantry/backends/blobs"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// Envelope is the shape of every answer: always these three keys.
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
	into.Truncate(max(into.Len()-1, 0)) // without the newline of the encoder
	return err
}

// Encoded is Data that was already encoded with its envelope, for another caller.
type Encoded struct {
	Body []byte
	Sum  uint64 // of its data
}

// Sum returns a hash of the data of an envelope, for its ETag.
func Sum(envelope []byte) uint64 { return xxhash.Sum64(dataOf(envelope)) }

func dataOf(envelope []byte) []byte {
	_, data, _ := bytes.Cut(envelope, []byte(`,"data":`)) // cannot match inside a string, because quotes are escaped there
	return data
}

// MarshalJSON returns the data alone.
func (e *Encoded) MarshalJSON() ([]byte, error) {
	return bytes.TrimSuffix(dataOf(e.Body), []byte("}")), nil
}

// Encoded returns the encoded answer that data makes of a peeked record. It is encoded once for all calls with the
// same operation and from; from must hold everything besides the record that the answer depends on.
func (c *Call) Encoded(made *store.Derived, from any, data func() (any, error)) (any, error) {
	type cacheKey struct{ operation, from any }
	return made.Of(cacheKey{c.Operation.Name, from}, func() (any, error) {
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

// DeniedMessage is the message for every credential that is not accepted.
const DeniedMessage = "Token is either expired or does not have the correct permissions"

// Result is a success.
type Result struct {
	Message string // empty: the row's message
	Data    any
	Stream  Stream // of a row with Response.Streams, in place of both
	Media   string // of the stream; empty: the first of the row
	// Content is the answer of a row with Response.Content, in place of all the others.
	Content *Content
	// Feed is the answer of a row with Response.Feeds, in place of all the others.
	Feed *Feed
}

// Stream writes the answer of a row with Response.Streams. Its rows are sent while they are read from the store; they
// are never all in memory. An error before the first 64 KiB is answered as any other; a later one cuts the connection,
// so that a caller who reads to the end has every row. The answer is never compressed. The caller must read it within
// the row's Timeout, and it occupies the row's Weight until then. A handler refuses a call before it returns a stream.
type Stream = func(ctx context.Context, w io.Writer) error

// Problem is a failure as the caller sees it. It is an error, so that handlers can return it.
type Problem struct {
	Code       int // HTTP status
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

// Envelope returns the envelope of the answer.
func (p *Problem) Envelope() Envelope {
	e := Envelope{Status: StatusFailed, Message: p.Message, Data: p.Data}
	if e.Data == nil {
		e.Data = []any{}
	}
	return e
}

// Denied answers a credential that is not accepted. The reason is only logged: all such answers are equal, byte for
// byte.
func Denied(reason string) *Problem {
	return &Problem{Code: http.StatusForbidden, Message: DeniedMessage, Reason: reason}
}

// MissingPermission answers a caller who lacks the permission.
func MissingPermission(permission string) *Problem {
	return &Problem{
		Code: http.StatusForbidden, Message: "Lacking necessary permission " + permission,
		Data: map[string]string{"permission": permission},
	}
}

// AdminRequired answers a caller who is not an administrator.
func AdminRequired(label string) *Problem {
	return &Problem{Code: http.StatusForbidden, Message: label, Data: map[string]string{"permission": label}}
}

// Forbidden is a 403 with a message of its own.
func Forbidden(message string) *Problem {
	return &Problem{Code: http.StatusForbidden, Message: message}
}

// OtherSite refuses a call that a page of another site makes.
func OtherSite() *Problem { return Forbidden("The request comes from another site") }

// NotFound answers 404 for a missing record.
func NotFound(message string) *Problem { return &Problem{Code: http.StatusNotFound, Message: message} }

// FileTooLarge is the 413 for an upload of more than limit bytes; of says which limit that is, if it is not the
// operation's: "the limit file_size". It makes the server close the connection, because the rest of the upload is not
// read.
func FileTooLarge(limit int64, of string) *Problem {
	message := fmt.Sprintf("The file is larger than %d bytes", limit)
	if of != "" {
		message += ", " + of
	}
	return &Problem{
		Code: http.StatusRequestEntityTooLarge, Message: message,
		Header: map[string]string{"Connection": "close"},
	}
}

// OrMissing turns store.ErrNotFound into NotFound with the message; other errors are returned unchanged.
func OrMissing(err error, message string) error {
	if errors.Is(err, store.ErrNotFound) {
		return NotFound(message)
	}
	return err
}

// Failed is a failure that some operations answer with 200; callers branch on the status of the envelope.
func Failed(message string, data any) *Problem {
	return &Problem{Code: http.StatusOK, Message: message, Data: data}
}

// BadRequest is a 400 for input that could not be read.
func BadRequest(format string, args ...any) *Problem {
	return &Problem{Code: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// Unavailable answers 503 while a service that the call needs is down.
func Unavailable(err error) *Problem {
	p := &Problem{
		Code: http.StatusServiceUnavailable, Message: "The service is temporarily unavailable, please retry later",
		RetryAfter: 2 * time.Second, Err: err,
	}
	switch {
	case errors.Is(err, store.ErrSlow):
		p.Reason = "stopped at its time limit" // not an outage
	case errors.Is(err, store.ErrReadOnly):
		p.Message = "The data is damaged: it can be read as far as possible, but not changed until it has been restored"
		p.Reason, p.RetryAfter = "cannot be written", time.Minute
	}
	return p
}

// TooManyRequests answers a caller who has exceeded a request limit.
func TooManyRequests(retryAfter time.Duration) *Problem {
	return &Problem{
		Code: http.StatusTooManyRequests, Message: "Too many requests, please retry later",
		RetryAfter: max(retryAfter, time.Second),
	}
}

// Internal answers a fault of the program. The caller does not learn its cause.
func Internal(err error) *Problem {
	return &Problem{Code: http.StatusInternalServerError, Message: "Internal error", Err: err}
}

// FieldError is one fault as callers see it.
type FieldError fault.Fault

type fieldErrors struct {
	Errors []FieldError `json:"errors"`
}

// invalidPrefix begins the message about invalid input.
const invalidPrefix = "Validation failed: "

// invalid answers the faults of an input.
func invalid(code int, e *fault.Error) *Problem {
	data := fieldErrors{make([]FieldError, len(e.Faults))}
	for i, f := range e.Faults {
		data.Errors[i] = FieldError(f)
	}
	return &Problem{Code: code, Message: invalidPrefix + e.Error(), Data: data}
}

// Refusal is a Problem with one fault of a header or similar, under its name and with a code for programs.
func Refusal(code int, name, fault, message string) *Problem {
	return &Problem{
		Code: code, Message: message, Data: fieldErrors{[]FieldError{{Field: name, Code: fault, Message: message}}},
	}
}

// Duplicate is the 409 for values that must be unique and are in use.
func Duplicate(fields ...string) *Problem { return Taken(&store.DuplicateError{Fields: fields}) }

// Taken is Duplicate with the identifiers of records in the trash that hold the values.
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

// Full is the 507 of an organization that has reached a quota.
func Full(e *store.QuotaError) *Problem {
	return &Problem{
		Code: http.StatusInsufficientStorage, Data: quotaUsed{e.Limit, e.Used, e.Allowed}, Reason: "limit " + e.Limit,
		Message: fmt.Sprintf("The organization has reached its limit %s: it may have %d and has %d, so nothing more was stored. "+
			"Delete records for good, or ask the operator for a higher limit", e.Limit, e.Allowed, e.Used),
	}
}

// NoSpaceMessage is told if the disk or the bucket for files is full.
const NoSpaceMessage = "The server has no space left, so nothing of the file was stored. Tell its operator"

func noSpace(err error) *Problem {
	return &Problem{Code: http.StatusInsufficientStorage, Message: NoSpaceMessage, Err: err, Reason: "no space left for files"}
}

// ErrorsOf returns the field errors in the answer to an error; nil if there are none.
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
	case errors.Is(err, blobs.ErrFull):
		return noSpace(err)
	case errors.Is(err, blobs.ErrUnavailable):
		problem := Unavailable(err)
		problem.Reason = "the store of files does not answer"
		return problem
	case errors.Is(err, tenants.ErrDenied), errors.Is(err, tenants.ErrUnknownTenant):
		return Denied(err.Error())
	case errors.Is(err, tenants.ErrUnavailable), errors.Is(err, store.ErrUnavailable),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Unavailable(err)
	case errors.Is(err, store.ErrNotFound):
		return NotFound("Record not found")
	case errors.Is(err, store.ErrConflict):
		return &Problem{Code: http.StatusConflict, Message: "The record was changed meanwhile, please retry", Err: err}
	case errors.Is(err, syscall.ENOSPC): // of a file; a database that is full is unavailable
		return noSpace(err)
	}
	return Internal(err)
}
