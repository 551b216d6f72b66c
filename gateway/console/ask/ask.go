// Package ask calls operations from pages. A Call goes through the handler that serves all callers, with the cookie and
// the origin of the page's request, so sessions, rights, limits, audit and logs apply as to any other request.
package ask

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// Call is a call of an operation. File takes the place of Raw, and Raw that of Body.
type Call struct {
	Row            *operation.Row
	Path           map[string]string // the parameters of the path
	Query          string
	Body           map[string]any // nil is sent as {} if the operation takes a body
	Raw            []byte         // a body of JSON as it is sent
	IfMatch        string         // If-Match, for operations that honour it
	IdempotencyKey string         // Idempotency-Key, for operations that can be repeated
	File           io.Reader      // a body of the media type
	MediaType      string
	// Connection is the writer of the page's answer. Its deadlines are extended while a file arrives.
	Connection http.ResponseWriter
}

// Target returns the path and query of the request.
func (q *Call) Target() string {
	if q.Query == "" {
		return site.Path(q.Row, q.Path)
	}
	return site.Path(q.Row, q.Path) + "?" + q.Query
}

// Client calls operations from pages. Safe for concurrent use.
type Client struct {
	API     http.Handler
	Cookie  string // name of the session cookie
	BaseURL func(slug string) string
}

// Reply is what an operation answered.
type Reply struct {
	Code    int
	Header  http.Header
	Message string
	Data    strictjson.Value
}

// ForwardHeaders copies the headers of an answer that are meant for the browser: cookies of a session that begins or is
// renewed, and the time to wait before another try.
func ForwardHeaders(w http.ResponseWriter, answer http.Header) {
	for _, name := range []string{"Set-Cookie", "Retry-After"} {
		for _, value := range answer.Values(name) {
			w.Header().Add(name, value)
		}
	}
}

// OK reports whether the call succeeded.
func (a *Reply) OK() bool { return a.Code == http.StatusOK }

// Faults returns the faults of the input that the answer lists.
func (a *Reply) Faults() []fault.Fault {
	var list []fault.Fault
	for _, e := range a.Data.Get("errors").Items {
		list = append(list, fault.Fault{
			Field: e.Get("field").Text, Code: e.Get("code").Text, Message: e.Get("message").Text,
		})
	}
	return list
}

const idempotencyHeader = "Idempotency-Key"

// RequestIDHeader is the header with the identifier of a request.
const RequestIDHeader = "X-Request-Id"

// forward copies the headers of a page's request that its calls carry: the session, the origin and the proxies.
func forward(to, from http.Header) {
	for _, name := range [...]string{
		"Cookie", "Origin", "Sec-Fetch-Site", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
		"User-Agent", "Traceparent", "Tracestate", RequestIDHeader,
	} {
		if values := from.Values(name); values != nil {
			to[name] = values
		}
	}
}

// Ask makes a call and parses the envelope of its answer.
func (c *Client) Ask(ctx context.Context, from *http.Request, q Call) (Reply, error) {
	w, err := c.Send(ctx, from, q)
	if err != nil {
		return Reply{}, err
	}
	var parser strictjson.Parser
	envelope, err := parser.Parse(w.Body.String())
	if err != nil {
		return Reply{}, err
	}
	return Reply{w.Code, w.Head, envelope.Get("message").Text, envelope.Get("data")}, nil
}

// Send makes a call and returns its answer unparsed. An error means that the request could not be made; refusals are
// answers.
func (c *Client) Send(ctx context.Context, from *http.Request, q Call) (*Recorder, error) {
	raw, err := q.body()
	if err != nil {
		return nil, err
	}
	var body io.Reader = bytes.NewReader(raw)
	if q.File != nil {
		body = q.File
	}
	r, err := http.NewRequestWithContext(ctx, q.Row.Method, q.Target(), body)
	if err != nil {
		return nil, err
	}
	r.Host, r.RemoteAddr, r.RequestURI = from.Host, from.RemoteAddr, q.Target()
	forward(r.Header, from.Header)
	switch {
	case q.File != nil:
		r.Header.Set("Content-Type", q.MediaType)
	case raw != nil:
		r.Header.Set("Content-Type", "application/json")
	}
	if q.IfMatch != "" && q.Row.Revised {
		r.Header.Set("If-Match", q.IfMatch)
	}
	if len(q.IdempotencyKey) == len(NewIdempotencyKey()) && q.Row.Repeatable() {
		// The key includes a hash of the content, because a form that was changed after going back is another request.
		content := sha256.Sum256(append([]byte(q.Target()+"\n"), raw...))
		r.Header.Set(idempotencyHeader, fmt.Sprintf("%s-%x", url.QueryEscape(q.IdempotencyKey), content))
	} else if q.IdempotencyKey != "" && q.Row.Param(idempotencyHeader).Name != "" { // the operation looks at the content itself
		r.Header.Set(idempotencyHeader, url.QueryEscape(q.IdempotencyKey))
	}
	w := &Recorder{Head: http.Header{}, connection: q.Connection}
	c.API.ServeHTTP(w, r)
	return w, nil
}

// body returns the body, or nil if the operation takes none.
func (q *Call) body() ([]byte, error) {
	switch {
	case q.Raw != nil || q.Row.Body == nil:
		return q.Raw, nil
	case q.Body == nil:
		return []byte("{}"), nil
	}
	return json.Marshal(q.Body)
}

// Recorder is an http.ResponseWriter that keeps the answer in memory. The bound on answers of operations bounds it.
type Recorder struct {
	Head       http.Header
	Code       int
	Body       bytes.Buffer
	connection http.ResponseWriter
}

// SetReadDeadline sets the read deadline of the connection; see http.ResponseController.
func (w *Recorder) SetReadDeadline(t time.Time) error {
	if w.connection == nil {
		return http.ErrNotSupported
	}
	return http.NewResponseController(w.connection).SetReadDeadline(t)
}

// SetWriteDeadline sets the write deadline of the connection.
func (w *Recorder) SetWriteDeadline(t time.Time) error {
	if w.connection == nil {
		return http.ErrNotSupported
	}
	return http.NewResponseController(w.connection).SetWriteDeadline(t)
}

// Header returns the header of the answer.
func (w *Recorder) Header() http.Header { return w.Head }

// WriteHeader keeps the first code and ignores others.
func (w *Recorder) WriteHeader(code int) {
	if w.Code == 0 {
		w.Code = code
	}
}

// Write appends to the body.
func (w *Recorder) Write(part []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.Body.Write(part)
}

// NewIdempotencyKey returns a key for a form, so that a form that is sent twice is carried out once.
func NewIdempotencyKey() string { return rand.Text() }

// Tree returns the data of a result as the JSON tree that an answer over HTTP would have.
func Tree(data any) (strictjson.Value, error) {
	var body bytes.Buffer
	if answer, encoded := data.(*operation.Encoded); encoded {
		body.Write(answer.Body)
	} else if err := (operation.Envelope{Data: data}).Encode(&body); err != nil {
		return strictjson.Value{}, err
	}
	var parser strictjson.Parser
	envelope, err := parser.Parse(body.String())
	return envelope.Get("data"), err
}
