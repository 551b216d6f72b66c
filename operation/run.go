package operation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"tenantry/internal/request"
	"tenantry/tenants"
)

// Input is what came with a call besides the credential.
type Input struct {
	Query  string // as it stands in the address
	Header http.Header
	Origin string // of the page for which a browser calls; empty: it is none
	// Body returns the body of an operation that reads one; nil: there is none.
	Body func(context.Context) (Body, error)
	// Upload returns the file that an operation takes as its body.
	Upload func() (io.Reader, error)
	// Credential is what the call was made with. After a body, and while an upload arrives, a stream is written or the
	// handler takes its time, with a body or without, it is judged once more; nil: nothing of it can end, as of the
	// operator's commands.
	Credential Credential
	// Interrupt ends a read of the upload that waits. It may be called at any time until Run returns; nil: none does.
	Interrupt func()
	// Count is asked once the credential is known to be good for the operation, and Enter before
	// the handler runs; an error ends the call. Nil: nothing is asked.
	Count, Enter func(context.Context) error
	// Once, where it is not nil, decides whether the handler runs.
	Once func(ctx context.Context, run func(context.Context) (Result, error)) (Result, error)
}

// ErrExposedKey is the reason to refuse a key for servers alone that a browser has sent.
var ErrExposedKey = errors.New("server-only key from a browser")

// Run is the only way from a row to its handler: whether the credential may be used there, the
// rule, the input, what the caller may see, the handler. The call has its organization and its
// principal. Errors: whatever becomes a Problem by ProblemOf, and then by the row's Failure.
func Run(ctx context.Context, c *Call, in Input) (Result, error) {
	c.began, c.credential, c.origin = time.Now(), in.Credential, in.Origin
	if err := c.admit(in.Origin); err != nil {
		return Result{}, err
	}
	if err := ask(ctx, in.Count); err != nil {
		return Result{}, err
	}
	if err := c.Operation.Rule.Check(c.Principal, c.Tenant); err != nil {
		return Result{}, err
	}
	if err := c.read(ctx, in); err != nil {
		return Result{}, err
	}
	if err := ask(ctx, in.Enter); err != nil {
		return Result{}, err
	}
	if c.Body.read() || !c.Operation.reads() && (c.Upload != nil || c.TookLong()) { // to wait for room takes time, too
		if err := c.renew(ctx); err != nil {
			return Result{}, err
		}
	}
	unwatched := ctx
	if c.Body.read() || !c.Operation.reads() { // the others are confirmed before they are told
		access := c.access()
		watched, stop := access.Watch(ctx, in.Interrupt)
		defer stop()
		ctx = watched
		if c.Upload != nil && access != nil {
			c.Upload = &arriving{ctx, access, c.Upload, c.Header}
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
	case c.Operation.reads() && c.TookLong(): // a failure tells of what is there, too
		if ended := c.access().Confirm(ctx); ended != nil && (err == nil || errors.Is(ended, ErrEnded)) {
			result, err = Result{}, ended
		}
	}
	if err = because(ctx, err); c.Operation.AnyHost && errors.Is(err, ErrEnded) && errors.Is(err, tenants.ErrUnknownTenant) {
		return c.nowhere(unwatched)
	}
	return result, err
}

// nowhere answers as where the host leads to no organization, which it does by now.
func (c *Call) nowhere(ctx context.Context) (Result, error) {
	nobody, err := c.credential.Resolve(ctx)
	if err == nil && nobody.Workspace() != nil {
		err = tenants.ErrUnknownTenant // the host leads to another one, or again to this one
	}
	if err != nil {
		return Result{}, err
	}
	was := c.Tenant
	defer func() { c.Tenant = was }() // whose log has what was asked
	if c.Tenant = nobody; c.narrow() != nil {
		return Result{}, tenants.ErrUnknownTenant
	}
	return c.run(ctx)
}

// TookLong reports whether the answer of a call that reads is told only to who may still know it: it was begun half a
// second ago, or before.
func (c *Call) TookLong() bool { return time.Since(c.began) >= confirmEvery }

// Told returns nil where what a call that reads has found may still be told, once it was recorded, which may have taken
// long. Errors: those of Access.Confirm.
func (c *Call) Told(ctx context.Context) error {
	if !c.Operation.reads() || !c.TookLong() {
		return nil
	}
	return c.access().Confirm(ctx)
}

func (c *Call) run(ctx context.Context) (Result, error) {
	if c.Operation.Method == http.MethodDelete || c.Operation.MakesRoom {
		c.beyondQuota()
	}
	result, err := c.Operation.Handler(ctx, c)
	if r := request.From(ctx); r != nil && err == nil {
		if n := r.LeftOut.Load(); n > 0 && c.Header.Get("X-Warning") == "" {
			c.Header.Set("X-Warning", fmt.Sprintf("records that are left out, since they cannot be read: %d", n))
		}
	}
	if err == nil && c.Operation.Method == http.MethodGet {
		err = c.Current(c.Revision)
	}
	return result, err
}

func ask(ctx context.Context, question func(context.Context) error) error {
	if question == nil {
		return nil
	}
	return question(ctx)
}

// admit applies what the kind of a credential may do, and from where.
func (c *Call) admit(origin string) error {
	if err := c.Operation.Admits(c.Principal, origin); err != nil {
		return err
	}
	if c.Principal.KeyKind == tenants.Browser {
		c.ReadableBy(origin)
	}
	return nil
}

// ReadableBy lets pages of that origin read the answer.
func (c *Call) ReadableBy(origin string) {
	c.Header.Set("Access-Control-Allow-Origin", origin)
	c.Header.Set("Access-Control-Expose-Headers", "ETag, Idempotency-Replayed, RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, Retry-After, X-Ignored, X-Request-Id, X-Warning")
	c.Header.Add("Vary", "Origin")
}

// Admits returns nil where the operation takes a credential like the principal's, sent for a page of that
// origin ("": for none), else Denied with the reason. What its Rule says comes besides.
func (o *Row) Admits(p *tenants.Principal, origin string) error {
	if (o.Credentials == Operator) != (p.Kind == tenants.Operator) {
		return Denied("the operator's operations are the operator's alone, and no others")
	}
	if o.Credentials&Open != 0 {
		return nil
	}
	if p.Kind == tenants.Person && o.Credentials&Session == 0 {
		return Denied("the operation takes no sessions")
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

// read binds the query and the body to the row, and narrows the workspace to what the caller sees.
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
		if c.Upload, err = in.Upload(); err != nil {
			return err
		}
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
