// Package ask calls operations from pages. A Call goes through the handler that serves everybody, with the cookie and
// the origin of the page's request, so that sessions, rights, limits, audit and logs apply as to any other caller.
// Nothing else of the console reads or changes what organizations keep.
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

// Call is a call of an operation.
type Call struct {
	Row       *operation.Row
	Path      map[string]string
	Query     string
	Body      map[string]any // nil: the operation takes none
	Raw       []byte         // that is the body instead, of JSON
	IfMatch   string         // If-Match
	OnceKey   string         // Idempotency-Key
	File      io.Reader      // that is the body instead, of the media type
	MediaType string
	// Connection is the writer of the page's answer, whose deadlines are moved while a file arrives.
	Connection http.ResponseWriter
}

// Target returns the path and query that are asked for.
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

// PassOn gives the browser what an answer says to it: a session that begins, or goes on under another name, and when to
// try again.
func PassOn(w http.ResponseWriter, answer http.Header) {
	for _, name := range []string{"Set-Cookie", "Retry-After"} {
		for _, value := range answer.Values(name) {
			w.Header().Add(name, value)
		}
	}
}

// OK reports whether the call succeeded.
func (a *Reply) OK() bool { return a.Code == http.StatusOK }

// Faults returns what is wrong with which field, as far as the answer says.
func (a *Reply) Faults() []fault.Fault {
	var list []fault.Fault
	for _, e := range a.Data.Get("errors").Items {
		list = append(list, fault.Fault{Field: e.Get("field").Text, Code: e.Get("code").Text, Message: e.Get("message").Text})
	}
	return list
}

// RequestIDHeader is the header that names a request.
const RequestIDHeader = "X-Request-Id"

// passed are the headers of a page's request that come along: who asks, from where, and through which proxy.
var passed = []string{ //nolint:gochecknoglobals // a constant
	"Cookie", "Origin", "Sec-Fetch-Site", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "User-Agent", "Traceparent", "Tracestate", RequestIDHeader,
}

// Ask makes a call, and reads its answer.
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

// Send makes a call through the same handler as calls from outside, so that whatever holds for those holds
// here: the session, rights, limits, the audit record, the log.
func (c *Client) Send(ctx context.Context, from *http.Request, q Call) (*Answer, error) {
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
	for _, name := range passed {
		if values := from.Header.Values(name); values != nil {
			r.Header[name] = values
		}
	}
	switch {
	case q.File != nil:
		r.Header.Set("Content-Type", q.MediaType)
	case raw != nil:
		r.Header.Set("Content-Type", "application/json")
	}
	if q.IfMatch != "" && q.Row.Revised {
		r.Header.Set("If-Match", q.IfMatch)
	}
	if len(q.OnceKey) == len(NewOnceKey()) && q.Row.Repeatable() {
		// With what was sent, so that a form that was changed after the way back counts as another.
		r.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%x", url.QueryEscape(q.OnceKey), sha256.Sum256(append([]byte(q.Target()+"\n"), raw...))))
	}
	w := &Answer{Head: http.Header{}, connection: q.Connection}
	c.API.ServeHTTP(w, r)
	return w, nil
}

// body returns the body, nil where the operation takes none.
func (q *Call) body() ([]byte, error) {
	switch {
	case q.Raw != nil || q.Row.Body == nil:
		return q.Raw, nil
	case q.Body == nil:
		return []byte("{}"), nil
	}
	return json.Marshal(q.Body)
}

// Answer is an answer that is kept. What it holds is bounded by what an operation answers.
type Answer struct {
	Head       http.Header
	Code       int
	Body       bytes.Buffer
	connection http.ResponseWriter
}

// SetReadDeadline and SetWriteDeadline are those of the connection; see http.ResponseController.
func (w *Answer) SetReadDeadline(t time.Time) error {
	if w.connection == nil {
		return http.ErrNotSupported
	}
	return http.NewResponseController(w.connection).SetReadDeadline(t)
}

// SetWriteDeadline is as SetReadDeadline.
func (w *Answer) SetWriteDeadline(t time.Time) error {
	if w.connection == nil {
		return http.ErrNotSupported
	}
	return http.NewResponseController(w.connection).SetWriteDeadline(t)
}

// Header, WriteHeader and Write are those of a http.ResponseWriter.
func (w *Answer) Header() http.Header { return w.Head }

// WriteHeader keeps the first code.
func (w *Answer) WriteHeader(code int) {
	if w.Code == 0 {
		w.Code = code
	}
}

// Write keeps the body.
func (w *Answer) Write(part []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.Body.Write(part)
}

// NewOnceKey returns a key with which a form that is sent twice is carried out once.
func NewOnceKey() string { return rand.Text() }

// Tree returns a result as the tree of JSON that its answer would be.
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
