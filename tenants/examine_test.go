package tenants_test

import (
	"strings"
	"testing"

	"tenantry/tenants/tenantstest"
)

// The examination of an organization tries the keyring on its data keys.
func TestExamineProvesTheDataKeys(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	acme, other := w.Tenant(t, "acme"), w.Tenant(t, "other")
	examine := func() error {
		org, err := w.Directory.BySlug(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Directory.Examine(t.Context(), &org.Org)
		return err
	}
	if _, err := w.Directory.DataKeys(t.Context(), acme, "fields"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Directory.DataKeys(t.Context(), other, "fields"); err != nil {
		t.Fatal(err)
	}
	if err := examine(); err != nil {
		t.Errorf("good keys: %v", err)
	}
	if err := w.Directory.SpoilDataKeys(t.Context(), acme.Org.OrgID, other.Org.OrgID); err != nil {
		t.Fatal(err)
	}
	if err := examine(); err == nil || !strings.Contains(err.Error(), "its data keys for fields") {
		t.Errorf("keys that the keyring does not open: %v", err)
	}
}
