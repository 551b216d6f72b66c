package gateway

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/backends/store"
	"tenantry/gateway/backup"
	"tenantry/gateway/control"
	"tenantry/modules/files/contents"
	"tenantry/reports"
	"tenantry/tenants"
)

// newAcme creates the organization acme.
func newAcme(t *testing.T, s *Services) *tenants.Tenant {
	t.Helper()
	acme, err := s.directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	return acme
}

// TestRestoreOrganization_StricterMeanwhile: a report that is closed, or deleted, while the organization is restored
// stays so: the restoration does not switch to a copy in which it is open.
func TestRestoreOrganization_StricterMeanwhile(t *testing.T) {
	t.Parallel()
	no := false
	for name, change := range map[string]func(*reports.Report){
		"nothing":      func(*reports.Report) {},
		"not shared":   func(r *reports.Report) { r.Shareable = &no },
		"needs a link": func(r *reports.Report) { r.Secure = true },
		"deleted":      func(r *reports.Report) { r.Deleted = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, then := openPair(t), openPair(t)
			now, was := newAcme(t, s), newAcme(t, then)
			id := s.store.NewID()
			for services, of := range map[*Services]*tenants.Tenant{s: now, then: was} {
				open := &reports.Report{Meta: store.Meta{ID: id}, PID: "open", Title: "Open"}
				if err := services.reports.Reports.In(of.Workspace()).Insert(t.Context(), open); err != nil {
					t.Fatal(err)
				}
			}
			r := &orgRestore{s: s, then: then, was: was, found: &control.OrganizationRestored{Access: control.AccessNow}}
			a, err := r.compareAccess(t.Context(), now)
			if err == nil {
				_, err = s.reports.Reports.In(now.Workspace()).Update(t.Context(), id, func(p *reports.Report) error { change(p); return nil })
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := a.stillStrict(t.Context(), r, now); errors.Is(err, errStricter) != (name != "nothing") {
				t.Errorf("got %v", err)
			}
			r.found.Access = control.AccessThen // which opens it again
			if err := a.stillStrict(t.Context(), r, now); err != nil {
				t.Errorf("with the access of then: got %v", err)
			}
		})
	}
}

// TestRestoreOrganization_KeepsBytes: bytes that no record uses stay while an organization is restored, because records
// that come back may use them.
func TestRestoreOrganization_KeepsBytes(t *testing.T) {
	t.Parallel()
	s := openPair(t)
	acme := newAcme(t, s)
	arrived, err := s.contents.Receive(t.Context(), acme, strings.NewReader("bytes"))
	if err != nil {
		t.Fatal(err)
	}
	defer arrived.Close()
	hash := ""
	if err := s.contents.Store(t.Context(), acme, []*contents.Arrival{arrived}, func(ctx context.Context, b *store.Batch, of []*contents.Blob) error {
		hash = of[0].Hash
		return b.Commit(ctx)
	}); err != nil {
		t.Fatal(err)
	}
	unused := func(context.Context, *tenants.Tenant, []string) (map[string]bool, error) { return nil, nil }
	acme.Org.Move = &tenants.Move{Restores: true}
	if err := s.contents.Drop(t.Context(), acme, []string{hash}, unused); err != nil {
		t.Fatal(err)
	}
	if _, err := s.contents.Find(t.Context(), acme, hash); err != nil {
		t.Errorf("while it is restored: got %v, want the bytes", err)
	}
	acme.Org.Move = nil
	if err := s.contents.Drop(t.Context(), acme, []string{hash}, unused); err != nil {
		t.Fatal(err)
	}
	if _, err := s.contents.Find(t.Context(), acme, hash); !errors.Is(err, contents.ErrNone) {
		t.Errorf("afterwards: got %v, want ErrNone", err)
	}
}

// TestRestoreOrganization_ErasedMeanwhile: an organization that is erased while the backup is being opened stays erased.
func TestRestoreOrganization_ErasedMeanwhile(t *testing.T) {
	t.Parallel()
	s := openPair(t)
	newAcme(t, s)
	place := filepath.Join(t.TempDir(), "backups")
	if _, err := s.backUp(t.Context(), place, backup.Options{}, true); err != nil {
		t.Fatal(err)
	}
	in := control.OrganizationRestore{Slug: "acme", From: place, Yes: true}
	erased := false
	_, err := s.restoreOrganization(t.Context(), in, func(control.Progress) {
		if !erased {
			erased = true
			if _, finished, err := s.directory.Remove(t.Context(), "acme"); err != nil || !finished {
				t.Errorf("erasing: %t %v", finished, err)
			}
		}
	})
	if found := new(control.Error); !errors.As(err, &found) || found.Code != control.CodeConflict || !strings.Contains(err.Error(), "acme") {
		t.Errorf("got %v, want a conflict that names it", err)
	}
	if gone, err := s.isErased(t.Context(), "acme"); err != nil || !gone {
		t.Errorf("got %t %v, want it erased still", gone, err)
	}
}

// TestRestoreOrganization_Unfinished: doctor names what an interrupted restoration left, and how it is removed, and so
// does a repeated one under another slug.
func TestRestoreOrganization_Unfinished(t *testing.T) {
	t.Parallel()
	s := openPair(t)
	newAcme(t, s)
	if _, err := s.directory.Create(t.Context(), tenants.NewOrganization{Slug: "then", Name: "Then", CopyOf: "acme"}); err != nil {
		t.Fatal(err)
	}
	if err := s.slugTaken(t.Context(), "then"); !strings.Contains(err.Error(), "org delete then --yes --now") {
		t.Errorf("got %v, want how to remove the copy", err)
	}
	if err := s.slugTaken(t.Context(), "acme"); strings.Contains(err.Error(), "org delete") {
		t.Errorf("a complete organization: got %v", err)
	}
	then, err := s.directory.Stored(t.Context(), "then")
	if err != nil {
		t.Fatal(err)
	}
	revived := &tenants.Organization{Slug: "beta", State: tenants.Removed, Move: &tenants.Move{Restores: true}}
	for says, o := range map[string]*tenants.Organization{"unfinished copy of acme": then, "being restored": revived} {
		e := new(examination)
		s.examineOrganization(e, map[string]int{}, o)
		if len(e.found) != 1 || !strings.Contains(e.found[0].Says, says) ||
			!strings.Contains(e.found[0].Advice, "org delete "+o.Slug+" --yes --now") {
			t.Errorf("got %+v, want one finding that says %q", e.found, says)
		}
	}
}
