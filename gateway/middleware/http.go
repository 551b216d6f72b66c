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

// RequestIDHeader names the request in the answer and in the log.
const RequestIDHeader = "X-Request-Id"

// requestID takes the caller's identifier where it is a plain one, else makes one: of the time, so that those of
// one moment lie together in the index of an audit log, and 48 random bits.
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
			if strings.EqualFold(strings.TrimSpace(name), "handling") && strings.EqualFold(strings.Trim(strings.TrimSpace(value), `"`), "strict") {
				return true
			}
		}
	}
	return false
}

// headerList writes names so that whatever they contain stays within the header.
func headerList(names []string) string {
	const most = 64
	escaped := make([]string, len(names))
	for i, name := range names {
		if len(name) > most {
			name = strings.ToValidUTF8(name[:most], "")
		}
		if !texts.Plain(name, most, "-_.[]") {
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

// write answers with the envelope.
func (x *exchange) write(code int, envelope operation.Envelope) {
	answer, before := envelope.Data.(*operation.Encoded)
	if !before {
		buf := x.p.pack.buffer()
		defer x.p.pack.free(buf)
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
	if x.call.Revision != 0 && envelope.Status == operation.StatusOK && x.unchanged(answer.Sum) {
		x.code = http.StatusNotModified
		x.w.Header().Del("Content-Type")
		x.w.WriteHeader(x.code)
		return
	}
	// A secret is only ever answered by what is audited, and must not be compressed together
	// with what somebody else may have chosen: the length would tell of it ("BREACH").
	if x.op.Audit == operation.AuditAlways {
		x.bytes = sendPlain(x.w, x.r, code, body)
		return
	}
	x.bytes = x.send(x.w, code, body)
}

// unchanged gives the answer its ETag, and reports whether the caller has the same already. The tag
// has a hash of the data besides the revision: they may show other records, and what the caller may see.
func (x *exchange) unchanged(sum uint64) bool {
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

// takenAtOnce is how much of an answer a connection takes without its reader, about.
const takenAtOnce = 64 << 10

// send sends a body that may be compressed. A small one takes no room for work any more, so
// that who reads slowly keeps it from nobody; a large one keeps its memory until it is read.
func (x *exchange) send(w http.ResponseWriter, code int, body []byte) int {
	if x.encoded(body); len(body) <= takenAtOnce {
		x.leave()
	}
	return x.p.pack.send(w, x.r, code, body)
}

func setDefault(h http.Header, name, value string) {
	if _, ok := h[name]; !ok {
		h[name] = []string{value}
	}
}

// Problem answers a request that reached no operation.
func (p *Pipeline) Problem(name string, w http.ResponseWriter, r *http.Request, problem *operation.Problem) {
	x := &exchange{p: p, op: &operation.Row{Name: name}, w: w, r: r, started: time.Now(), call: operation.NewCall(nil, nil)}
	x.call.RequestID = requestID(r)
	x.failure = problem
	x.fail(problem)
	x.done()
}

// Observe serves what is no operation, a page for one, and leaves its line and its figures.
// Next calls Visit where it needs an organization, and writes the whole body at once.
func (p *Pipeline) Observe(name string, w http.ResponseWriter, r *http.Request, next http.Handler) {
	known, ok := p.pages.Load(name)
	if !ok {
		known, _ = p.pages.LoadOrStore(name, &operation.Row{Name: name, Policy: operation.Policy{Credentials: operation.Open, AnyHost: true, Weight: operation.Heavy}}) // a page may be a shared report
	}
	op := known.(*operation.Row)
	x := &exchange{p: p, op: op, w: w, r: r, started: time.Now(), call: operation.NewCall(op, nil)}
	ctx := context.WithValue(x.begin(), visitKey{}, x)
	w.Header().Set(RequestIDHeader, x.call.RequestID)
	seen := &observed{ResponseWriter: w, x: x, code: http.StatusOK}
	defer func() {
		x.code, x.bytes = seen.code, seen.bytes
		if x.code >= http.StatusBadRequest {
			x.failure = &operation.Problem{Code: x.code, Reason: x.reason}
		}
		x.leave()
		x.uncount(ctx)
		x.done()
	}()
	next.ServeHTTP(seen, r.WithContext(ctx))
	if !seen.sent { // an answer without a body
		w.WriteHeader(seen.code)
	}
}

type visitKey struct{}

// Visit leads a request within Observe to its organization, as an operation's is led: the visitor, who is whoever is
// signed in or else nobody, is counted, and gets room for the work until the answer is written. Where the host leads to
// no organization the same is done for nobody's, which is returned with tenants.ErrUnknownTenant. Other errors:
// store.ErrUnavailable, and the *operation.Problem of who is over a limit.
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
		Tenant: x.call.Tenant, Err: tenants.ErrDenied, Resolve: x.made.Resolve, Pause: x.work.leave,
		Form: func(r *http.Request, most int64) ([]byte, error) { return x.form(r, most) },
	}
	v.Run = func(ctx context.Context, op *operation.Row, path map[string]string, query string) (operation.Result, error) {
		return x.run(ctx, v.Person, op, path, query)
	}
	if cookie, err := r.Cookie(p.Cookie); err == nil {
		// Who cannot be known now is counted as a stranger.
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

// Visitor is who asks for a page. Person is who is signed in; where that is nobody, Err is tenants.ErrDenied, also
// where no session was named, or tenants.ErrUnavailable.
type Visitor struct {
	Tenant *tenants.Tenant
	Person *tenants.Principal
	Err    error
	// Resolve returns the organization as it is now, nobody's where there is none any more. Error:
	// store.ErrUnavailable.
	Resolve func(context.Context) (*tenants.Tenant, error)
	// Form reads the body of the request, a form of at most so many bytes. While it arrives it has room of the bodies
	// and none of the work; what is made of it has room until the page is written. Errors: those of the connection, and
	// the *operation.Problem of who finds no room.
	Form func(r *http.Request, most int64) ([]byte, error)
	// Pause gives back the room for the work, while a file arrives that is passed on.
	Pause func()
	// Run runs an operation that only reads and is not audited, in the process and on behalf of Person, who is counted
	// and gets room as by a request of it. Errors: the *operation.Problem that would be answered.
	Run func(ctx context.Context, op *operation.Row, path map[string]string, query string) (operation.Result, error)
}

// What is made of a form takes so many times its bytes, and so many bytes for each of its values: it is read, parsed,
// called with, and shown again, where each quotation mark takes five.
const (
	formCopies = 3 // of what takes answerCopies
	formValue  = 160
)

// form is Visitor.Form.
func (x *exchange) form(r *http.Request, most int64) ([]byte, error) {
	x.work.leave()
	ctx, size := r.Context(), most
	if n := r.ContentLength; n >= 0 {
		size = min(n, most)
	}
	room, err := x.enter(ctx, x.p.Bodies, size)
	if err != nil {
		x.w.Header().Set("Connection", "close") // else the answer waits for the body
		return nil, err
	}
	defer room.leave()
	body, err := io.ReadAll(http.MaxBytesReader(x.w, r.Body, most))
	if err != nil {
		return nil, err
	}
	if x.work, err = x.enter(ctx, x.p.Work, x.op.Weight); err != nil {
		return nil, err
	}
	if made := formCopies*int64(len(body)) + formValue*int64(bytes.Count(body, []byte{'&'})); made > store.UnweighedBytes {
		err = x.Hold(ctx, made)
	}
	return body, err
}

// Counted serves what is the same for everybody, and costs something to send, to who is within the limits of a visitor.
// It is called within Observe. Others get the envelope.
func (p *Pipeline) Counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := p.Visit(r)
		if err == nil || errors.Is(err, tenants.ErrUnknownTenant) {
			next.ServeHTTP(w, r)
			return
		}
		problem := operation.ProblemOf(err)
		h := w.Header()
		h.Set("Cache-Control", notKept)
		h.Set("Content-Type", "application/json; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Retry-After", retryAfter(problem))
		w.WriteHeader(problem.Code)
		var body bytes.Buffer
		_ = problem.Envelope().Encode(&body) // strings only: cannot fail
		_, _ = w.Write(body.Bytes())         // a client that has gone cannot be told
	})
}

// retryAfter returns when to ask again, in seconds.
func retryAfter(problem *operation.Problem) string {
	return strconv.Itoa(int((problem.RetryAfter + time.Second - 1) / time.Second))
}

// observed sends an answer whose body is written at once, and notes what it was.
type observed struct {
	http.ResponseWriter
	x           *exchange
	code, bytes int
	sent        bool
}

// Unwrap returns the writer of the connection, whose deadlines are moved while a file arrives; see
// http.ResponseController.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// WriteHeader sets the code. It goes out with the body, which may change the header.
func (o *observed) WriteHeader(code int) {
	if !o.sent {
		o.code = code
	}
}

func (o *observed) Write(body []byte) (int, error) {
	if o.sent {
		return 0, errors.New("an answer was written in pieces")
	}
	o.sent = true
	o.bytes = o.x.send(o.ResponseWriter, o.code, body)
	return len(body), nil
}

// Preflight answers a browser that asks whether a page of another site may call an
// operation with a browser key. The key's own origins are checked when it calls.
func Preflight(w http.ResponseWriter, r *http.Request, methods string) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	h.Set("Access-Control-Allow-Methods", methods)
	h.Set("Access-Control-Allow-Headers", "x-service-token, content-type, prefer, if-match, if-none-match, idempotency-key, x-request-id, traceparent, tracestate")
	h.Set("Access-Control-Max-Age", "600")
	h.Add("Vary", "Origin")
	w.WriteHeader(http.StatusNoContent)
}

// Tenant returns the organization that a request is for, for what costs nothing and is not
// counted. Errors: tenants.ErrUnknownTenant, store.ErrUnavailable.
func (p *Pipeline) Tenant(r *http.Request) (*tenants.Tenant, error) {
	return p.Tenants.Resolve(r.Context(), p.host(r))
}
