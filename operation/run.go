package operation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/request"
	"tenantry/tenants"
)

// Input is the input of a call and its credential.
type Input struct {
	Query  string // raw, as in the address
	Header http.Header
	Origin string // of the page that made a browser call; empty: not a browser
	// Body returns the body of an operation that reads one; nil: there is none.
	Body func(context.Context) (Body, error)
	// Upload returns the file that is the body of the operation.
	Upload func() (io.Reader, error)
	// Credential is what the call was made with. It is checked again after the body was read, and while an upload
	// arrives, a stream is written or the handler runs. Nil never ends, as for the operator's commands.
	Credential Credential
	// UploadSize is the length of the upload that the caller declares; -1: unknown.
	UploadSize int64
	// Interrupt ends a blocked read of the upload. It may be called at any time until Run returns; nil: none can be
	// ended.
	Interrupt func()
	// Count runs once the credential is accepted for the operation, Enter before the handler runs. An error ends the
	// call. Nil does nothing.
	Count, Enter func(context.Context) error
	// Once, if not nil, decides whether the handler runs.
	Once func(ctx context.Context, run func(context.Context) (Result, error)) (Result, error)
}

// ErrExposedKey is the reason to refuse a server key that a browser has sent.
var ErrExposedKey = errors.New("server-only key from a browser")

// Run is the only way from a row to its handler. It checks in order the credential, the rule, the input and the scope
// of the caller, and then calls the handler. The call must have its tenant and its principal. Errors: ProblemOf turns
// each into a Problem, and the row's Failure may replace that.
func Run(ctx context.Context, c *Call, in Input) (Result, error) {
	c.began, c.credential, c.origin = time.Now(), in.Credential, in.Origin
	if err := c.admit(in.Origin); err != nil {
		return Result{}, err
	}
	if err := runHook(ctx, in.Count); err != nil {
		return Result{}, err
	}
	if err := c.Operation.Rule.Check(c.Principal, c.Tenant); err != nil {
		return Result{}, err
	}
	if err := c.read(ctx, in); err != nil {
		return Result{}, err
	}
	if err := runHook(ctx, in.Enter); err != nil {
		return Result{}, err
	}
	if c.Body.read() || !c.Operation.reads() && (c.Upload != nil || c.TookLong()) { // Enter may have waited for room
		if err := c.renew(ctx); err != nil {
			return Result{}, err
		}
	}
	unwatched := ctx
	if c.Body.read() || !c.Operation.reads() { // reads are confirmed before they are answered
		access := c.access()
		watched, stop := access.Watch(ctx, in.Interrupt)
		defer stop()
		ctx = watched
		if c.Upload != nil && access != nil {
			c.Upload = &confirmingReader{ctx, access, c.Upload, c.Header}
		}
	}
	run := c.run
	if in.Once != nil {
		run = func(ctx context.Context) (Result, error) { return in.Once(ctx, c.run) }
	}
	result, err := run(ctx)
	switch {
	case err == nil && result.Stream != nil:
		result.Stream = c.access().stream(result.Stream)
	case c.Operation.reads() && c.TookLong(): // a failure reveals data, too
		if ended := c.access().Confirm(ctx); ended != nil && (err == nil || errors.Is(ended, ErrEnded)) {
			result, err = Result{}, ended
		}
	}
	if err == nil && result.Feed != nil {
		if result.Feed.access, err = c.Lasting(ctx); err != nil {
			return Result{}, err
		}
	}
	if err == nil && result.Content != nil {
		result.Content.access = c.admittedAt(c.began)
	}
	if err = orEnded(ctx, err); c.Operation.AnyHost && errors.Is(err, ErrEnded) && errors.Is(err, tenants.ErrUnknownTenant) {
		return c.runAnonymous(unwatched)
	}
	return result, err
}

// runAnonymous runs a call of an AnyHost operation whose host has ceased to lead to an organization, as for any
// unknown host.
func (c *Call) runAnonymous(ctx context.Context) (Result, error) {
	nobody, err := c.credential.Resolve(ctx)
	if err == nil && nobody.Workspace() != nil {
		err = tenants.ErrUnknownTenant // the host leads to another one, or again to this one
	}
	if err != nil {
		return Result{}, err
	}
	was := c.Tenant
	defer func() { c.Tenant = was }() // for the log of the organization that was asked
	if c.Tenant = nobody; c.narrow() != nil {
		return Result{}, tenants.ErrUnknownTenant
	}
	if c.Upload != nil { // interrupting it has ended the context of the request, too
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), outageGrace)
		defer cancel()
	}
	return c.run(ctx)
}

// TookLong reports whether a call began at least confirmEvery ago. The access of a call that reads must then be
// confirmed again before it is answered.
func (c *Call) TookLong() bool { return time.Since(c.began) >= confirmEvery }

// StillAdmitted confirms the access of a call that reads and TookLong, before its result is answered. Errors: those of
// Access.Confirm.
func (c *Call) StillAdmitted(ctx context.Context) error {
	if !c.Operation.reads() || !c.TookLong() {
		return nil
	}
	return c.access().Confirm(ctx)
}

func (c *Call) run(ctx context.Context) (Result, error) {
	if c.Operation.Method == http.MethodDelete || c.Operation.MakesRoom {
		c.beyondQuota()
	}
	if !c.Operation.reads() && c.Workspace != nil {
		by := c.Principal.Subject()
		bind := func(ws *store.Workspace) *store.Workspace { return ws.By(by) }
		c.Tenant, c.Workspace = c.Tenant.Through(bind), bind(c.Workspace)
	}
	result, err := c.Operation.Handler(ctx, c)
	if result.Content != nil {
		c.contents = append(c.contents, result.Content)
		if c.Operation.Content == nil {
			return Result{}, errors.New("the handler returns content, but its row has none")
		}
	} else if err == nil && (c.Operation.Feeds != "") != (result.Feed != nil) {
		err = errors.New("the handler returns a feed, or its row has one, but not both")
	} else if err == nil && c.Operation.Content != nil {
		err = errors.New("the handler of a row with content returns none")
	}
	if r := request.From(ctx); r != nil && err == nil {
		if n := r.LeftOut.Load(); n > 0 && c.Header.Get("X-Warning") == "" {
			c.Header.Set("X-Warning", fmt.Sprintf("records that are left out, since they cannot be read: %d", n))
		}
	}
	if err == nil && c.Operation.Method == http.MethodGet {
		err = c.Current(c.Revision)
	}
	if err != nil {
		c.Header.Del("X-Warning") // warnings are about what was done
	}
	return result, err
}

func runHook(ctx context.Context, question func(context.Context) error) error {
	if question == nil {
		return nil
	}
	return question(ctx)
}

// admit checks the credential against the row and the origin.
func (c *Call) admit(origin string) error {
	if err := c.Operation.Admits(c.Principal, origin); err != nil {
		return err
	}
	if c.Principal.KeyKind == tenants.Browser {
		c.ReadableBy(origin)
	}
	return nil
}

// ReadableBy lets pages of the origin read the answer.
func (c *Call) ReadableBy(origin string) {
	c.Header.Set("Access-Control-Allow-Origin", origin)
	c.Header.Set("Access-Control-Expose-Headers", "ETag, Idempotency-Replayed, RateLimit-Limit, RateLimit-Remaining, "+
		"RateLimit-Reset, Retry-After, X-Ignored, X-Request-Id, X-Warning")
	c.Header.Add("Vary", "Origin")
}

// Admits returns nil if the operation takes a credential like the principal's, sent by a page of that origin ("": not
// by a page), otherwise Denied with the reason. It does not check the Rule.
func (o *Row) Admits(p *tenants.Principal, origin string) error {
	if (o.Credentials == Operator) != (p.Kind == tenants.Operator) {
		return Denied("operations of the operator take the operator's credential alone, and other operations never do")
	}
	if o.Credentials&Open != 0 {
		return nil
	}
	if p.Kind == tenants.Person && o.Credentials&Session == 0 {
		return Denied("the operation does not take sessions")
	}
	if p.Kind != tenants.ServiceAccount {
		return nil
	}
	if !o.Kinds.Admits(p.KeyKind) {
		return Denied("the operation does not take keys of kind " + string(p.KeyKind))
	}
	if p.KeyKind != tenants.Browser {
		if origin != "" {
			problem := Denied(ErrExposedKey.Error())
			problem.Err = ErrExposedKey
			return problem
		}
		return nil
	}
	if origin == "" || !slices.Contains(p.Origins, origin) {
		return Denied("browser key from another origin")
	}
	return nil
}

// read binds the query and the body to the row, and narrows the workspace to what the caller may see.
func (c *Call) read(ctx context.Context, in Input) error {
	if err := c.conditions(in.Header); err != nil {
		return err
	}
	c.sent = in.Header
	query, err := ParseQuery(in.Query)
	if err != nil {
		return err
	}
	if err := c.Bind(query); err != nil {
		return err
	}
	if c.Operation.ReadsBody() && in.Body != nil {
		body, err := in.Body(ctx)
		if err != nil {
			return err
		}
		c.BindBody(body)
	}
	if c.Operation.Upload != nil && in.Upload != nil {
		upload, err := in.Upload()
		if err != nil {
			return err
		}
		c.UploadSize, c.uploadLimit = in.UploadSize, c.Operation.UploadLimit
		c.Upload = &limitedUpload{c: c, from: upload}
	}
	if err := c.narrow(); err != nil {
		return err
	}
	switch {
	case len(c.Unknown) == 0:
		return c.CheckIgnored()
	case c.Operation.Joins:
		return nil
	}
	return c.Unknown.Err()
}
