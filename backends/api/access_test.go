package api_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"

	"tenantry/backends/api"
	"tenantry/tenants"
)

// revocable is a credential of an organization that is there, until it is revoked.
type revocable struct {
	tenant  *tenants.Tenant
	who     *tenants.Principal
	revoked atomic.Bool
}

func (r *revocable) Resolve(context.Context) (*tenants.Tenant, error) { return r.tenant, nil }

func (r *revocable) Authenticate(context.Context, *tenants.Tenant) (*tenants.Principal, error) {
	if r.revoked.Load() {
		return nil, tenants.ErrDenied
	}
	return r.who, nil
}

func (r *revocable) Detach(context.Context, *tenants.Tenant) (api.Credential, error) { return r, nil }

// TestRun_CallsWithoutBodyEndWithTheirRights: a call that writes for long and has no body, a purge for one, is stopped
// once its credential is revoked, and refused.
func TestRun_CallsWithoutBodyEndWithTheirRights(t *testing.T) {
	t.Parallel()
	r := &revocable{tenant: &tenants.Tenant{}, who: &tenants.Principal{Kind: tenants.ServiceAccount, KeyKind: tenants.ServerFull}}
	op := &api.Operation{
		Name: "things.purge", Method: http.MethodDelete, Path: "/api/things", Credentials: api.Key, Kinds: api.ServerFull, Rule: api.AnyCaller(),
		Handler: func(ctx context.Context, _ *api.Call) (api.Result, error) {
			r.revoked.Store(true)
			<-ctx.Done() // as a store does that has much to delete
			return api.Result{}, ctx.Err()
		},
	}
	c := api.NewCall(op, func(string) string { return "" })
	c.Tenant, c.Principal = r.tenant, r.who
	_, err := api.Run(t.Context(), c, api.Input{Header: http.Header{}, Credential: r})
	if err == nil || api.ProblemOf(err).Code != http.StatusForbidden {
		t.Errorf("%v, want the denial", err)
	}
}
