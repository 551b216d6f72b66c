package gateway

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway/backup"
	"tenantry/reports"
	"tenantry/tenants"
)

// TestBackup_OfMovedOrganization: a backup has the documents of an organization that moves while it is made, and is not
// written if organizations move all the time.
func TestBackup_OfMovedOrganization(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Data = t.TempDir()
	cfg.Backends = map[string]config.Backend{
		"default": {Engine: config.EngineSQLite},
		"apart":   {Engine: config.EngineSQLite, Dir: filepath.Join(cfg.Data, "apart"), Isolation: config.IsolationFile},
	}
	s, err := OpenServices(t.Context(), cfg, Options{Holder: "a test", Init: true, Leases: store.Leases{
		Fresh: 100 * time.Millisecond, Settled: time.Second, Copying: 500 * time.Millisecond, Hold: 2 * time.Second,
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for times, wants := range []string{"default/org-1.db", "apart/org-1.db", "apart/org-1.db", ""} {
		// The copies of apart are made before those of default, so that the organization is in none of them at first.
		moves := 0
		src := s.backupSource(false)
		src.Archive = func(ctx context.Context, backend string, o store.Archiving) ([]store.Archived, error) {
			if backend == "default" && moves < times {
				moves++
				move(t, s, "acme")
			}
			return s.archive(ctx, backend, o)
		}
		if times == 0 {
			acme, err := s.directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Acme"})
			if err == nil {
				err = s.reports.Revocations.In(acme.Workspace()).Insert(t.Context(), &reports.Revocation{PID: "a"})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		depot, err := backup.Folder(t.TempDir(), true)
		if err != nil {
			t.Fatal(err)
		}
		m, err := depot.Write(t.Context(), src, backup.Options{})
		switch {
		case wants == "":
			if err == nil || !strings.Contains(err.Error(), "acme") {
				t.Errorf("moved %d times: got %v, want an error that names acme", times, err)
			}
		case err != nil:
			t.Errorf("moved %d times: %v", times, err)
		default:
			has := slices.ContainsFunc(m.Databases, func(d backup.Database) bool {
				return d.Backend+"/"+d.File == wants && d.Documents > 0
			})
			if !has || len(m.Damaged) > 0 {
				t.Errorf("moved %d times: got %+v, want documents in %s", times, m, wants)
			}
		}
	}
}

// move moves an organization to the other backend.
func move(t *testing.T, s *Services, slug string) {
	t.Helper()
	o, err := s.directory.Stored(t.Context(), slug)
	if err == nil {
		to := map[string]string{"default": "apart", "apart": "default"}[o.Home()]
		if _, err = s.directory.Move(t.Context(), slug, to, nil); err == nil {
			err = s.directory.FinishMove(t.Context(), slug)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
