package tenants_test

import (
	"strings"
	"testing"

	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// TestExamineOpensTheDataKeys checks that examining an organization finds data keys that the keyring does not open.
func TestExamineOpensTheDataKeys(t *testing.T) {
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

// TestExamineReadsThePlacement checks that Examine does not use a placement that was read before a move.
func TestExamineReadsThePlacement(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, two := f.start(t, "first", "second"), f.start(t, "first", "second")
	if _, err := one.directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Acme"}); err != nil {
		t.Fatal(err)
	}
	mine := two.open(t, "acme")
	p := &piece{Name: "before"}
	if err := mine.Insert(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	listed, err := two.directory.List(t.Context(), "", 10)
	if err != nil || len(listed) != 1 {
		t.Fatalf("got %v, %v, want no error and len(listed) = 1", listed, err)
	}
	if _, err := one.directory.Move(t.Context(), "acme", "second", nil); err != nil {
		t.Fatal(err)
	}
	if n, err := two.directory.Examine(t.Context(), &listed[0]); err != nil || n != 1 {
		t.Errorf("%d documents, %v", n, err)
	}
	if _, err := mine.Update(t.Context(), p.ID, func(p *piece) error { p.Name = "after"; return nil }); err != nil {
		t.Fatal(err)
	}
	if got, err := one.open(t, "acme").Get(t.Context(), p.ID); err != nil || got.Name != "after" {
		t.Errorf("an acknowledged change is lost: %+v, %v", got, err)
	}
}
