package tenants_test

import (
	"regexp"
	"sync"
	"testing"

	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// TestReplicasAgreeOnOneInstallation checks that replicas which start at the same time agree on one identity, which
// never changes.
func TestReplicasAgreeOnOneInstallation(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	control, err := w.Store.Control(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	records := w.Kinds.Organizations.Installations.In(control)
	identity, err := records.Get(t.Context(), "000000000000000000000002")
	if err == nil {
		err = records.Delete(t.Context(), identity) // as an older version left it
	}
	if err != nil {
		t.Fatal(err)
	}
	identities := make([]string, 8)
	var starting sync.WaitGroup
	for i := range identities {
		starting.Go(func() {
			d, err := tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{Store: w.Store, Kinds: w.Kinds.Organizations, Keyring: w.Keyring})
			if err != nil {
				t.Error(err)
				return
			}
			identities[i] = d.Installation()
		})
	}
	starting.Wait()
	for _, other := range identities[1:] {
		if other != identities[0] {
			t.Fatalf("replicas that started at once are of different installations: %q", identities)
		}
	}
	if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(identities[0]) {
		t.Errorf("the identity %q is not 128 bits", identities[0])
	}
	if _, err := w.Keyring.Rotate(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Directory.Rewrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.Second(t, tenantstest.Options{}); w.Directory.Installation() != identities[0] {
		t.Errorf("after a restart and a rotation of keys %s became %s", identities[0], w.Directory.Installation())
	}
	if n, err := records.Count(t.Context(), store.Filter{}); err != nil || n != 2 {
		t.Errorf("%d records, %v", n, err)
	}
	if other := tenantstest.New(t, tenantstest.Options{}).Directory.Installation(); other == identities[0] {
		t.Errorf("two installations have the identity %s", other)
	}
}
