package keys_test

import (
	"slices"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/keys"
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

// TestRightsBefore checks that the earliest recorded rights are returned, and whether there are more.
func TestRightsBefore(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	stored := w.Kinds.Keys.Rights.In(tenant.People())
	for uid, since := range map[int64]int64{1: 3000, 2: 1000, 3: 2000, 4: 9000} {
		if err := stored.Insert(t.Context(), &keys.Rights{UID: uid, Since: since}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		most int
		want []int64
		more bool
	}{{2, []int64{2, 3}, true}, {3, []int64{2, 3, 1}, false}, {9, []int64{2, 3, 1}, false}} {
		noted, more, err := w.Keys.RightsBefore(t.Context(), tenant, time.UnixMilli(9000), c.most)
		var uids []int64
		for _, r := range noted {
			uids = append(uids, r.UID)
		}
		if err != nil || !slices.Equal(uids, c.want) || more != c.more {
			t.Errorf("RightsBefore(9 s, %d) = people %v, more: %t, %v; want people %v, more: %t", c.most, uids, more, err, c.want, c.more)
		}
	}
}
