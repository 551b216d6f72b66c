package tenants_test

import (
	"strings"
	"testing"

	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// TestErasureNeedsTheBackend checks that nothing is erased if the configuration lacks the backend of the documents, so
// that the organization can still be undeleted.
func TestErasureNeedsTheBackend(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "acme")
	if err := w.Directory.Delete(t.Context(), "acme", 0); err != nil {
		t.Fatal(err)
	}
	orgs := w.Kinds.Organizations.Organizations
	control, err := w.Store.Control(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := w.Directory.List(t.Context(), "", 0)
	if err != nil || len(found) != 1 {
		t.Fatalf("got %v, %v, want no error and len(found) = 1", len(found), err)
	}
	if _, err := orgs.In(control).Update(t.Context(), found[0].ID, func(o *tenants.Organization) error {
		o.Place = "elsewhere"
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	const want = "on backend elsewhere, which is not configured"
	if _, _, err := w.Directory.Remove(t.Context(), "acme"); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Remove = %v, want an error that contains %q", err, want)
	}
	if err := w.Directory.Undelete(t.Context(), "acme"); err != nil {
		t.Errorf("Undelete = %v, want no error", err)
	}
}
