// Package middleware leads a request to its operation: tenant, credential, policy, input,
// handler, audit, answer; around it recovery, access log and metrics.
package middleware

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/logging"
	"tenantry/internal/cache"
	"tenantry/internal/fairqueue"
	"tenantry/internal/request"
	"tenantry/modules/audit"
	"tenantry/modules/usage"
	"tenantry/operation"
	"tenantry/operation/idempotency"
	"tenantry/tenants"
	"tenantry/tenants/limits"
	"tenantry/tenants/sessions"

	"go.opentelemetry.io/otel/trace"
)

// Tenants leads from a host name to its organization.
type Tenants interface {
	Resolve(ctx context.Context, host string) (*tenants.Tenant, error)
	// Anonymous returns an empty tenant for an unknown host.
	Anonymous(host string) *tenants.Tenant
}

// Keys checks API keys. Errors: tenants.ErrDenied, tenants.ErrUnavailable.
type Keys interface {
	Authenticate(ctx context.Context, t *tenants.Tenant, token string, remote netip.Addr) (*tenants.Principal, error)
}

// Sessions checks browser sessions. Errors: tenants.ErrDenied, tenants.ErrUnavailable.
type Sessions interface {
	Lookup(ctx context.Context, t *tenants.Tenant, token string) (*tenants.Principal, error)
	// Holder returns the person of a session, and Rights what that person may do now unless the session was ended.
	Holder(ctx context.Context, t *tenants.Tenant, token string) (sessions.Holder, error)
	Rights(ctx context.Context, t *tenants.Tenant, h sessions.Holder) (*tenants.Principal, error)
}

// Options are what a Pipeline needs.
type Options struct {
	Tenants  Tenants
	Keys     Keys
	Sessions Sessions
	// Needs notes which permissions the calls of a person need; nil: nobody does.
	Needs    func(t *tenants.Tenant, uid int64) *tenants.Needs
	Limits   Limits         // nil: requests are not counted
	Work     *limits.Flight // what is in flight, by weight; nil: without a bound
	Bodies   *limits.Flight // the bodies being read, in bytes; nil: without a bound
	Answers  *limits.Flight // large answers, in the bytes that they hold; nil: without a bound
	Decoded  *limits.Flight // those that were read, in bytes of what is made of them; nil: without a bound
	Audit    *audit.Log
	Repeats  *idempotency.Log
	Log      *slog.Logger
	Metrics  *Metrics
	Usage    *usage.Meter // nil: nobody is told what was asked
	Requests slog.Handler // takes a line of each request; nil: there is none
	Tracer   trace.Tracer // nil: nothing is traced
	Proxies  []netip.Prefix
	Cookie   string // name of the session cookie
	// BaseURL returns the address of an organization, for links.
	BaseURL func(slug string) string
	// Expired returns what Call.Expired is now; nil: 0.
	Expired func() int64
	// Unproxied is told that a request names its caller, as proxies do, though none is trusted; nil: nobody is.
	Unproxied func(context.Context)
}

// Pipeline serves operations. Safe for concurrent use.
type Pipeline struct {
	Options
	crossOrigin *http.CrossOriginProtection
	pack        *packer
	pages       sync.Map                   // name to *operation.Row, of what is none
	strangers   *cache.Map[source, *flood] // by organization and operation
	addresses   *cache.Map[source, *flood] // and by address
	outages     outages
	paces       *fairqueue.Queue[int64] // of streams, by organization
}

// New returns a Pipeline.
func New(o Options) *Pipeline {
	return &Pipeline{
		Options: o, crossOrigin: http.NewCrossOriginProtection(), pack: newPacker(), paces: newPaces(),
		strangers: cache.New[source, *flood](maxFloods), addresses: cache.New[source, *flood](maxFloods),
	}
}

// exchange is one request on its way through the pipeline.
type exchange struct {
	p       *Pipeline
	op      *operation.Row
	w       http.ResponseWriter
	r       *http.Request
	call    *operation.Call
	limit   limits.Decision // zero: the request was not counted
	refused bool            // over a limit
	work    place
	decoded place // of the body, until the handler is done with it
	room    room
	made    credential // with which the request was made
	digest  hash.Hash  // of the body, where it is asked for
	started time.Time
	failure *operation.Problem
	reason  string // why a page was refused, for the log
	code    int
	bytes   int
	about   request.Request
	// recorded are the facts of the audit record that the handler's last commit stored, see operation.Call.Journaled.
	recorded map[string]string
	span     trace.Span // nil: nobody follows
}

// Serve answers one request for the operation. path gives the path parameters.
func (p *Pipeline) Serve(op *operation.Row, w http.ResponseWriter, r *http.Request, path func(string) string) {
	x := &exchange{p: p, op: op, w: w, r: r, started: time.Now(), call: operation.NewCall(op, path)}
	if p.Expired != nil {
		x.call.Expired = p.Expired()
	}
	ctx, cancel := context.WithTimeout(x.begin(), op.Deadline())
	defer cancel()
	defer x.done()
	defer x.leave()
	defer x.rescue(ctx)
	result, err := x.guarded(ctx)
	x.answer(ctx, result, err)
}

// rescue answers where a panic kept the answer from being made or written.
func (x *exchange) rescue(ctx context.Context) {
	cause := recover()
	if cause == nil {
		return
	}
	if cause == http.ErrAbortHandler || x.code != 0 { //nolint:errorlint // a sentinel by contract of net/http
		panic(cause)
	}
	x.failure = x.p.explain(ctx, x.op.Name, fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
	x.fail(x.failure)
}

// guarded runs the call and turns a panic into an error: a fault ends one call, not the process.
func (x *exchange) guarded(ctx context.Context) (result operation.Result, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			if cause == http.ErrAbortHandler { //nolint:errorlint // a sentinel by contract of net/http
				panic(cause)
			}
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	x.call.Remote = x.p.remote(x.r)
	if err := x.sameSite(); err != nil {
		return operation.Result{}, err
	}
	if err := x.caller(ctx); err != nil {
		return operation.Result{}, err
	}
	x.call.Strict = x.call.Strict || prefersStrict(x.r.Header)
	in := operation.Input{
		Query: x.r.URL.RawQuery, Header: x.r.Header, Origin: x.r.Header.Get("Origin"), Body: x.body, Upload: x.upload, Count: x.count,
		Credential: &x.made,
		Enter: func(ctx context.Context) (err error) {
			x.work, err = x.enter(ctx, x.p.Work, x.op.Weight)
			return err
		},
	}
	if x.op.Upload != nil {
		in.Interrupt = x.interrupt
	}
	if x.op.Method != http.MethodGet && x.op.Audit == operation.AuditAlways {
		in.Once = x.carry
	}
	if x.op.Repeatable() && x.r.Header[idempotency.Header] != nil {
		in.Once, x.digest = x.once, sha256.New()
	}
	defer x.forget()
	result, err = operation.Run(ctx, x.call, in)
	if errors.Is(err, operation.ErrExposedKey) {
		x.p.Log.WarnContext(ctx, "a server-only key was sent by a browser; revoke it", "key", x.call.Principal.KeyID, "org", x.call.Tenant.Org.OrgID)
		x.p.Metrics.exposedKeys.Inc()
	}
	return result, err
}

// once carries a request with an Idempotency-Key out, or answers what it was answered before.
func (x *exchange) once(ctx context.Context, run func(context.Context) (operation.Result, error)) (operation.Result, error) {
	keys := x.r.Header[idempotency.Header]
	if len(keys) != 1 || keys[0] == "" || len(keys[0]) > 255 || strings.ContainsFunc(keys[0], func(c rune) bool { return c <= ' ' || c > '~' }) {
		return operation.Result{}, operation.BadRequest("The header %s must be there once, with 1 to 255 visible ASCII characters", idempotency.Header)
	}
	if x.op.Reads {
		return x.carry(ctx, run)
	}
	x.journal()
	return x.p.Repeats.Once(ctx, x.call, idempotency.Request{Key: keys[0], Target: x.r.URL.RequestURI(), Body: x.digest.Sum(nil)}, run)
}

// carry carries the request out; its last commit stores the audit record too.
func (x *exchange) carry(ctx context.Context, run func(context.Context) (operation.Result, error)) (operation.Result, error) {
	x.journal()
	return run(ctx)
}

// journal has the last commit of the handler store the audit record. An organization that does not exist has no log.
func (x *exchange) journal() {
	ws := x.call.Tenant.Workspace()
	if ws == nil {
		return
	}
	x.call.Journal = func(_ context.Context, b *store.Batch, _ operation.Result) error {
		rec := x.record(nil)
		x.recorded = maps.Clone(rec.Facts)
		return x.p.Audit.Stage(b, ws, rec)
	}
}

// caller finds the organization and who calls. What is done for a host that leads to none is what is done for one that
// does not know the caller: neither the answer nor the time that it takes tells which organizations there are.
func (x *exchange) caller(ctx context.Context) error {
	unknown := x.tenant(ctx)
	if unknown != nil && !errors.Is(unknown, tenants.ErrUnknownTenant) {
		return unknown
	}
	who, err := x.principal(ctx, x.call.Tenant)
	if unknown == nil || x.op.AnyHost {
		x.call.Principal = who
		return err
	}
	if err != nil && operation.ProblemOf(err).Code != http.StatusForbidden {
		return err
	}
	return unknown
}

// tenant finds the organization: nobody's, where the host leads to none, besides tenants.ErrUnknownTenant.
func (x *exchange) tenant(ctx context.Context) error {
	host := x.p.host(x.r)
	x.made = credential{p: x.p, op: x.op, host: host, remote: x.call.Remote}
	tenant, err := x.p.Tenants.Resolve(ctx, host)
	if errors.Is(err, tenants.ErrUnknownTenant) {
		tenant = x.p.Tenants.Anonymous(host)
	} else if err != nil {
		return err
	}
	x.call.Tenant, x.call.BaseURL = tenant, x.p.BaseURL(tenant.Org.Slug)
	return err
}

// sameSite refuses what a page of another site sends with this browser's session: whatever changes something, and,
// where the session counts, whatever is recorded in the name of the person. It knows nothing of the organization yet,
// so that it says nothing of it.
func (x *exchange) sameSite() error {
	if len(x.r.Header[KeyHeader]) > 0 && x.op.Credentials != operation.Open {
		return nil
	}
	asked := *x.r
	asked.Host = x.p.host(x.r) // a proxy may have another one for us
	if x.op.Audit == operation.AuditAlways && x.op.Credentials&operation.Session != 0 {
		asked.Method = http.MethodPost // a link that leaves a record is none that only reads
	}
	if err := x.p.crossOrigin.Check(&asked); err != nil {
		return operation.Forbidden("The request comes from another site")
	}
	return nil
}

func (x *exchange) principal(ctx context.Context, t *tenants.Tenant) (*tenants.Principal, error) {
	keys := x.r.Header.Values(KeyHeader)
	if len(keys) > 0 && x.op.Credentials == operation.Session {
		return nil, operation.Denied("the operation takes no keys")
	}
	switch {
	case x.op.Credentials&operation.Open != 0:
		if origin := x.r.Header.Get("Origin"); origin != "" && len(keys) == 1 && x.op.Kinds.Admits(tenants.Browser) {
			// A key that does not fit is no reason to refuse what is open; the page cannot read it then.
			if page, err := x.p.Keys.Authenticate(ctx, t, keys[0], x.call.Remote); err == nil && page.KeyKind == tenants.Browser && slices.Contains(page.Origins, origin) {
				x.call.ReadableBy(origin)
			}
		}
		return x.made.Authenticate(ctx, t)
	case x.op.Credentials&operation.Key != 0 && len(keys) > 0:
		if len(keys) != 1 {
			return nil, operation.Denied("more than one key")
		}
		x.made.key = keys[0]
		return x.made.Authenticate(ctx, t)
	case x.op.Credentials&operation.Session != 0:
		if cookie, err := x.r.Cookie(x.p.Cookie); err == nil {
			x.call.SessionToken, x.made.session = cookie.Value, cookie.Value
			return x.made.Authenticate(ctx, t)
		}
	}
	if x.r.Header.Get("Authorization") != "" && x.op.Credentials&operation.Key != 0 {
		return nil, operation.Denied("a key came in Authorization; keys count from x-service-token alone")
	}
	return nil, operation.Denied("no credential")
}

// forget drops the body, which nobody reads any more while the answer is written.
func (x *exchange) forget() {
	x.call.Body = operation.Body{}
	x.decoded.leave()
}

// body reads the body. What it takes is reserved apart from the work: who sends slowly keeps
// others from none.
func (x *exchange) body(ctx context.Context) (operation.Body, error) {
	takesNone := x.op.Body == nil
	if x.r.ContentLength == 0 && (takesNone || x.op.Bodiless) {
		return operation.Body{}, nil
	}
	body, err := x.sent(ctx)
	if problem := (*operation.Problem)(nil); takesNone && errors.As(err, &problem) && problem.Code < http.StatusInternalServerError && problem.Code != http.StatusTooManyRequests {
		return body, operation.BadRequest("The operation takes no body")
	}
	return body, err
}

func (x *exchange) sent(ctx context.Context) (operation.Body, error) {
	room, err := x.enter(ctx, x.p.Bodies, x.bodyWeight())
	if err != nil {
		x.call.Header.Set("Connection", "close") // else the answer waits for the body
		return operation.Body{}, err
	}
	defer room.leave()
	if x.r.Header.Get("Content-Encoding") != "" {
		return operation.Body{}, unsupported("Send the body without a content encoding")
	}
	kind, params, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || (params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8")) {
		return operation.Body{}, unsupported("Send the body as application/json")
	}
	if x.r.ContentLength > x.op.BodyMax() {
		return operation.Body{}, tooLarge(x.op)
	}
	src := io.Reader(http.MaxBytesReader(x.w, x.r.Body, x.op.BodyMax()))
	if x.digest != nil {
		src = io.TeeReader(src, x.digest)
	}
	body, err := x.op.ReadBody(src)
	var over *http.MaxBytesError
	var problem *operation.Problem
	switch {
	case err == nil:
		return body, x.reserve(ctx, body.Memory())
	case errors.As(err, &problem):
		return body, err
	case errors.As(err, &over):
		return operation.Body{}, tooLarge(x.op)
	}
	return operation.Body{}, operation.BadRequest("The body could not be read to its end")
}

// reserve takes room for what is made of the body, beside that of the body itself, which is given back once there is
// some: so who sends slowly has none of it.
func (x *exchange) reserve(ctx context.Context, bytes int64) (err error) {
	if bytes > leastDecoded {
		x.decoded, err = x.enter(ctx, x.p.Decoded, bytes)
	}
	return err
}

// leastDecoded is how much the work in flight may take besides: few bodies are larger.
const leastDecoded = 32 << 10

func tooLarge(op *operation.Row) *operation.Problem {
	return &operation.Problem{
		Code: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("The body is larger than %d bytes", op.BodyMax()),
		Header: map[string]string{"Connection": "close"},
	}
}

func unsupported(message string) *operation.Problem {
	return &operation.Problem{Code: http.StatusUnsupportedMediaType, Message: message}
}

// answer audits where the row asks for it and writes the envelope.
func (x *exchange) answer(ctx context.Context, result operation.Result, err error) {
	problem := x.settle(ctx, err)
	x.failure = problem
	x.uncount(ctx)
	header := x.w.Header()
	maps.Copy(header, x.call.Header)
	if ignored := x.call.Ignored(); len(ignored) > 0 {
		header.Set("X-Ignored", headerList(ignored))
	}
	if problem == nil && result.Stream != nil {
		if err = x.stream(ctx, result); err == nil {
			return
		}
		problem = x.problem(ctx, err)
		x.failure = problem
	}
	if problem != nil {
		x.fail(problem)
		return
	}
	envelope := operation.Envelope{Status: operation.StatusOK, Message: result.Message, Data: result.Data}
	if envelope.Message == "" {
		envelope.Message = x.op.Message
	}
	x.write(http.StatusOK, envelope)
}

// settle records how the call ended, where the row asks for it, and returns the failure to answer, nil for a
// success. What a handler did and nobody can be told of is taken back, or said to be done.
func (x *exchange) settle(ctx context.Context, err error) (problem *operation.Problem) {
	if err != nil {
		problem = x.problem(ctx, err)
	}
	untold := x.audit(ctx, problem)
	if gone := x.r.Context().Err(); untold == nil && problem == nil && x.op.Once && gone != nil {
		untold = fmt.Errorf("nobody waits for the answer: %w", gone)
		defer func() { _ = x.audit(ctx, problem) }() // the record of its success is there already
	}
	if untold == nil && problem == nil {
		ended := error(nil)
		if x.op.Audit == operation.AuditAlways {
			ended = x.call.Told(ctx)
		}
		if ended == nil {
			return nil
		}
		x.withhold()
		problem = x.problem(ctx, ended)
		_ = x.audit(ctx, problem) // that it was found is recorded already
		return problem
	}
	undone := x.undo(ctx)
	if untold == nil {
		return problem
	}
	x.withhold()
	told := operation.Unavailable(untold)
	if told.Reason = untold.Error(); problem == nil && !undone && x.op.Method != http.MethodGet {
		told.Message = "The change was applied but not audited, so its answer is withheld. Check the current state before retrying"
	}
	return x.problem(ctx, told)
}

// undo takes back what the handler did, where it has said how, and reports whether that is so.
func (x *exchange) undo(ctx context.Context) bool {
	if x.call.Undo == nil {
		return false
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	err := x.call.Undo(within)
	if err != nil {
		x.p.Log.WarnContext(ctx, "what nobody is told of could not be taken back", "operation", x.op.Name, "error", err)
	}
	return err == nil
}

// codeHungUp is what logs and metrics call the answer to a caller who did not wait for it, as other servers do.
const codeHungUp = 499

// problem explains an error in the words of the row.
func (x *exchange) problem(ctx context.Context, err error) *operation.Problem {
	if errors.Is(err, context.Canceled) && x.r.Context().Err() != nil {
		return &operation.Problem{Code: codeHungUp, Message: "The caller hung up", Reason: "the caller hung up", Err: err}
	}
	problem := x.p.explain(ctx, x.op.Name, err)
	if x.op.Failure != nil && !x.refused {
		return x.op.Failure(problem)
	}
	return problem
}

// undoTimeout bounds what is taken back while the store is in trouble.
const undoTimeout = time.Second

// explain turns an error into a problem and logs what the caller must not see.
func (p *Pipeline) explain(ctx context.Context, name string, err error) *operation.Problem {
	problem := operation.ProblemOf(err)
	switch {
	case problem.Code == http.StatusInternalServerError:
		p.Log.ErrorContext(ctx, "internal error", "operation", name, "error", err)
	case problem.Code == http.StatusServiceUnavailable:
		if tell, untold := p.outages.tell(name, time.Now()); tell {
			p.Log.WarnContext(ctx, cmp.Or(problem.Reason, "unavailable"), "operation", name, "error", err, "untold_before", untold)
		}
	}
	return problem
}

// done writes the access log and the metrics of the request.
func (x *exchange) done() {
	took := time.Since(x.started)
	status := operation.StatusOK
	if x.failure != nil {
		status = operation.StatusFailed
	}
	x.p.Metrics.observe(outcome{x.op.Name, status, x.code}, took)
	x.p.Usage.Count(x.call.Tenant, x.op, x.known(), x.code, x.bytes, x.about.Took())
	x.traced()
	if x.p.Requests == nil {
		return
	}
	ctx := x.r.Context()
	line := logging.Begin(ctx, x.p.Requests, x.started, slog.LevelInfo, "request")
	if line == nil {
		return
	}
	line.Text("operation", x.op.Name)
	line.Int("code", int64(x.code))
	line.Text("status", status)
	line.Int("took_us", took.Microseconds())
	line.Int("store_calls", x.about.Calls())
	line.Int("store_us", x.about.Took().Microseconds())
	line.Int("bytes", int64(x.bytes))
	line.Text("request_id", x.call.RequestID)
	line.Text("trace_id", x.about.TraceID)
	if x.call.Tenant != nil {
		line.Int("org", x.call.Tenant.Org.OrgID)
	}
	if x.call.Principal != nil {
		line.Text("subject", x.call.Principal.Subject())
	}
	if x.failure != nil {
		line.Text("reason", x.failure.Reason)
	}
	line.End(ctx)
}
