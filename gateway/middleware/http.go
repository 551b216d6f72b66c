package middleware

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
)

// KeyHeader is the header that carries an API key.
const KeyHeader = "X-Service-Token"

// RequestIDHeader is the header that names the request, in answers and, if the caller likes, in requests.
const RequestIDHeader = "X-Request-Id"

// requestID returns the identifier that the caller sent if it is plain, otherwise a new one. A new one begins with the
// time, so that requests of one moment are neighbours in the index of the audit log, and ends with 48 random bits.
func requestID(r *http.Request) string {
	if id := r.Header.Get(RequestIDHeader); texts.Plain(id, 64, "-_.") {
		return id
	}
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], uint64(time.Now().UnixMilli())<<16)
	_, _ = rand.Read(b[6:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// prefersStrict reports whether the caller asked for strict handling (RFC 7240).
func prefersStrict(h http.Header) bool {
	for _, line := range h.Values("Prefer") {
		for part := range strings.SplitSeq(line, ",") {
			preference, _, _ := strings.Cut(part, ";")
			name, value, _ := strings.Cut(preference, "=")
			name, value = strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"`)
			if strings.EqualFold(name, "handling") && strings.EqualFold(value, "strict") {
				return true
			}
		}
	}
	return false
}

// headerList joins names for a header. It escapes and shortens them, because they are input of the caller.
func headerList(names []string) string {
	const maxLength = 64
	escaped := make([]string, len(names))
	for i, name := range names {
		if len(name) > maxLength {
			name = strings.ToValidUTF8(name[:maxLength], "")
		}
		if !texts.Plain(name, maxLength, "-_.[]") {
			name = url.QueryEscape(name)
		}
		escaped[i] = name
	}
	return strings.Join(escaped, ", ")
}

// fail answers with the problem.
func (x *exchange) fail(problem *operation.Problem) {
	for name, value := range problem.Header {
		x.w.Header().Set(name, value)
	}
	if problem.RetryAfter > 0 {
		x.w.Header().Set("Retry-After", retryAfter(problem))
	}
	x.write(problem.Code, problem.Envelope())
}

// write answers with the envelope, or with nothing if the code is 204. Data that is already encoded is written as it is.
func (x *exchange) write(code int, envelope operation.Envelope) {
	if code == http.StatusNoContent {
		x.head(code, "")
		x.w.Header().Del("Content-Type")
		x.w.WriteHeader(code)
		return
	}
	answer, encoded := envelope.Data.(*operation.Encoded)
	if !encoded {
		buf := x.p.compressor.buffer()
		defer x.p.compressor.free(buf)
		if err := envelope.Encode(buf); err != nil {
			code = http.StatusInternalServerError
			buf.Reset()
			_ = operation.Internal(err).Envelope().Encode(buf) // strings only: cannot fail
		}
		answer = &operation.Encoded{Body: buf.Bytes()}
		if x.call.Revision != 0 {
			answer.Sum = operation.Sum(answer.Body)
		}
	}
	body := answer.Body
	x.head(code, "application/json; charset=utf-8")
	if x.call.Revision != 0 && envelope.Status == operation.StatusOK && x.notModified(answer.Sum) {
		x.code = http.StatusNotModified
		x.w.Header().Del("Content-Type")
		x.w.WriteHeader(x.code)
		return
	}
	// Only audited operations answer with secrets. A secret must not be compressed together with text that somebody
	// else may have chosen, because the length of the answer would reveal it ("BREACH").
	if x.op.Audit == operation.AuditAlways {
		x.bytes = sendPlain(x.w, x.r, code, body)
		return
	}
	x.bytes = x.send(x.w, code, body)
}

// notModified sets the ETag of the answer and reports whether the caller already has this version. The tag has a hash
// of the data besides the revision, because the data may show other records too, and depend on what the caller may see.
func (x *exchange) notModified(sum uint64) bool {
	tag := make([]byte, 0, 40)
	tag = append(strconv.AppendInt(append(tag, '"'), x.call.Revision, 10), '-')
	tag = append(strconv.AppendUint(tag, sum, 36), '"')
	h := x.w.Header()
	h["Etag"] = []string{string(tag)}
	if x.op.Method != http.MethodGet {
		return false
	}
	known := x.call.NoneMatch.Matching(string(tag))
	if known == "" {
		return false
	}
	h["Etag"] = []string{known}
	vary(h)
	return true
}

// socketBuffer is roughly how much of an answer a connection accepts before its reader takes any of it.
const socketBuffer = 64 << 10

// send sends a body, compressed if that pays. A small body gives back the room for the work first, so that a slow
// reader does not keep it from others; a large one keeps the room for its memory until it is read.
func (x *exchange) send(w http.ResponseWriter, code int, body []byte) int {
	if x.encoded(body); len(body) <= socketBuffer {
		x.leave()
	}
	return x.p.compressor.send(w, x.r, code, body)
}

func setDefault(h http.Header, name, value string) {
	if _, ok := h[name]; !ok {
		h[name] = []string{value}
	}
}

// Problem answers a request that matches no operation. name is its name in logs and metrics.
func (p *Pipeline) Problem(name string, w http.ResponseWriter, r *http.Request, problem *operation.Problem) {
	x := &exchange{
		p: p, op: &operation.Row{Name: name}, w: w, r: r, started: time.Now(), call: operation.NewCall(nil, nil),
	}
	x.call.RequestID = requestID(r)
	x.failure = problem
	x.fail(problem)
	x.done()
}

// Observe serves a request that is not an operation, such as a page, with log line, metrics and trace. next calls Visit
// if it needs the organization, and must write the whole body at once.
func (p *Pipeline) Observe(name string, w http.ResponseWriter, r *http.Request, next http.Handler) {
	row, ok := p.pages.Load(name)
	if !ok {
		// It is Heavy because a page may be a shared report.
		row, _ = p.pages.LoadOrStore(name, &operation.Row{
			Name: name, Policy: operation.Policy{Credentials: operation.Open, AnyHost: true, Weight: operation.Heavy},
		})
	}
	op := row.(*operation.Row)
	x := &exchange{p: p, op: op, w: w, r: r, started: time.Now(), call: operation.NewCall(op, nil)}
	ctx := context.WithValue(x.begin(), visitKey{}, x)
	w.Header().Set(RequestIDHeader, x.call.RequestID)
	out := &observedWriter{ResponseWriter: w, x: x, code: http.StatusOK}
	defer func() {
		x.code, x.bytes = out.code, out.bytes
		if x.code >= http.StatusBadRequest {
			x.failure = &operation.Problem{Code: x.code, Reason: x.reason}
		}
		x.leave()
		x.refund(ctx)
		x.done()
	}()
	next.ServeHTTP(out, r.WithContext(ctx))
	if !out.sent { // an answer without a body
		w.WriteHeader(out.code)
	}
}

type visitKey struct{}

// Visit identifies the visitor of a page that Observe serves: the person who is signed in, or an anonymous one. It
// counts the request against the limits, and reserves room for the work until the answer is written.
//
// If the host belongs to no organization, Visit does the same with the anonymous tenant and returns the Visitor
// together with tenants.ErrUnknownTenant. Other errors: store.ErrUnavailable; the *operation.Problem of a visitor who
// is over a limit.
func (p *Pipeline) Visit(r *http.Request) (Visitor, error) {
	ctx := r.Context()
	x, ok := ctx.Value(visitKey{}).(*exchange)
	if !ok {
		return Visitor{}, errors.New("a page is served outside of Observe")
	}
	x.call.Remote = p.remote(r)
	unknown := x.tenant(ctx)
	if unknown != nil && !errors.Is(unknown, tenants.ErrUnknownTenant) {
		return Visitor{}, unknown
	}
	x.call.Principal = &tenants.Principal{}
	v := Visitor{
		Tenant: x.call.Tenant, Err: tenants.ErrDenied, Resolve: x.credential.Resolve, Pause: x.work.leave,
		Form: func(r *http.Request, limit int64) ([]byte, error) { return x.form(r, limit) },
	}
	v.Run = func(
		ctx context.Context, op *operation.Row, path map[string]string, query string,
	) (operation.Result, error) {
		return x.runForPage(ctx, v.Person, op, path, query)
	}
	if cookie, err := r.Cookie(p.Cookie); err == nil {
		// A visitor who cannot be identified now is counted as anonymous.
		if v.Person, v.Err = p.Sessions.Lookup(ctx, v.Tenant, cookie.Value); v.Err == nil {
			x.call.Principal, x.call.SessionToken = v.Person, cookie.Value
		}
	}
	err := x.count(ctx)
	if err == nil {
		x.work, err = x.enter(ctx, p.Work, x.op.Weight)
	}
	if err != nil {
		x.reason = operation.ProblemOf(err).Reason
		return Visitor{}, err
	}
	return v, unknown
}

// Visitor is the caller of a page. Person is the person who is signed in, or nil. Err then says why: tenants.ErrDenied
// without a valid session, or tenants.ErrUnavailable.
type Visitor struct {
	Tenant *tenants.Tenant
	Person *tenants.Principal
	Err    error
	// Resolve returns the current state of the organization; the anonymous tenant if it no longer exists. Error:
	// store.ErrUnavailable.
	Resolve func(context.Context) (*tenants.Tenant, error)
	// Form reads the body of the request, a form of at most limit bytes. While the body arrives, the request holds room
	// for bodies and none for the work. Room for the parsed values is held until the page is written. Errors: those of
	// the connection; the *operation.Problem if there is no room.
	Form func(r *http.Request, limit int64) ([]byte, error)
	// Pause gives back the room for the work, while a file arrives that the page passes on.
	Pause func()
	// Run runs a read-only operation that is not audited, within the process and on behalf of Person. It is counted
	// against limits and needs room like a request. Error: the *operation.Problem that a request would be answered
	// with.
	Run func(ctx context.Context, op *operation.Row, path map[string]string, query string) (operation.Result, error)
}

// Memory that a form takes besides its body: copies of its bytes, and bytes for each value. A form is read, parsed,
// sent to the operation, and shown again with quotation marks escaped to five bytes each.
const (
	formCopies = 3 // each is multiplied by answerCopies
	formValue  = 160
)

// form implements Visitor.Form.
func (x *exchange) form(r *http.Request, limit int64) ([]byte, error) {
	x.work.leave()
	ctx, size := r.Context(), limit
	if n := r.ContentLength; n >= 0 {
		size = min(n, limit)
	}
	room, err := x.enter(ctx, x.p.Bodies, size)
	if err != nil {
		x.w.Header().Set("Connection", "close") // otherwise the server reads the body first
		return nil, err
	}
	defer room.leave()
	body, err := io.ReadAll(http.MaxBytesReader(x.w, r.Body, limit))
	if err != nil {
		return nil, err
	}
	if x.work, err = x.enter(ctx, x.p.Work, x.op.Weight); err != nil {
		return nil, err
	}
	parsed := formCopies*int64(len(body)) + formValue*int64(bytes.Count(body, []byte{'&'}))
	if parsed > store.UnweighedBytes {
		err = x.Hold(ctx, parsed)
	}
	return body, err
}

// WithinLimits serves public content that is costly to send to visitors within their limits, and answers others with an
// envelope. It is called within Observe.
func (p *Pipeline) WithinLimits(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := p.Visit(r)
		if err == nil || errors.Is(err, tenants.ErrUnknownTenant) {
			next.ServeHTTP(w, r)
			return
		}
		problem := operation.ProblemOf(err)
		h := w.Header()
		h.Set("Cache-Control", noStore)
		h.Set("Content-Type", "application/json; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Retry-After", retryAfter(problem))
		w.WriteHeader(problem.Code)
		var body bytes.Buffer
		_ = problem.Envelope().Encode(&body) // strings only: cannot fail
		_, _ = w.Write(body.Bytes())         // an error means that the client has gone
	})
}

// retryAfter returns the Retry-After of the problem, in seconds.
func retryAfter(problem *operation.Problem) string {
	return strconv.Itoa(int((problem.RetryAfter + time.Second - 1) / time.Second))
}

// observedWriter sends an answer whose body is written at once, and records its code and size.
type observedWriter struct {
	http.ResponseWriter
	x           *exchange
	code, bytes int
	sent        bool
}

// Unwrap returns the writer of the connection, for http.ResponseController: the deadlines are moved while a file
// arrives.
func (o *observedWriter) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// WriteHeader sets the code. It is sent with the body, because the header may change until then.
func (o *observedWriter) WriteHeader(code int) {
	if !o.sent {
		o.code = code
	}
}

func (o *observedWriter) Write(body []byte) (int, error) {
	if o.sent {
		return 0, errors.New("an answer was written in pieces")
	}
	o.sent = true
	o.bytes = o.x.send(o.ResponseWriter, o.code, body)
	return len(body), nil
}

// Preflight answers a browser that asks whether a page of another origin may call an operation with a browser key. The
// origins of the key itself are checked when it is used.
func Preflight(w http.ResponseWriter, r *http.Request, methods string) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Allow-Headers", "x-service-token, content-type, prefer, if-match, if-none-match, "+
		"idempotency-key, x-request-id, traceparent, tracestate")
	h.Set("Access-Control-Max-Age", "600")
	h.Add("Vary", "Origin")
	w.WriteHeader(http.StatusNoContent)
}

// Tenant returns the organization of the request, without counting the request. Use it for answers that cost nothing.
// Errors: tenants.ErrUnknownTenant, store.ErrUnavailable.
func (p *Pipeline) Tenant(r *http.Request) (*tenants.Tenant, error) {
	return p.Tenants.Resolve(r.Context(), p.Host(r))
}
