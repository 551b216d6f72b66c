package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// A request is what the console asks of an operation, as any other client of it would.
type request struct {
	row   *operation.Row
	path  map[string]string
	query string
	body  map[string]any // nil: the operation takes none
	raw   []byte         // that is the body instead, of JSON
	match string         // If-Match
	once  string         // Idempotency-Key
	file  io.Reader      // that is the body instead, of the media type
	media string
	// waits is the writer of the page's answer, whose deadlines are moved while a file arrives.
	waits http.ResponseWriter
}

// target returns the path and query that are asked for.
func (q *request) target() string {
	if q.query == "" {
		return pathOf(q.row, q.path)
	}
	return pathOf(q.row, q.path) + "?" + q.query
}

// client calls operations from pages. Safe for concurrent use.
type client struct {
	api     http.Handler
	cookie  string // name of the session cookie
	baseURL func(slug string) string
}

// reply is what an operation answered.
type reply struct {
	code    int
	header  http.Header
	message string
	data    strictjson.Value
}

// handOn gives the browser what an answer says to it: a session that begins, or goes on under another name, and when to try again.
func handOn(w http.ResponseWriter, answer http.Header) {
	for _, name := range []string{"Set-Cookie", "Retry-After"} {
		for _, value := range answer.Values(name) {
			w.Header().Add(name, value)
		}
	}
}

func (a *reply) ok() bool { return a.code == http.StatusOK }

// faults returns what is wrong with which field, as far as the answer says.
func (a *reply) faults() []fault.Fault {
	var list []fault.Fault
	for _, e := range a.data.Get("errors").Items {
		list = append(list, fault.Fault{Field: e.Get("field").Text, Code: e.Get("code").Text, Message: e.Get("message").Text})
	}
	return list
}

// requestID is the header that names a request.
const requestID = "X-Request-Id"

// passed are the headers of a page's request that come along: who asks, from where, and through which proxy.
var passed = []string{ //nolint:gochecknoglobals // a constant
	"Cookie", "Origin", "Sec-Fetch-Site", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "User-Agent", "Traceparent", "Tracestate", requestID,
}

// ask makes a call, and reads its answer.
func (c *client) ask(ctx context.Context, from *http.Request, q request) (reply, error) {
	w, err := c.send(ctx, from, q)
	if err != nil {
		return reply{}, err
	}
	var parser strictjson.Parser
	envelope, err := parser.Parse(w.body.String())
	if err != nil {
		return reply{}, err
	}
	return reply{w.code, w.header, envelope.Get("message").Text, envelope.Get("data")}, nil
}

// send makes a call through the same handler as calls from outside, so that whatever holds for those holds
// here: the session, rights, limits, the audit record, the log.
func (c *client) send(ctx context.Context, from *http.Request, q request) (*written, error) {
	raw, err := q.json()
	if err != nil {
		return nil, err
	}
	var body io.Reader = bytes.NewReader(raw)
	if q.file != nil {
		body = q.file
	}
	r, err := http.NewRequestWithContext(ctx, q.row.Method, q.target(), body)
	if err != nil {
		return nil, err
	}
	r.Host, r.RemoteAddr, r.RequestURI = from.Host, from.RemoteAddr, q.target()
	for _, name := range passed {
		if values := from.Header.Values(name); values != nil {
			r.Header[name] = values
		}
	}
	switch {
	case q.file != nil:
		r.Header.Set("Content-Type", q.media)
	case raw != nil:
		r.Header.Set("Content-Type", "application/json")
	}
	if q.match != "" && q.row.Revised {
		r.Header.Set("If-Match", q.match)
	}
	if len(q.once) == len(onceKey()) && q.row.Repeatable() {
		// With what was sent, so that a form that was changed after the way back counts as another.
		r.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%x", url.QueryEscape(q.once), sha256.Sum256(append([]byte(q.target()+"\n"), raw...))))
	}
	w := &written{header: http.Header{}, waits: q.waits}
	c.api.ServeHTTP(w, r)
	return w, nil
}

// json returns the body, nil where the operation takes none.
func (q *request) json() ([]byte, error) {
	switch {
	case q.raw != nil || q.row.Body == nil:
		return q.raw, nil
	case q.body == nil:
		return []byte("{}"), nil
	}
	return json.Marshal(q.body)
}

// written is an answer that is kept. What it holds is bounded by what an operation answers.
type written struct {
	header http.Header
	code   int
	body   bytes.Buffer
	waits  http.ResponseWriter
}

// SetReadDeadline and SetWriteDeadline are those of the connection; see http.ResponseController.
func (w *written) SetReadDeadline(t time.Time) error {
	if w.waits == nil {
		return http.ErrNotSupported
	}
	return http.NewResponseController(w.waits).SetReadDeadline(t)
}

// SetWriteDeadline is as SetReadDeadline.
func (w *written) SetWriteDeadline(t time.Time) error {
	if w.waits == nil {
		return http.ErrNotSupported
	}
	return http.NewResponseController(w.waits).SetWriteDeadline(t)
}

// Header, WriteHeader and Write are those of a http.ResponseWriter.
func (w *written) Header() http.Header { return w.header }

// WriteHeader keeps the first code.
func (w *written) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
}

// Write keeps the body.
func (w *written) Write(part []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(part)
}

// mostCopied is how long a command may be that is shown, in bytes: nobody copies a longer one, and each of its quotation marks
// takes sixteen on a page.
const mostCopied = 16 << 10

// curl returns the command that makes the same call with the credential that it takes: a key rather than a session. Empty: it
// would be too long.
func (c *client) curl(slug string, q request) string {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	parts := []string{"curl", "-g"}
	switch {
	case q.row.Credentials&operation.Key != 0:
		parts = append(parts, "-H", `"x-service-token: $KEY"`)
	case q.row.Credentials&operation.Session != 0:
		parts = append(parts, "-b", `"`+c.cookie+`=$SESSION"`)
	}
	if q.row.Method != http.MethodGet {
		parts = append(parts, "-X", q.row.Method)
	}
	if q.match != "" && q.row.Conditional() {
		parts = append(parts, "-H", quote("If-Match: "+q.match))
	}
	if q.body != nil || q.raw != nil {
		shown, _ := q.json() // texts, numbers, lists and objects of them: cannot fail
		if len(shown) > mostCopied {
			return ""
		}
		parts = append(parts, "-H", quote("Content-Type: application/json"), "-d", quote(string(shown)))
	}
	target := q.target()
	if len(target) > mostCopied {
		return ""
	}
	if path, query, found := strings.Cut(target, "?"); found {
		if readable, err := url.QueryUnescape(query); err == nil && !strings.ContainsAny(readable, " %+#'\"\\") && strings.Count(readable, "&") == strings.Count(query, "&") {
			target = path + "?" + readable
		}
	}
	return strings.Join(append(parts, quote(c.baseURL(slug)+target)), " ")
}
