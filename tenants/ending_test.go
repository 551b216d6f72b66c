package tenants_test

import (
	"errors"
	"testing"
	"time"

	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// TestStatesOfAnEndingOrganization checks the transitions between states, and when an organization is due to be erased.
func TestStatesOfAnEndingOrganization(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	d := w.Directory
	w.Tenant(t, "acme")
	const keep = time.Hour
	org := func() *tenants.Organization {
		found, err := d.List(t.Context(), "", 0)
		if err != nil || len(found) != 1 {
			t.Fatalf("%d organizations: %v", len(found), err)
		}
		return &found[0]
	}
	due := func() error {
		_, _, err := d.RemoveDue(t.Context(), "acme")
		return err
	}
	removed := func() error {
		_, _, err := d.Remove(t.Context(), "acme")
		return err
	}
	for _, c := range []struct {
		what  string
		do    func() error
		err   error
		state tenants.State
		due   bool // after an hour
	}{
		{"undelete", func() error { return d.Undelete(t.Context(), "acme") }, tenants.ErrNotDeleted, tenants.Active, false},
		{"delete", func() error { return d.Delete(t.Context(), "acme", keep) }, nil, tenants.Deleted, true},
		{"suspend", func() error { return d.Suspend(t.Context(), "acme") }, tenants.ErrDeleted, tenants.Deleted, true},
		{"resume", func() error { return d.Resume(t.Context(), "acme") }, tenants.ErrDeleted, tenants.Deleted, true},
		{"delete what is deleted", func() error { return d.Delete(t.Context(), "acme", 0) }, nil, tenants.Deleted, true},
		{"undelete", func() error { return d.Undelete(t.Context(), "acme") }, nil, tenants.Active, false},
		{"remove what is active", due, tenants.ErrNotDeleted, tenants.Active, false},
		{"delete again", func() error { return d.Delete(t.Context(), "acme", keep) }, nil, tenants.Deleted, true},
		{"remove what is not due", due, tenants.ErrNotDeleted, tenants.Deleted, true},
		{"undelete again", func() error { return d.Undelete(t.Context(), "acme") }, nil, tenants.Active, false},
		{"delete without a due time", func() error { return d.Delete(t.Context(), "acme", 0) }, nil, tenants.Deleted, false},
		{"remove", removed, nil, tenants.Removed, false},
		{"undelete", func() error { return d.Undelete(t.Context(), "acme") }, tenants.ErrUnknownTenant, tenants.Removed, false},
		{"delete", func() error { return d.Delete(t.Context(), "acme", keep) }, tenants.ErrUnknownTenant, tenants.Removed, false},
		{"suspend", func() error { return d.Suspend(t.Context(), "acme") }, tenants.ErrUnknownTenant, tenants.Removed, false},
		{"remove again", removed, nil, tenants.Removed, false},
		{"another", func() error { return d.Delete(t.Context(), "nobody", keep) }, tenants.ErrUnknownTenant, tenants.Removed, false},
	} {
		if err := c.do(); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.what, err, c.err)
		}
		o := org()
		if now, later := o.IsDue(w.Clock.Now().Add(keep-time.Second)), o.IsDue(w.Clock.Now().Add(keep+time.Second)); o.State != c.state || now || later != c.due {
			t.Errorf("%s: %s, due %t, after an hour %t; want %s, due %t", c.what, o.State, now, later, c.state, c.due)
		}
	}
}
