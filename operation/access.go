package operation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/tenants"
)

// Credential is what a call was made with. By it the organization and the caller are resolved, when the call is
// admitted and again while something of it is under way. Safe for concurrent use.
type Credential interface {
	// Resolve returns the organization as it is now. Errors: tenants.ErrUnknownTenant, store.ErrUnavailable.
	Resolve(ctx context.Context) (*tenants.Tenant, error)
	// Authenticate returns who presents the credential to the organization, with the rights of now. Errors:
	// tenants.ErrDenied, tenants.ErrUnavailable, a *Problem.
	Authenticate(ctx context.Context, t *tenants.Tenant) (*tenants.Principal, error)
	// Detach returns the credential for a job that goes on after the request. It stays good after the session of a
	// person has expired, which the job does not prolong; not after that was ended. Errors: as Authenticate.
	Detach(ctx context.Context, t *tenants.Tenant) (Credential, error)
}

// ErrEnded is wrapped by the errors of Access.Confirm, beside the reason.
var ErrEnded = errors.New("the rights with which it was begun have ended")

const (
	// confirmEvery is how long a confirmed access is not resolved again, unless the organization or its access
	// revision has changed.
	confirmEvery = 500 * time.Millisecond
	// unconfirmed is how long what is under way goes on while nobody can tell whether it may: an outage is no refusal.
	unconfirmed = 5 * time.Second
	// confirmBytes is how much of a stream is written between two questions.
	confirmBytes = 32 << 10
)

// Access is what a call was admitted with, for what outlives that check: uploads, streams, jobs. Safe for
// concurrent use. A nil Access, of the operator's commands, never ends.
type Access struct {
	credential Credential
	op         *Row
	origin     string
	requested  []string // teams
	principal  *tenants.Principal
	scope      store.Scope
	recheck    func(context.Context, *tenants.Tenant) error
	org        string // identity of the organization; empty: nobody's

	mu     sync.Mutex
	tenant *tenants.Tenant // as it was when the access was confirmed last
	asked  time.Time       // when that was; zero: not yet
}

// access returns what the call was admitted with; nil where nothing of that can end.
func (c *Call) access() *Access {
	if c.credential == nil {
		return nil
	}
	a := &Access{
		credential: c.credential, op: c.Operation, origin: c.origin, principal: c.Principal, scope: c.Scope,
		recheck: c.Recheck, org: c.Tenant.Org.ID, tenant: c.Tenant,
	}
	if c.Operation.Teams {
		a.requested, _ = c.Teams() // they were read before
	}
	return a
}

// Lasting returns the access of the call for a job that goes on after the call, and that calls Confirm before
// whatever it stores. Errors: those of Credential.Detach.
func (c *Call) Lasting(ctx context.Context) (*Access, error) {
	a := c.access()
	if a == nil {
		return nil, nil //nolint:nilnil // see Access
	}
	var err error
	a.credential, err = c.credential.Detach(ctx, c.Tenant)
	return a, err
}

// Confirm returns nil while the call would be admitted as it was: its organization is active, its credential good,
// and its caller holds every right and sees every team of then. It costs little where neither the organization nor
// its access revision has changed since it was confirmed last, half a second ago at most. Errors wrap ErrEnded, or
// say that nobody could tell for 5 seconds.
func (a *Access) Confirm(ctx context.Context) error { return a.confirm(ctx, false) }

// confirm is Confirm; anew asks whatever was confirmed before.
func (a *Access) confirm(ctx context.Context, anew bool) error {
	if a == nil {
		return nil
	}
	now := time.Now()
	tenant, err := a.credential.Resolve(ctx)
	a.mu.Lock()
	known, asked := a.tenant, a.asked
	a.mu.Unlock()
	if err == nil && !anew && tenant == known && now.Sub(asked) < confirmEvery {
		return nil
	}
	if err == nil {
		err = a.judge(ctx, tenant)
	}
	switch {
	case err == nil:
		a.mu.Lock()
		defer a.mu.Unlock()
		if now.After(a.asked) {
			a.tenant, a.asked = tenant, now
		}
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ProblemOf(err).Code < http.StatusInternalServerError:
		return fmt.Errorf("%w: %w", ErrEnded, err)
	case now.Sub(asked) < unconfirmed:
		return nil
	}
	return err
}

// judge returns nil where the organization as it is now admits the call as it was admitted.
func (a *Access) judge(ctx context.Context, t *tenants.Tenant) error {
	if a.recheck != nil {
		if err := a.recheck(ctx, t); err != nil {
			return err
		}
	}
	if t.Org.ID != a.org {
		return fmt.Errorf("the organization does not answer any more: %w", tenants.ErrUnknownTenant)
	}
	p, err := a.credential.Authenticate(ctx, t)
	if err != nil {
		return err
	}
	if err := a.op.Admits(p, a.origin); err != nil {
		return err
	}
	if err := a.op.Rule.Check(p, t); err != nil {
		return err
	}
	if !p.HoldsAll(a.principal) || !p.Scope(t, a.requested).Covers(a.scope) {
		return Forbidden("Your rights were narrowed while the request was under way; send it again")
	}
	return nil
}

// Watch returns a context that ends soon after the access has, with the reason as its cause; interrupt, where it is
// not nil, is called then, and again until stop is. stop must be called, and nothing is called after it.
func (a *Access) Watch(ctx context.Context, interrupt func()) (_ context.Context, stop func()) {
	if a == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var mu sync.Mutex
	stopped := false
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(confirmEvery, func() {
		if err := background.Try(func() error { return a.Confirm(ctx) }); err != nil {
			cancel(err)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case stopped, ctx.Err() != nil && interrupt == nil:
			return
		case ctx.Err() != nil:
			interrupt()
		}
		timer.Reset(confirmEvery)
	})
	return ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
		cancel(nil)
	}
}

// because returns the error of what was done under a context of Watch: that the access has ended where it was stopped
// by that.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && ctx.Err() != nil && errors.Is(cause, ErrEnded) {
		return cause
	}
	return err
}

// stream returns the stream, which ends with an error soon after the access has.
func (a *Access) stream(rows Stream) Stream {
	if a == nil {
		return rows
	}
	return func(ctx context.Context, w io.Writer) error {
		ctx, stop := a.Watch(ctx, nil)
		defer stop()
		err := rows(ctx, &confirming{ctx: ctx, access: a, w: w})
		if err == nil {
			err = a.Confirm(ctx)
		}
		return because(ctx, err)
	}
}

// confirming writes a stream while its access lasts.
type confirming struct {
	ctx    context.Context //nolint:containedctx // of the stream
	access *Access
	w      io.Writer
	n      int // bytes since the access was confirmed
}

func (s *confirming) Write(p []byte) (int, error) {
	if s.n += len(p); s.n >= confirmBytes {
		s.n = 0
		if err := s.access.Confirm(s.ctx); err != nil {
			return 0, err
		}
	}
	if s.ctx.Err() != nil {
		return 0, context.Cause(s.ctx)
	}
	return s.w.Write(p)
}

// arriving is an upload that is read while its access lasts, and whose end only who has it then reaches.
type arriving struct {
	ctx    context.Context //nolint:containedctx // of the call whose upload it is
	access *Access
	from   io.Reader
	answer http.Header
}

func (u *arriving) Read(p []byte) (int, error) {
	if err := u.confirm(false); err != nil {
		return 0, err
	}
	n, err := u.from.Read(p)
	if ended := u.confirm(errors.Is(err, io.EOF)); ended != nil {
		return 0, ended
	}
	return n, err
}

func (u *arriving) confirm(anew bool) error {
	err := u.access.confirm(u.ctx, anew)
	if err == nil && u.ctx.Err() != nil {
		err = context.Cause(u.ctx)
	}
	if err != nil {
		u.answer.Set("Connection", "close") // else the answer waits for the rest of the upload
	}
	return err
}

// renew resolves the organization and the credential once more, after the body has taken as long as its sender
// wanted, and judges the call by what they are now: kinds of keys, rule and scope. Errors: those of Run.
func (c *Call) renew(ctx context.Context) error {
	if c.credential == nil {
		return nil
	}
	t, err := c.credential.Resolve(ctx)
	if err != nil {
		return err
	}
	p, err := c.credential.Authenticate(ctx, t)
	if err != nil || t == c.Tenant && p == c.Principal {
		return err
	}
	if err := c.Operation.Admits(p, c.origin); err != nil {
		return err
	}
	if err := c.Operation.Rule.Check(p, t); err != nil {
		return err
	}
	c.Tenant, c.Principal = t, p
	return c.narrow()
}

// narrow binds the workspace to what the caller sees.
func (c *Call) narrow() error {
	var teams []string
	var err error
	if c.Operation.Teams {
		if teams, err = c.Teams(); err != nil {
			return err
		}
	}
	c.Scope, c.Workspace = c.Principal.Scope(c.Tenant, teams), nil
	if ws := c.Tenant.Workspace(); ws != nil { // nobody's organization has none
		c.Workspace = ws.Scoped(c.Scope)
	}
	return nil
}
