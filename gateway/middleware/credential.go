package middleware

import (
	"context"
	"errors"
	"net/netip"

	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/sessions"
)

// credential is the operation.Credential of a request.
type credential struct {
	p       *Pipeline
	op      *operation.Row
	host    string
	remote  netip.Addr
	key     string           // API key; empty: none
	session string           // session token; empty: none
	holder  *sessions.Holder // in place of session after Detach; nil: none
}

// Resolve returns the organization of the host. If there is none and the operation answers at any host, it returns the
// anonymous tenant.
func (c *credential) Resolve(ctx context.Context) (*tenants.Tenant, error) {
	tenant, err := c.p.Tenants.Resolve(ctx, c.host)
	// Requests to unknown hosts are counted and checked too, because the difference would reveal which hosts exist.
	if errors.Is(err, tenants.ErrUnknownTenant) && c.op.AnyHost {
		return c.p.Tenants.Anonymous(c.host), nil
	}
	return tenant, err
}

// Authenticate returns the principal of the credential; for an open operation, an anonymous one.
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

// Detach returns a credential that a job can use after the request has ended. It does not hold the session token.
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
