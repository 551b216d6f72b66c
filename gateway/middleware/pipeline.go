// Package middleware serves operations over HTTP. A Pipeline takes a request through its steps: tenant, credential,
// policy, input, handler, audit, answer. It also recovers from panics, and writes access log, metrics and traces.
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
	"sync/atomic"
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

// Tenants resolves host names to organizations. Errors: tenants.ErrUnknownTenant, store.ErrUnavailable.
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
	// Holder returns the holder of a session, for jobs. Rights returns the current permissions of that holder, as long
	// as the session has not been ended.
	Holder(ctx context.Context, t *tenants.Tenant, token string) (sessions.Holder, error)
	Rights(ctx context.Context, t *tenants.Tenant, h sessions.Holder) (*tenants.Principal, error)
}

// Options are the parts that a Pipeline uses.
type Options struct {
	Tenants  Tenants
	Keys     Keys
	Sessions Sessions
	// Needs returns where the permissions are noted that the calls of a person need; nil: they are not noted.
	Needs       func(t *tenants.Tenant, uid int64) *tenants.Needs
	Limits      Limits         // nil: requests are not counted
	Work        *limits.Flight // requests in flight, by weight; nil: without a bound
	Bodies      *limits.Flight // bodies being read, in bytes; nil: without a bound
	Decoded     *limits.Flight // values decoded from bodies, in bytes; nil: without a bound
	Answers     *limits.Flight // large answers, in bytes; nil: without a bound
	Contents    *limits.Flight // contents being sent; nil: without a bound
	Uploads     *limits.Flight // files being received; nil: without a bound
	Feeds       *limits.Flight // feeds; nil: without a bound
	Audit       *audit.Log
	Idempotency *idempotency.Log
	Log         *slog.Logger
	Metrics     *Metrics
	Usage       *usage.Meter   // nil: usage is not counted
	Requests    slog.Handler   // gets a line for each request; nil: off
	Tracer      trace.Tracer   // nil: off
	Proxies     []netip.Prefix // trusted proxies
	Cookie      string         // name of the session cookie
	// BaseURL returns the address of an organization, for links.
	BaseURL func(slug string) string
	// Expired returns the current value of Call.Expired; nil: 0.
	Expired func() int64
	// Unproxied, when set, is called for requests with the headers of a proxy if no proxy is trusted.
	Unproxied func(context.Context)
}

// Pipeline serves operations and pages. Safe for concurrent use.
type Pipeline struct {
	Options
	crossOrigin *http.CrossOriginProtection
	compressor  *compressor
	pages       sync.Map                   // name to *operation.Row, for requests that are not operations
	strangers   *cache.Map[source, *flood] // by organization and operation
	addresses   *cache.Map[source, *flood] // by organization, operation and address
	outages     outages
	paces       *fairqueue.Queue[int64] // of streams, by organization
	feedsBehind atomic.Int64            // bytes that callers of feeds have not taken yet
}

// New returns a Pipeline.
func New(o Options) *Pipeline {
	return &Pipeline{
		Options: o, crossOrigin: http.NewCrossOriginProtection(), compressor: newCompressor(), paces: newPaces(),
		strangers: cache.New[source, *flood](maxFloods), addresses: cache.New[source, *flood](maxFloods),
	}
}

// exchange is one request and its answer.
type exchange struct {
	p         *Pipeline
	op        *operation.Row
	w         http.ResponseWriter
	r         *http.Request
	call      *operation.Call
	limit     limits.Decision // zero: the request was not counted
	refused   bool            // over a limit
	work      place
	uploading place // until the request has ended
	decoded   place // room for the decoded body, until the handler has returned
	room      room
	digest    hash.Hash // of the body; nil: not needed
	started   time.Time
	failure   *operation.Problem
	reason    string // why a page was refused, for the log
	code      int    // 0: the answer has not begun
	bytes     int
	info      request.Request

	credential credential
	// journaled are the facts of the audit record that the last commit of the handler stored, see
	// operation.Call.Journaled.
	journaled map[string]string
	span      trace.Span // nil: off
}

// Serve answers one request for the operation. path returns the path parameter of a name.
func (p *Pipeline) Serve(op *operation.Row, w http.ResponseWriter, r *http.Request, path func(string) string) {
	x := &exchange{p: p, op: op, w: w, r: r, started: time.Now(), call: operation.NewCall(op, path)}
	if p.Expired != nil {
		x.call.Expired = p.Expired()
	}
	ctx, cancel := context.WithTimeout(x.begin(), op.Deadline())
	defer cancel()
	defer x.done()
	defer x.leave()
	defer x.closeContents()
	defer x.recoverAnswer(ctx)
	result, err := x.execute(ctx)
	x.answer(ctx, result, err)
}

// recoverAnswer answers with an internal error if a panic occurred before the answer was begun. A later panic is passed
// on, which makes net/http close the connection.
func (x *exchange) recoverAnswer(ctx context.Context) {
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

// execute identifies the caller and runs the operation. It turns a panic into an error, so that a fault ends one
// request and not the process.
func (x *exchange) execute(ctx context.Context) (result operation.Result, err error) {
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
		Query: x.r.URL.RawQuery, Header: x.r.Header, Origin: x.r.Header.Get("Origin"),
		Body: x.body, Upload: x.upload, Count: x.count, Credential: &x.credential,
		Enter: func(ctx context.Context) (err error) {
			x.work, err = x.enter(ctx, x.p.Work, x.op.Weight)
			return err
		},
	}
	if x.op.Upload != nil {
		in.Interrupt, in.UploadSize = x.interrupt, x.r.ContentLength
	}
	if x.op.Method != http.MethodGet && x.op.Audit == operation.AuditAlways {
		in.Once = x.runJournaled
	}
	if x.op.Repeatable() && x.r.Header[idempotency.Header] != nil {
		in.Once, x.digest = x.once, sha256.New()
	}
	defer x.dropBody()
	result, err = operation.Run(ctx, x.call, in)
	if errors.Is(err, operation.ErrExposedKey) {
		x.p.Log.WarnContext(ctx, "a server-only key was sent by a browser; revoke it",
			"key", x.call.Principal.KeyID, "org", x.call.Tenant.Org.OrgID)
		x.p.Metrics.exposedKeys.Inc()
	}
	return result, err
}

// once carries out a request with an Idempotency-Key, or returns the stored answer if it was carried out before.
func (x *exchange) once(
	ctx context.Context, run func(context.Context) (operation.Result, error),
) (operation.Result, error) {
	keys := x.r.Header[idempotency.Header]
	invisible := func(c rune) bool { return c <= ' ' || c > '~' }
	if len(keys) != 1 || keys[0] == "" || len(keys[0]) > 255 || strings.ContainsFunc(keys[0], invisible) {
		return operation.Result{}, operation.BadRequest(
			"The header %s must be there once, with 1 to 255 visible ASCII characters", idempotency.Header)
	}
	if x.op.Reads {
		return x.runJournaled(ctx, run)
	}
	x.journal()
	req := idempotency.Request{Key: keys[0], Target: x.r.URL.RequestURI(), Body: x.digest.Sum(nil)}
	return x.p.Idempotency.Once(ctx, x.call, req, run)
}

// runJournaled carries out the request. The last commit of the handler also stores the audit record.
func (x *exchange) runJournaled(
	ctx context.Context, run func(context.Context) (operation.Result, error),
) (operation.Result, error) {
	x.journal()
	return run(ctx)
}

// journal makes the last commit of the handler store the audit record too. An organization that does not exist has no
// audit log.
func (x *exchange) journal() {
	ws := x.call.Tenant.Workspace()
	if ws == nil {
		return
	}
	x.call.Journal = func(_ context.Context, b *store.Batch, _ operation.Result) error {
		rec := x.record(nil)
		x.journaled = maps.Clone(rec.Facts)
		return x.p.Audit.Stage(b, ws, rec)
	}
}

// caller finds the organization and the principal. A host without an organization takes the same steps as a host whose
// organization refuses the credential, because neither the answer nor its timing may reveal which organizations exist.
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

// tenant finds the organization of the host. If there is none, it sets the anonymous tenant and returns
// tenants.ErrUnknownTenant.
func (x *exchange) tenant(ctx context.Context) error {
	host := x.p.Host(x.r)
	x.credential = credential{p: x.p, op: x.op, host: host, remote: x.call.Remote}
	tenant, err := x.p.Tenants.Resolve(ctx, host)
	if errors.Is(err, tenants.ErrUnknownTenant) {
		tenant = x.p.Tenants.Anonymous(host)
	} else if err != nil {
		return err
	}
	x.call.Tenant, x.call.BaseURL = tenant, x.p.BaseURL(tenant.Org.Slug)
	return err
}

// sameSite refuses requests that a page of another site sends with the session of this browser: those that change
// something, and those that accept a session and are audited in the name of its person. It runs before the organization
// is known, so that the answer reveals nothing of it. Of an operation for pages of any site, it only notes that.
func (x *exchange) sameSite() error {
	if len(x.r.Header[KeyHeader]) > 0 && x.op.Credentials != operation.Open {
		return nil
	}
	checked := *x.r
	checked.Host = x.p.Host(x.r) // a proxy may have changed the Host
	if x.op.Audit == operation.AuditAlways && x.op.Credentials&operation.Session != 0 {
		checked.Method = http.MethodPost // the check lets GET pass, but an audited one leaves a record
	}
	err := x.p.crossOrigin.Check(&checked)
	switch {
	case x.op.AnySite:
		x.call.CrossSite, x.call.CountVisitor = err != nil, x.countVisitor
	case err != nil:
		return operation.OtherSite()
	}
	return nil
}

// principal authenticates the caller with the credential that the operation accepts. Only one credential is tried: a
// key, if one was sent, otherwise the session.
func (x *exchange) principal(ctx context.Context, t *tenants.Tenant) (*tenants.Principal, error) {
	keys := x.r.Header.Values(KeyHeader)
	if len(keys) > 0 && x.op.Credentials == operation.Session {
		return nil, operation.Denied("the operation takes no keys")
	}
	switch {
	case x.op.Credentials&operation.Open != 0:
		if origin := x.r.Header.Get("Origin"); origin != "" && len(keys) == 1 && x.op.Kinds.Admits(tenants.Browser) {
			// An open operation does not refuse an invalid key, but the page cannot read the answer then.
			page, err := x.p.Keys.Authenticate(ctx, t, keys[0], x.call.Remote)
			if err == nil && page.KeyKind == tenants.Browser && slices.Contains(page.Origins, origin) {
				x.call.ReadableBy(origin)
			}
		}
		return x.credential.Authenticate(ctx, t)
	case x.op.Credentials&operation.Key != 0 && len(keys) > 0:
		if len(keys) != 1 {
			return nil, operation.Denied("more than one key")
		}
		x.credential.key = keys[0]
		return x.credential.Authenticate(ctx, t)
	case x.op.Credentials&operation.Session != 0:
		if cookie, err := x.r.Cookie(x.p.Cookie); err == nil {
			x.call.SessionToken, x.credential.session = cookie.Value, cookie.Value
			return x.credential.Authenticate(ctx, t)
		}
	}
	if x.r.Header.Get("Authorization") != "" && x.op.Credentials&operation.Key != 0 {
		return nil, operation.Denied("a key came in Authorization; keys count from x-service-token alone")
	}
	return nil, operation.Denied("no credential")
}

// dropBody releases the body when the handler has returned, so that it takes no memory while the answer is written.
func (x *exchange) dropBody() {
	x.call.Body = operation.Body{}
	x.decoded.leave()
}

// body reads the body. It reserves room for bodies and none for the work, so that slow senders do not keep others from
// working.
func (x *exchange) body(ctx context.Context) (operation.Body, error) {
	noBody := x.op.Body == nil
	if x.r.ContentLength == 0 && (noBody || x.op.Bodiless) {
		return operation.Body{}, nil
	}
	body, err := x.readBody(ctx)
	var problem *operation.Problem
	if noBody && errors.As(err, &problem) &&
		problem.Code < http.StatusInternalServerError && problem.Code != http.StatusTooManyRequests {
		return body, operation.BadRequest("The operation takes no body")
	}
	return body, err
}

func (x *exchange) readBody(ctx context.Context) (operation.Body, error) {
	room, err := x.enter(ctx, x.p.Bodies, x.bodyWeight())
	if err != nil {
		x.call.Header.Set("Connection", "close") // otherwise the server reads the body first
		return operation.Body{}, err
	}
	defer room.leave()
	if x.r.Header.Get("Content-Encoding") != "" {
		return operation.Body{}, unsupported("Send the body without a content encoding")
	}
	media, params, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
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
	var sizeErr *http.MaxBytesError
	var problem *operation.Problem
	switch {
	case err == nil:
		return body, x.reserve(ctx, body.Memory())
	case errors.As(err, &problem):
		return body, err
	case errors.As(err, &sizeErr):
		return operation.Body{}, tooLarge(x.op)
	}
	return operation.Body{}, operation.BadRequest("The body could not be read to its end")
}

// reserve reserves room for the decoded body. The caller still has the room for the body itself, and gives it back
// afterwards, so that slow senders hold no room for decoded bodies.
func (x *exchange) reserve(ctx context.Context, bytes int64) (err error) {
	if bytes > freeDecoded {
		x.decoded, err = x.enter(ctx, x.p.Decoded, bytes)
	}
	return err
}

// freeDecoded is the size of a decoded body up to which no room is reserved, because the bound on work in flight allows
// for it. Few bodies are larger.
const freeDecoded = 32 << 10

func tooLarge(op *operation.Row) *operation.Problem {
	return &operation.Problem{
		Code: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("The body is larger than %d bytes", op.BodyMax()),
		Header: map[string]string{"Connection": "close"},
	}
}

func unsupported(message string) *operation.Problem {
	return &operation.Problem{Code: http.StatusUnsupportedMediaType, Message: message}
}

// answer settles the call and writes its answer.
func (x *exchange) answer(ctx context.Context, result operation.Result, err error) {
	problem := x.settle(ctx, err)
	x.failure = problem
	x.refund(ctx)
	header := x.w.Header()
	if ignored := x.call.Ignored(); len(ignored) > 0 {
		header.Set("X-Ignored", headerList(ignored))
	}
	var before http.Header
	if result.Content != nil {
		before = header.Clone()
	}
	maps.Copy(header, x.call.Header)
	if problem == nil && result.Feed != nil {
		if problem = x.feed(ctx, result.Feed); problem == nil {
			return
		}
		x.failure = problem
	}
	if problem == nil && result.Content != nil {
		if problem = x.content(ctx, result.Content, before); problem == nil {
			return
		}
		x.failure = problem
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
	x.write(x.op.Success(), envelope)
}

// settle writes the audit record if the row asks for one, and returns the problem to answer with, or nil for a success.
// If the success cannot be audited, or nobody waits for an answer that is given only once, its answer is withheld:
// settle undoes the call if the handler has said how, and otherwise says that the change was applied.
func (x *exchange) settle(ctx context.Context, err error) (problem *operation.Problem) {
	if err != nil {
		problem = x.problem(ctx, err)
	}
	withheld := x.audit(ctx, problem) // why the answer cannot be sent
	if gone := x.r.Context().Err(); withheld == nil && problem == nil && x.op.Once && gone != nil {
		withheld = fmt.Errorf("nobody waits for the answer: %w", gone)
		defer func() { _ = x.audit(ctx, problem) }() // the log has the success already, and gets the failure too
	}
	if withheld == nil && problem == nil {
		var revoked error
		if x.op.Audit == operation.AuditAlways {
			revoked = x.call.StillAdmitted(ctx)
		}
		if revoked == nil {
			return nil
		}
		x.dropHeaders()
		problem = x.problem(ctx, revoked)
		_ = x.audit(ctx, problem) // the log has the access already, and gets the refusal too
		return problem
	}

	undone := x.undo(ctx)
	if withheld == nil {
		return problem
	}
	x.dropHeaders()
	unavailable := operation.Unavailable(withheld)
	if unavailable.Reason = withheld.Error(); problem == nil && !undone && x.op.Method != http.MethodGet {
		unavailable.Message = "The change was applied but not audited, so its answer is withheld. " +
			"Check the current state before retrying"
	}
	return x.problem(ctx, unavailable)
}

// undo undoes what the handler did, if the handler has said how, and reports whether it succeeded.
func (x *exchange) undo(ctx context.Context) bool {
	if x.call.Undo == nil {
		return false
	}
	undoCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	err := x.call.Undo(undoCtx)
	if err != nil {
		x.p.Log.WarnContext(ctx, "a call whose answer is withheld could not be undone",
			"operation", x.op.Name, "error", err)
	}
	return err == nil
}

// codeHungUp is the code in logs and metrics of requests whose caller hung up, as in nginx.
const codeHungUp = 499

// problem turns an error into the problem to answer with, in the words of the row.
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

// undoTimeout bounds undo, because the store may be in trouble.
const undoTimeout = time.Second

// explain turns an error into a problem, and logs the cause that the caller must not see.
func (p *Pipeline) explain(ctx context.Context, name string, err error) *operation.Problem {
	problem := operation.ProblemOf(err)
	switch {
	case problem.Code == http.StatusInternalServerError:
		p.Log.ErrorContext(ctx, "internal error", "operation", name, "error", err)
	case problem.Code == http.StatusServiceUnavailable:
		if ok, suppressed := p.outages.admit(name, time.Now()); ok {
			p.Log.WarnContext(ctx, cmp.Or(problem.Reason, "unavailable"),
				"operation", name, "error", err, "suppressed", suppressed)
		}
	}
	return problem
}

// done writes the access log, the metrics and the trace of the request, and counts its usage.
func (x *exchange) done() {
	took := time.Since(x.started)
	status := operation.StatusOK
	if x.failure != nil {
		status = operation.StatusFailed
	}
	x.p.Metrics.observe(outcome{x.op.Name, status, x.code}, took)
	x.p.Usage.Count(x.call.Tenant, x.op, x.known(), x.code, x.bytes, x.info.Took())
	x.endSpan()
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
	line.Int("store_calls", x.info.Calls())
	line.Int("store_us", x.info.Took().Microseconds())
	line.Int("bytes", int64(x.bytes))
	line.Text("request_id", x.call.RequestID)
	line.Text("trace_id", x.info.TraceID)
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
