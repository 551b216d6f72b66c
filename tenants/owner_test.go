package tenants_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// secondInstallation returns a second installation that uses the backend of the first, with control data of its own.
func secondInstallation(t *testing.T, w *tenantstest.World) (*tenantstest.World, *tenants.Directory, *store.Store, *bytes.Buffer) {
	t.Helper()
	other := tenantstest.New(t, tenantstest.Options{Local: true, Embedded: true}) // numbers begin at 1 here too
	control := other.Kinds.Organizations.Specs()
	s := store.New(store.Options{
		Backends:       map[string]driver.Engine{"own": other.Engine, "shared": w.Engine},
		ControlBackend: "own", Control: control, Tenant: []*store.Spec{other.Kinds.Things.Spec()},
	})
	log := &bytes.Buffer{}
	d, err := tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{
		Store: s, Kinds: other.Kinds.Organizations, Keyring: other.Keyring, NewBackend: "shared", Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return other, d, s, log
}

func keep(t *testing.T, w *tenantstest.World, tenant *tenants.Tenant, name string) {
	t.Helper()
	if err := w.Kinds.Things.In(tenant.Workspace()).Insert(t.Context(), &tenantstest.Thing{Name: name}); err != nil {
		t.Fatal(err)
	}
}

func things(t *testing.T, w *tenantstest.World, tenant *tenants.Tenant) int64 {
	t.Helper()
	n, err := w.Kinds.Things.In(tenant.Workspace()).Count(t.Context(), store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNewOrganizationAdoptsNothing creates an organization whose next number has a workspace of another installation.
func TestNewOrganizationAdoptsNothing(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Local: true})
	gamma := w.Tenant(t, "gamma")
	keep(t, w, gamma, "hers")
	other, d, _, log := secondInstallation(t, w)
	delta, err := d.Create(t.Context(), tenants.NewOrganization{Slug: "delta", Name: "Delta"})
	if err != nil {
		t.Fatal(err)
	}
	if n := things(t, other, delta); n != 0 || delta.Org.OrgID == gamma.Org.OrgID {
		t.Errorf("delta has number %d and %d records, want none and another number than gamma's %d", delta.Org.OrgID, n,
			gamma.Org.OrgID)
	}
	for _, want := range []string{"org-1 ", "holds documents of " + w.Directory.Installation() + "/" + gamma.Org.ID, "delta"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q: %s", want, log)
		}
	}
	if n := things(t, w, w.Fresh(t, "gamma")); n != 1 {
		t.Errorf("gamma has %d records, want 1", n)
	}
}

// TestMoveAndRemoveSpareForeignData checks that a move onto the workspace of another installation is refused before it
// begins, and that erasing leaves that workspace.
func TestMoveAndRemoveSpareForeignData(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Local: true})
	gamma := w.Tenant(t, "gamma")
	keep(t, w, gamma, "hers")
	other, d, s, _ := secondInstallation(t, w)
	acme, err := d.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Acme", Backend: "own"})
	if err != nil {
		t.Fatal(err)
	}
	keep(t, other, acme, "his")
	for range 2 { // the second call must not find a move to resume
		if _, err := d.Move(t.Context(), "acme", "shared", nil); !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), "shared") {
			t.Fatalf("a move onto another's workspace: %v", err)
		}
	}
	if now, err := d.BySlug(t.Context(), "acme"); err != nil || now.Org.Move != nil || things(t, other, now) != 1 {
		t.Errorf("after a move that was refused: %+v, %v", now, err)
	}
	if err := s.RemoveFrom(t.Context(), 1, d.Installation()+"/"+acme.Org.ID, "shared"); !errors.Is(err, store.ErrForeign) {
		t.Errorf("removing an old copy that is another's: %v", err)
	}
	if n := things(t, w, w.Fresh(t, "gamma")); n != 1 {
		t.Errorf("gamma has %d records left, want 1", n)
	}
}

// TestUnmarkedWorkspacesAreClaimedOnce covers workspaces of versions that marked no owner: the first installation that
// opens one marks it for good.
func TestUnmarkedWorkspacesAreClaimedOnce(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Local: true})
	old, err := w.Store.At(t.Context(), 1, store.Placement{}) // without an owner
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Kinds.Things.In(old).Insert(t.Context(), &tenantstest.Thing{Name: "old"}); err != nil {
		t.Fatal(err)
	}
	control, err := w.Store.Control(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	acme := &tenants.Organization{OrgID: 1, Slug: "acme", Name: "Acme", State: tenants.Active, AccessRev: 1}
	if err := w.Kinds.Organizations.Organizations.In(control).Insert(t.Context(), acme); err != nil {
		t.Fatal(err)
	}
	if n := things(t, w, w.Fresh(t, "acme")); n != 1 {
		t.Errorf("acme has %d", n)
	}
	there, err := w.Engine.Resident(t.Context(), "org-1")
	if err != nil || there.Owner != w.Directory.Installation()+"/"+acme.ID {
		t.Errorf("%+v, %v", there, err)
	}
	if _, err := w.Store.At(t.Context(), 1, store.Placement{Owner: "another"}); !errors.Is(err, store.ErrForeign) {
		t.Errorf("opened for another: %v", err)
	}
}
