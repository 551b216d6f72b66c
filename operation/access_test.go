package operation_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/operation"
	"tenantry/tenants"
)

// revocable is a credential of an organization that is there, until it is revoked.
type revocable struct {
	tenant  *tenants.Tenant
	who     *tenants.Principal
	revoked atomic.Bool
	moved   atomic.Pointer[tenants.Tenant] // whom the host leads to by now; nil: still there
}

func (r *revocable) Resolve(context.Context) (*tenants.Tenant, error) {
	if t := r.moved.Load(); t != nil {
		return t, nil
	}
	return r.tenant, nil
}

func (r *revocable) Authenticate(context.Context, *tenants.Tenant) (*tenants.Principal, error) {
	if r.revoked.Load() {
		return nil, tenants.ErrDenied
	}
	return r.who, nil
}

func (r *revocable) Detach(context.Context, *tenants.Tenant) (operation.Credential, error) {
	return r, nil
}

// TestRun_CallsWithoutBodyEndWithTheirRights: a call that writes for long and has no body, a purge for one, is stopped
// once its credential is revoked, and refused.
func TestRun_CallsWithoutBodyEndWithTheirRights(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ends func(*revocable)
		want error
	}{
		"revoked": {func(r *revocable) { r.revoked.Store(true) }, tenants.ErrDenied},
		"the host leads to somebody else": {func(r *revocable) {
			r.moved.Store(&tenants.Tenant{Org: tenants.Organization{Meta: store.Meta{ID: "another"}}})
		}, tenants.ErrUnknownTenant},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &revocable{tenant: &tenants.Tenant{}, who: &tenants.Principal{Kind: tenants.ServiceAccount, KeyKind: tenants.ServerFull}}
			op := &operation.Row{
				Name: "things.purge", Method: http.MethodDelete, Path: "/api/things",
				Policy: operation.Policy{Credentials: operation.Key, Kinds: operation.ServerFull, Rule: operation.AnyCaller()},
				Handler: func(ctx context.Context, _ *operation.Call) (operation.Result, error) {
					tt.ends(r)
					select {
					case <-ctx.Done(): // as a store does that has much to delete
						return operation.Result{}, ctx.Err()
					case <-time.After(30 * time.Second):
						return operation.Result{}, nil
					}
				},
			}
			c := operation.NewCall(op, func(string) string { return "" })
			c.Tenant, c.Principal = r.tenant, r.who
			_, err := operation.Run(t.Context(), c, operation.Input{Header: http.Header{}, Credential: r})
			if !errors.Is(err, operation.ErrEnded) || !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// TestRun_AnUploadEndsWithItsRights: who has lost the credential by the end of the upload does not reach it.
func TestRun_AnUploadEndsWithItsRights(t *testing.T) {
	t.Parallel()
	r := &revocable{tenant: &tenants.Tenant{}, who: &tenants.Principal{Kind: tenants.ServiceAccount, KeyKind: tenants.ServerFull}}
	row := goodRow()
	takesFile(&row)
	row.UploadLimit = 100
	row.Handler = func(_ context.Context, c *operation.Call) (operation.Result, error) {
		raw, err := io.ReadAll(c.Upload)
		if err == nil {
			t.Errorf("the upload was read to its end: %s", raw)
		}
		return operation.Result{}, err
	}
	c := operation.NewCall(&row, func(string) string { return "" })
	c.Tenant, c.Principal = r.tenant, r.who
	last := readerFunc(func(p []byte) (int, error) {
		r.revoked.Store(true)
		return copy(p, "the rest"), io.EOF
	})
	_, err := operation.Run(t.Context(), c, operation.Input{Header: http.Header{}, Credential: r, Upload: func() (io.Reader, error) { return last, nil }})
	if err == nil || operation.ProblemOf(err).Code != http.StatusForbidden {
		t.Errorf("%v, want the denial", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
