package keys_test

import (
	"testing"

	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// TestLastUsesAreAllStored checks that a round stores all uses recorded since the one before.
func TestLastUsesAreAllStored(t *testing.T) {
	t.Parallel()
	const many = 2_000 // more than were stored in a round once, and no more than the slowest store of the tests takes
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	for uid := range int64(many) {
		w.Keys.NeedsOf(tenant, uid+1).Note(tenants.Contacts)
	}
	w.Keys.FlushUses(t.Context())
	if n, err := w.Kinds.Keys.Rights.In(tenant.People()).Count(t.Context(), store.Filter{}); n != many || err != nil {
		t.Errorf("what %d people needed is stored of %d: %v", many, n, err)
	}
}
