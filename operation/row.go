// Package operation describes operations: the row in the table of operations, the call that a handler gets, and the
// result or problem that it answers. Routing, policy, metrics, the OpenAPI document and the isolation tests are
// generated from the rows, so that there is no second list. Handlers do not see the HTTP framework.
package operation

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
)

// Handler answers one call. Its error becomes the failure envelope; see ProblemOf.
type Handler func(ctx context.Context, c *Call) (Result, error)

// Row is one operation of the table of operations. Its parts say who may call it and at what cost, what it takes, what
// it answers, which records it is about, and what people read of it. A row is not changed once the gateway serves it.
type Row struct {
	Name    string // "folders.get"; unique; the label in metrics, logs and the OpenAPI document
	Method  string
	Path    string   // "/api/files/folders/{id}"
	Aliases []string // further paths of the same operation (an optional segment)

	Policy
	Request
	Response
	Target
	Docs

	Handler Handler
	fault   error // of its declaration
}

// Request says what an operation takes.
type Request struct {
	Params []Param // of the path, the query and the header
	Teams  bool    // takes teams[]

	Body      []Field // nil: takes no body
	BodyLimit int64   // bytes; 0: DefaultBodyLimit
	// Bodiless: an absent body counts as an empty object.
	Bodiless bool
	// Joins: the handler reports fields that callers cannot set (Call.Unknown) together with all other faults of the
	// body. Without it, a call with such fields is refused before the handler runs.
	Joins bool
	// Contract: the operation belongs to the contract, whose callers may send unknown members: these are ignored and
	// named in the answer, unless the caller asks for strict handling. Without it they are refused.
	Contract bool

	// Upload are the media types of a file that is the body; nil: takes none. AnyMedia takes every type, and none. The
	// handler reads the file while it arrives, at most UploadLimit bytes; see Call.LimitUpload for a lower bound.
	// UploadExamples has one for each media type.
	Upload         []string
	UploadExamples []string
	UploadLimit    int64
	// FormFields: the parameters of the query may also be fields of an upload that is a form (FormMedia), as the handler
	// reads them.
	FormFields bool
}

// Response says what an operation answers.
type Response struct {
	// Code is the status of a success: 200, 201 or 204; 0: 200. A 204 has no body and no envelope, so its row needs no
	// Data, Message and Example.
	Code int
	// Data is a value of the type that a success answers as data; Example is one such answer.
	Data    any
	Message string // of a success
	Example any
	// Streams are the media types, such as NDJSON, of a success that is no envelope but rows, written one a line while
	// they are read. Data and Example are of one row then, and the handler returns a Stream.
	Streams []string
	// Content are the media types, such as AnyMedia, of a success that is bytes and no envelope. The handler returns a
	// Content. The row is a GET, its path may begin with ContentPath, and it needs no Data, Message and Example. It honours
	// Range and all conditions of RFC 9110 with the tag and the time of the Content, and so is not Revised.
	Content []string
	// Feeds is the media type, such as EventStream, of a success that is no envelope but is sent while things happen. The
	// handler returns a Feed. The row is a GET and needs no Data, Message and Example.
	Feeds string
	// Options are the headers that an OPTIONS request on the paths gets, unless it is the preflight of a browser.
	Options map[string]string
	// Paged: the paths have a page as well. Callers that accept HTML, or send what a form of a page sends, get the page. The
	// paths begin with FormPath.
	Paged bool
	// Once: a success holds a secret that is told only once, such as the token of a key. Neither logs nor
	// idempotency keep such an answer. The handler sets Call.Undo.
	Once bool

	Failures []Failure
	// Failure, if set, may replace a problem before it is answered.
	Failure func(*Problem) *Problem
}

// Target says which records an operation is about. The zero value is about none.
type Target struct {
	// Resource is the name of the records' description.
	Resource string
	// Lists is the resource of the records that the operation lists, if that is another than Resource.
	Lists string
	// Action is what the operation does with the records.
	Action Action
	// Defined, if organizations define fields of the records, says where these are.
	Defined Defined
	// Concerns, of a list, returns the first most of its records that somebody should check, and how many there are. It
	// shows a caller no record that the list does not show. Nil: no record needs that.
	Concerns func(ctx context.Context, c *Call, most int) (Concerns, error)

	// Logged is of an operation that answers one record of a kind of which the event log tells.
	Logged *Logged

	// Revised: the operation answers one record and its revision; see Call.Revision. If the record already exists
	// (GET, PUT, DELETE, and a POST that is OnRecord), the operation honours If-Match through Call.Current.
	Revised bool
	// OnRecord: a POST that is Revised changes an existing record.
	OnRecord bool

	// Expire, if the records have a trash, ends for good those deleted before that time (Unix milliseconds), as a
	// purge would, until ctx ends; ended is called with the identifier of each. It reports whether some are left. An
	// error says why a record could not be ended; the others are ended nevertheless.
	Expire func(ctx context.Context, c *Call, before int64, ended func(id string)) (left bool, err error)
	// End, of a row that deletes or purges, ends records for good with all that depends on them, in any state, on
	// behalf of the operator. It skips records that do not exist and returns the first error.
	End func(ctx context.Context, c *Call, ids []string) error
}

// Logged says of which records the event log tells: those of the resource. See returns which events a caller sees: those
// of records that the operation would answer it, whatever their state.
type Logged struct {
	Resource string
	See      func(ctx context.Context, c *Call, events []store.Event) ([]store.Seen, error)
}

// Docs is what people read of an operation, in the OpenAPI document, the reference and on pages.
type Docs struct {
	IDs         []string // in the OpenAPI document, one for each of Paths; nil: made of Name, see ID
	Tag         string   // the group
	Summary     string
	Description string // for the reference
	Ask         string // on pages, beyond the summary
	Title       string // of the page that shows the answer; empty: Summary
	Verb        string // on the button that makes the call; empty: Summary

	// Over is the field that holds the day of each row answered. A chart shows the requests and refusals of each day.
	Over string
	// Page names the operation whose page offers this one; empty: that at the same path, or the one above it.
	Page string
	// Defines names the operation that changes the settings whose fields the answer defines.
	Defines string
	// Aside: other pages show what the operation answers, or use it for their forms, so that no link leads to its page.
	Aside bool
}

// Defined names the resource By whose records define further fields, and the field Values of a record that holds their
// values. If the path has a parameter that refers to that resource, that one record defines the fields, otherwise all
// its records do. Encrypted is the field of the body that names a field whose values are encrypted.
type Defined struct{ By, Values, Encrypted string }

// Failure documents a failure that an operation can answer, beyond those of every operation.
type Failure struct {
	Code    int
	Message string
	When    string
	Data    any // example of data; nil: []
}

// Refuses documents the refusal of an input because of one field.
func Refuses(code int, when, field, wrong, message string) Failure {
	return Failure{
		Code: code, Message: invalidPrefix + message, When: when,
		Data: map[string]any{"errors": []FieldError{{Field: field, Code: wrong, Message: message}}},
	}
}

// ControlPath is the prefix of the paths of the operator's rows.
const ControlPath = "/v1/"

// ContentPath is a prefix of paths that only rows with Response.Content may have.
const ContentPath = "/files/"

// FormPath is a prefix of paths that only open rows may have: those of public forms.
const FormPath = "/f/"

// AnyMedia stands for every media type, in Request.Upload and Response.Content.
const AnyMedia = "*/*"

// FormMedia is the media type of a form with files.
const FormMedia = "multipart/form-data"

// Default limits, and the largest body that a row may allow.
const (
	DefaultBodyLimit int64 = 16 << 10
	MaxBodyLimit     int64 = 256 << 10
	MaxBulkLimit     int64 = 2 << 20 // of a row that takes many records at once
	MaxBulkValues          = 1 << 18 // values in such a body
	DefaultTimeout         = 10 * time.Second
)

// ID returns the operation's identifier in the OpenAPI document for the path with that index. Generated clients take
// their names from it: "getFolder" for folders.get.
func (o *Row) ID(path int) string {
	if path < len(o.IDs) {
		return o.IDs[path]
	}
	things, action, _ := strings.Cut(o.Name, ".")
	words := strings.Split(action, "_")
	id := words[0]
	for _, word := range append(strings.Split(strings.TrimSuffix(things, "s"), "_"), words[1:]...) {
		if word != "" {
			id += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	if path > 0 {
		id += strconv.Itoa(path + 1)
	}
	return id
}

// NDJSON is the media type of JSON values, one per line.
const NDJSON = "application/x-ndjson"

// Heavy is the weight of an operation whose answer can be large, such as the rows of a report.
const Heavy int64 = 4

// BodyMax returns the limit of the body in bytes.
func (o *Row) BodyMax() int64 {
	if o.BodyLimit > 0 {
		return o.BodyLimit
	}
	return DefaultBodyLimit
}

// ValuesMax returns how many values the body may have: one for each four bytes of BodyMax, at most MaxBulkValues.
func (o *Row) ValuesMax() int { return min(int(o.BodyMax()/4), MaxBulkValues) }

// Deadline returns how long the operation may take.
func (o *Row) Deadline() time.Duration {
	if o.Timeout > 0 {
		return o.Timeout
	}
	return DefaultTimeout
}

// Repeatable reports whether the operation takes an Idempotency-Key. An operation with an upload does not, because a
// file would have to be read to its end first; an import can be sent again unchanged.
func (o *Row) Repeatable() bool {
	return o.Method != http.MethodGet && strings.HasPrefix(o.Path, "/api/") && o.Credentials&(Key|Session) != 0 && o.Upload == nil
}

// reads reports whether a call changes nothing.
func (o *Row) reads() bool { return o.Reads || o.Method == http.MethodGet }

// Success returns the status of a success.
func (o *Row) Success() int { return cmp.Or(o.Code, http.StatusOK) }

// Plain reports whether a success is an envelope, which rows with Content or Feeds and those that answer 204 have not.
func (o *Row) Plain() bool {
	return o.Content == nil && o.Feeds == "" && o.Success() != http.StatusNoContent
}

// ForPrograms reports whether pages do not offer the operation: they make no PATCH, show only envelopes, send no headers,
// and send files of any type, and forms with files, only to operations that take both.
func (o *Row) ForPrograms() bool {
	return o.Method == http.MethodPatch || !o.Plain() ||
		slices.Contains(o.Upload, FormMedia) != slices.Contains(o.Upload, AnyMedia) ||
		slices.ContainsFunc(o.Params, func(p Param) bool {
			return p.In == InHeader && (p.Required || o.Method == http.MethodGet)
		})
}

// ReadsBody reports whether the body of a call is read. Operations that take no body read it to refuse input that
// would be ignored; operations of the contract ignore it.
func (o *Row) ReadsBody() bool {
	return o.Body != nil || !o.Contract && o.Method != http.MethodGet && o.Upload == nil && o.Credentials != Operator
}

// Paths returns all paths of the operation.
func (o *Row) Paths() []string { return append([]string{o.Path}, o.Aliases...) }

var (
	operationName = regexp.MustCompile(`^[a-z][a-z_]*(\.[a-z][a-z_]*)+$`)
	commandName   = regexp.MustCompile(`^[a-z]+(\.[a-z]+)*$`)
	pathParam     = regexp.MustCompile(`\{([a-z_]+)\}`)
)

// Validate returns every fault of the row. A row without policy, handler or documentation cannot be served.
func (o *Row) Validate() []error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("operation %s (%s %s): %s", o.Name, o.Method, o.Path, fmt.Sprintf(format, args...)))
	}
	name, operators := operationName, o.Credentials == Operator
	if operators {
		name = commandName
	}
	if !name.MatchString(o.Name) {
		fault("the name must have the form things.verb")
	}
	if o.fault != nil {
		fault("%v", o.fault)
	}
	if !slices.Contains([]string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}, o.Method) {
		fault("unknown method")
	}
	if o.Credentials == 0 {
		fault("takes no credential, so nobody can call it")
	}
	if o.Credentials&Open != 0 && o.Credentials != Open {
		fault("is open and takes a credential")
	}
	if o.Credentials&Operator != 0 && !operators {
		fault("is for the operator and takes another credential")
	}
	if (o.Credentials&Key != 0) != (o.Kinds != 0) && (o.Credentials != Open || o.Kinds != Browser) {
		fault("key kinds and credentials disagree")
	}
	if o.Kinds&ServerRead != 0 && o.Method != http.MethodGet {
		fault("takes read-only keys but does not read")
	}
	if o.Method != http.MethodGet && !o.Reads && o.Audit != AuditAlways && (o.Audit != AuditNoted || !operators) {
		fault("changes something but is not audited")
	}
	if o.Rule.kind == ruleNobody {
		fault("has no rule, so nobody can call it")
	}
	if o.Handler == nil {
		fault("has no handler")
	}
	if o.Summary == "" || !operators && o.Tag == "" ||
		o.Plain() && (o.Data == nil || !operators && (o.Message == "" || o.Example == nil)) {
		fault("lacks data, message, summary, tag or example for its documentation")
	}
	if (o.Once || o.Streams != nil) && o.Audit != AuditAlways {
		fault("answers a secret or a stream but is not audited")
	}
	if !slices.Contains([]int{http.StatusOK, http.StatusCreated, http.StatusNoContent}, o.Success()) {
		fault("the status of a success must be 200, 201 or 204")
	}
	whole := o.Method == http.MethodGet && o.Success() == http.StatusOK && !operators
	if o.Content != nil && (!whole || o.Streams != nil || o.Revised || o.Once) {
		fault("content must be the whole answer of a GET with the status 200")
	}
	if o.Feeds != "" && (!whole || o.Streams != nil || o.Content != nil || o.Revised || o.Once) {
		fault("a feed must be the whole answer of a GET with the status 200")
	}
	if o.Success() == http.StatusNoContent && (o.Streams != nil || o.Once || o.Revised) {
		fault("answers 204 and something to read")
	}
	if o.Options != nil && operators {
		fault("has options, but no OPTIONS request reaches it")
	}
	if o.Body != nil && o.Method == http.MethodGet && !operators {
		fault("is a GET but takes a body")
	}
	if o.BodyLimit < 0 || o.BodyLimit > MaxBulkLimit || o.Body == nil && o.BodyLimit != 0 {
		fault("a body limit must be from 1 to %d bytes and needs a body", MaxBulkLimit)
	}
	carries := o.Method == http.MethodPost || o.Method == http.MethodPut || o.Method == http.MethodPatch
	if o.Upload != nil && (o.Body != nil || !carries || o.UploadLimit <= 0 || len(o.UploadExamples) != len(o.Upload)) {
		fault("an upload must be the whole body of a POST, PUT or PATCH and have a limit and an example of each media type")
	}
	if o.AnySite && o.Credentials != Open {
		fault("takes a credential, which pages of other sites must not use")
	}
	for _, path := range o.Paths() {
		form := strings.HasPrefix(path, FormPath)
		known := strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/auth/") || form && o.Credentials == Open ||
			o.Content != nil && strings.HasPrefix(path, ContentPath)
		if o.Paged && !form {
			fault("path %s has a page, and so must begin with %s", path, FormPath)
		}
		if strings.HasPrefix(path, ControlPath) != operators || !operators && !known {
			fault("path %s must begin with /api/ or /auth/, with %s for content, with %s if it is open, or with %s for the operator",
				path, ContentPath, FormPath, ControlPath)
		}
		for _, m := range pathParam.FindAllStringSubmatch(path, -1) {
			if !slices.ContainsFunc(o.Params, func(p Param) bool { return p.In == InPath && p.Name == m[1] }) {
				fault("path parameter %s is not declared", m[1])
			}
		}
	}
	return faults
}

// queryParam returns the declared query parameter of that name.
func (o *Row) queryParam(name string) (Param, bool) {
	for _, p := range o.Params {
		if p.In == InQuery && p.Name == name {
			return p, true
		}
	}
	return Param{}, false
}

// bodyField returns the declared field of the body of that name.
func (o *Row) bodyField(name string) Field {
	for _, f := range o.Body {
		if f.Name == name {
			return f
		}
	}
	return Field{}
}

// Param returns the declared parameter of that name in any place; the zero value if there is none.
func (o *Row) Param(name string) Param {
	for _, p := range o.Params {
		if p.Name == name {
			return p
		}
	}
	return Param{}
}
