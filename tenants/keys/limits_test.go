package keys_test

import (
	"errors"
	"testing"

	"tenantry/backends/store"
	"tenantry/internal/rate"
	"tenantry/tenants/keys"
	"tenantry/tenants/tenantstest"
)

// TestLimitsOfAKey checks that a key's limits are read from the store, the index and the cache, and that a change of
// them takes effect in every process.
func TestLimitsOfAKey(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	given := rate.Pair{Rate: rate.PerSecond(7), Quota: rate.Unlimited()}
	made := issue(t, w, tenant, keys.NewKey{Limits: given})
	want := func(what string, s *keys.Service, want rate.Pair) {
		t.Helper()
		p, err := s.Authenticate(t.Context(), w.Fresh(t, "acme"), made.Token.Reveal(), somewhere)
		if err != nil || p.Limits != want {
			t.Errorf("%s: %+v, %v; want limits %v", what, p, err, want)
		}
	}
	first := w.Keys
	want("from the store", first, given)
	want("from memory", first, given)
	w.Second(t, tenantstest.Options{})
	want("from the index", w.Keys, given)

	changed := rate.Pair{Rate: rate.PerSecond(2)}
	k, err := w.Keys.SetLimits(t.Context(), tenant, made.Key.ID, func(p, visitors *rate.Pair) { *p, *visitors = changed, changed })
	if err != nil || k.Limits != changed {
		t.Fatalf("got %+v, %v, want no error and k.Limits = %v", k, err, changed)
	}
	want("changed", w.Keys, changed)
	want("changed by another process", first, changed)

	next, err := w.Keys.Rotate(t.Context(), tenant, made.Key.ID, 0, nil)
	if err != nil || next.Key.Limits != changed {
		t.Errorf("after a rotation: %+v, %v", next, err)
	}
	if _, err := w.Keys.SetLimits(t.Context(), tenant, "000000000000000000000000", func(_, _ *rate.Pair) {}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a key that is not there: %v", err)
	}
}
