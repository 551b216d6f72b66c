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

// Credential is what a call was made with. It resolves the organization and the caller when the call is admitted, and
// again while work of the call is under way. Safe for concurrent use.
type Credential interface {
	// Resolve returns the current state of the organization. Errors: tenants.ErrUnknownTenant, store.ErrUnavailable.
	Resolve(ctx context.Context) (*tenants.Tenant, error)
	// Authenticate returns the principal that presents the credential to the organization, with its current rights.
	// Errors: tenants.ErrDenied, tenants.ErrUnavailable, a *Problem.
	Authenticate(ctx context.Context, t *tenants.Tenant) (*tenants.Principal, error)
	// Detach returns the credential for a job that continues after the request. It stays valid after a person's
	// session has expired, which the job does not prolong, but not after the session was ended. Errors: as
	// Authenticate.
	Detach(ctx context.Context, t *tenants.Tenant) (Credential, error)
}

// ErrEnded is wrapped by the errors of Access.Confirm, together with the reason.
var ErrEnded = errors.New("the rights of the caller have ended")

const (
	// confirmEvery is how long a confirmed access is not resolved again, unless the organization or its access
	// revision has changed.
	confirmEvery = 500 * time.Millisecond
	// outageGrace is how long work continues while its access cannot be confirmed, because an outage is no refusal.
	outageGrace = 5 * time.Second
	// confirmBytes is how much of a stream is written between two confirmations.
	confirmBytes = 32 << 10
)

// Access is what a call was admitted with. Uploads, streams and jobs, which outlive the admission check, confirm it
// again. Safe for concurrent use. A nil Access, as commands of the operator have, never ends.
type Access struct {
	credential Credential
	op         *Row
	origin     string
	requested  []string // teams
	principal  *tenants.Principal
	scope      store.Scope
	recheck    func(context.Context, *tenants.Tenant) error
	org        string // identity of the organization; empty for unknown hosts

	mu          sync.Mutex
	tenant      *tenants.Tenant // as it was when the access was confirmed last
	confirmedAt time.Time       // when that was; zero: not yet
}

// access returns what the call was admitted with; nil if none of it can end.
func (c *Call) access() *Access {
	if c.credential == nil {
		return nil
	}
	a := &Access{
		credential: c.credential, op: c.Operation, origin: c.origin, principal: c.Principal, scope: c.Scope,
		recheck: c.Recheck, org: c.Tenant.Org.ID, tenant: c.Tenant,
	}
	if c.Operation.Teams {
		a.requested, _ = c.Teams() // admission has already reported its error
	}
	return a
}

// admittedAt is access for what goes on with an admission of that time.
func (c *Call) admittedAt(at time.Time) *Access {
	a := c.access()
	if a != nil {
		a.confirmedAt = at
	}
	return a
}

// Lasting returns the access of the call for a job that continues after the call. The job must call Confirm before
// each write. Errors: those of Credential.Detach.
func (c *Call) Lasting(ctx context.Context) (*Access, error) {
	a := c.access()
	if a == nil {
		return nil, nil //nolint:nilnil // see Access
	}
	var err error
	a.credential, err = c.credential.Detach(ctx, c.Tenant)
	return a, err
}

// Confirm returns nil while the call would be admitted as it was: the organization is active, the credential is valid,
// and the caller still holds every right and sees every team of the admission. It is cheap if the last confirmation is
// less than confirmEvery old and neither the organization nor its access revision has changed. An error wraps ErrEnded
// if the access has ended; any other error means that the access could not be confirmed for outageGrace.
func (a *Access) Confirm(ctx context.Context) error { return a.confirm(ctx, false) }

// confirm is Confirm; anew ignores the last confirmation.
func (a *Access) confirm(ctx context.Context, anew bool) error {
	if a == nil {
		return nil
	}
	now := time.Now()
	tenant, err := a.credential.Resolve(ctx)
	a.mu.Lock()
	known, confirmedAt := a.tenant, a.confirmedAt
	a.mu.Unlock()
	if err == nil && !anew && tenant == known && now.Sub(confirmedAt) < confirmEvery {
		return nil
	}
	if err == nil {
		err = a.readmit(ctx, tenant)
	}
	switch {
	case err == nil:
		a.mu.Lock()
		defer a.mu.Unlock()
		if now.After(a.confirmedAt) {
			a.tenant, a.confirmedAt = tenant, now
		}
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case ProblemOf(err).Code < http.StatusInternalServerError:
		return fmt.Errorf("%w: %w", ErrEnded, err)
	case now.Sub(confirmedAt) < outageGrace:
		return nil
	}
	return err
}

// readmit checks the call against the current state of the organization as its admission did.
func (a *Access) readmit(ctx context.Context, t *tenants.Tenant) error {
	if a.recheck != nil {
		if err := a.recheck(ctx, t); err != nil {
			return err
		}
	}
	if t.Org.ID != a.org {
		return fmt.Errorf("the host no longer leads to the organization: %w", tenants.ErrUnknownTenant)
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

// Watch returns a context that is canceled soon after the access has ended, with the reason as its cause. If interrupt
// is not nil, it is called then, and again every confirmEvery until stop is called. The caller must call stop;
// interrupt is not called after stop has returned.
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

// orEnded returns the cause of ctx, a context of Watch, if err is due to the end of the access; otherwise err.
func orEnded(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && ctx.Err() != nil && errors.Is(cause, ErrEnded) {
		return cause
	}
	return err
}

// stream returns a stream that ends with an error soon after the access has ended.
func (a *Access) stream(rows Stream) Stream {
	if a == nil {
		return rows
	}
	return func(ctx context.Context, w io.Writer) error {
		ctx, stop := a.Watch(ctx, nil)
		defer stop()
		err := rows(ctx, &confirmingWriter{ctx: ctx, access: a, w: w})
		if err == nil {
			err = a.Confirm(ctx)
		}
		return orEnded(ctx, err)
	}
}

// confirmingWriter writes a stream while the access lasts.
type confirmingWriter struct {
	ctx    context.Context //nolint:containedctx // of the stream
	access *Access
	w      io.Writer
	n      int // bytes since the access was confirmed
}

func (s *confirmingWriter) Write(p []byte) (int, error) {
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

// confirmingReader reads an upload while the access lasts. It confirms the access anew before it reports the end of
// the upload.
type confirmingReader struct {
	ctx    context.Context //nolint:containedctx // of the call whose upload it is
	access *Access
	from   io.Reader
	answer http.Header
}

func (u *confirmingReader) Read(p []byte) (int, error) {
	if err := u.confirm(false); err != nil {
		return 0, err
	}
	n, err := u.from.Read(p)
	if ended := u.confirm(errors.Is(err, io.EOF)); ended != nil {
		return 0, ended
	}
	return n, err
}

func (u *confirmingReader) confirm(anew bool) error {
	err := u.access.confirm(u.ctx, anew)
	if err == nil && u.ctx.Err() != nil {
		err = context.Cause(u.ctx)
	}
	if err != nil {
		u.answer.Set("Connection", "close") // otherwise the answer waits for the rest of the upload
	}
	return err
}

// renew resolves the organization and the credential once more, because reading the body takes as long as its sender
// likes, and checks the call against their current state: key kinds, rule and scope. Errors: those of Run.
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

// narrow limits the workspace to what the caller may see.
func (c *Call) narrow() error {
	var teams []string
	var err error
	if c.Operation.Teams {
		if teams, err = c.Teams(); err != nil {
			return err
		}
	}
	c.Scope, c.Workspace = c.Principal.Scope(c.Tenant, teams), nil
	if ws := c.Tenant.Workspace(); ws != nil { // unknown hosts have no workspace
		c.Workspace = ws.Scoped(c.Scope)
	}
	return nil
}
