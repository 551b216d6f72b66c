package middleware

import (
	"context"
	"errors"
	"net/netip"

	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/sessions"
)

// credential is what a request was made with: an operation.Credential.
type credential struct {
	p       *Pipeline
	op      *operation.Row
	host    string
	remote  netip.Addr
	key     string           // API key, of an operation that is called with one
	session string           // token of the session of one that is called so
	holder  *sessions.Holder // of a job, in place of session
}

// Resolve returns the organization of the host, nobody's where the operation answers at any.
func (c *credential) Resolve(ctx context.Context) (*tenants.Tenant, error) {
	tenant, err := c.p.Tenants.Resolve(ctx, c.host)
	// Nobody's organization is counted and checked like one, or it would be told by that.
	if errors.Is(err, tenants.ErrUnknownTenant) && c.op.AnyHost {
		return c.p.Tenants.Anonymous(c.host), nil
	}
	return tenant, err
}

// Authenticate returns who presents the credential; nobody, of an open operation.
func (c *credential) Authenticate(ctx context.Context, t *tenants.Tenant) (*tenants.Principal, error) {
	switch {
	case c.key != "":
		return c.p.Keys.Authenticate(ctx, t, c.key, c.remote)
	case c.holder != nil:
		return c.p.Sessions.Rights(ctx, t, *c.holder)
	case c.op.Credentials&operation.Open != 0:
		return &tenants.Principal{}, nil
	}
	who, err := c.p.Sessions.Lookup(ctx, t, c.session)
	if err == nil && c.p.Needs != nil && !tenants.Incidental(ctx) {
		who.Needs = c.p.Needs(t, who.UserID)
	}
	return who, err
}

// Detach returns the credential without its request.
func (c *credential) Detach(ctx context.Context, t *tenants.Tenant) (operation.Credential, error) {
	job := *c
	if c.session != "" {
		holder, err := c.p.Sessions.Holder(ctx, t, c.session)
		if err != nil {
			return nil, err
		}
		job.session, job.holder = "", &holder
	}
	return &job, nil
}
