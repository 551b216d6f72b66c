package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway/backup"
	"tenantry/modules/imports/bundle"
	"tenantry/reports"
	"tenantry/tenants"
)

// openPair opens an installation with two backends. Moves take little time.
func openPair(t *testing.T) *Services {
	t.Helper()
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
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestBackup_OfMovedOrganization: a backup has the documents of an organization that moves while it is made, and is not
// written if organizations move all the time.
func TestBackup_OfMovedOrganization(t *testing.T) {
	t.Parallel()
	s := openPair(t)
	if err := s.reports.Revocations.In(newAcme(t, s).Workspace()).Insert(t.Context(), &reports.Revocation{PID: "a"}); err != nil {
		t.Fatal(err)
	}
	for times, wants := range []string{"default/org-1.db", "apart/org-1.db", "apart/org-1.db", ""} {
		// The copies of apart are made before those of default, so that the organization is in none of them at first.
		moves := 0
		src := s.backupSource(false)
		tries := uint64(0)
		src.Cut = func() uint64 { tries++; return tries }
		src.Archive = func(ctx context.Context, backend string, o store.Archiving) ([]store.Archived, error) {
			if backend == "default" && moves < times {
				moves++
				move(t, s, "acme")
			}
			return s.archive(ctx, backend, o)
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
			if !has || len(m.Damaged) > 0 || m.Cut != tries {
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

// TestImport_WhileRestored: an import during which the organization is restored does not end well, because what it stored
// before is gone; one during which it is moved does.
func TestImport_WhileRestored(t *testing.T) {
	t.Parallel()
	s := openPair(t)
	acme := newAcme(t, s)
	var err error
	for name, c := range map[string]struct {
		meanwhile func()
		want      error
	}{
		"moved": {meanwhile: func() { move(t, s, "acme") }},
		"restored": {want: bundle.ErrRestored, meanwhile: func() {
			if _, err := s.directory.Restore(t.Context(), "acme", tenants.Restoration{From: acme}); err != nil {
				t.Error(err)
			}
		}},
		"nothing": {meanwhile: func() {}},
	} {
		opened := 0
		src := bundle.Source{Open: func() (io.ReadCloser, error) {
			if opened++; opened == 2 { // its lines are checked
				c.meanwhile()
			}
			return io.NopCloser(strings.NewReader(`{"kind":"contact","external_id":"` + name + `"}` + "\n")), nil
		}}
		if acme, err = s.directory.BySlug(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.transfer.Import(t.Context(), acme, src, bundle.ImportOptions{}); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

// TestDoctor_LostPlace: a folder of backups that is lost for good is begun anew by the command that doctor names, and
// changes are logged into it again without a restart.
func TestDoctor_LostPlace(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Data, cfg.Backup = t.TempDir(), config.Backup{To: filepath.Join(t.TempDir(), "backups"), At: []string{"03:00"}, Log: time.Hour}
	s, err := OpenServices(t.Context(), cfg, Options{Holder: "a test", Init: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	acme := newAcme(t, s)
	write := func(what string, until func(backup.LogStatus) bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !until(s.pages.Status()); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: got %+v", what, s.pages.Status())
			}
			if err := s.reports.Revocations.In(acme.Workspace()).Insert(t.Context(), &reports.Revocation{PID: rand.Text()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("before", func(status backup.LogStatus) bool { return status.Cut > 0 })
	if err := os.RemoveAll(cfg.Backup.To); err != nil {
		t.Fatal(err)
	}
	write("removed", func(status backup.LogStatus) bool { return status.Failed != nil })
	e := &examination{}
	s.examineBackups(t.Context(), e)
	if len(e.found) != 1 || !strings.Contains(e.found[0].Advice, "tenantry backup --to "+cfg.Backup.To) {
		t.Errorf("got %+v, want the command that begins anew", e.found)
	}
	if _, err := s.backUp(t.Context(), cfg.Backup.To, backup.Options{}, true); err != nil {
		t.Fatal(err)
	}
	write("backed up", func(status backup.LogStatus) bool { return status.Failed == nil })
}

// TestBackups_PlaceGone: if a folder that had the backups is gone, or an empty mount point is in its stead, that is an
// error, so that no backup at its time begins anew there; the command does.
func TestBackups_PlaceGone(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Data, cfg.Backup = t.TempDir(), config.Backup{To: filepath.Join(t.TempDir(), "backups"), At: []string{"00:00"}}
	s, err := OpenServices(t.Context(), cfg, Options{Holder: "a test", Init: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	to := cfg.Backup.To
	first, err := s.lastBackup(t.Context())
	if err != nil || !first.IsZero() {
		t.Fatalf("before the first backup: got %v %v, want none and no error", first, err)
	}
	if _, err := s.backUp(t.Context(), to, backup.Options{}, true); err != nil {
		t.Fatal(err)
	}
	if last, err := s.lastBackup(t.Context()); err != nil || last.IsZero() {
		t.Fatalf("got %v %v, want the backup", last, err)
	}
	for what, lose := range map[string]func() error{
		"gone": func() error { return os.Rename(to, to+"-away") },
		"an empty one": func() error {
			return errors.Join(os.Rename(to, to+"-away"), os.MkdirAll(filepath.Join(to, "files"), 0o700))
		},
	} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		if last, err := s.lastBackup(t.Context()); err == nil {
			t.Errorf("%s: got %v, want an error", what, last)
		}
		e := &examination{}
		s.examineBackups(t.Context(), e)
		if len(e.found) != 1 || !strings.Contains(e.found[0].Advice, "tenantry backup --to "+to) {
			t.Errorf("%s: got %+v, want it wrong, with what to do", what, e.found)
		}
		if err := errors.Join(os.RemoveAll(to), os.Rename(to+"-away", to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if _, err := s.backUp(t.Context(), to, backup.Options{}, true); err != nil {
		t.Fatal(err)
	}
	if last, err := s.lastBackup(t.Context()); err != nil || last.IsZero() {
		t.Errorf("begun anew: got %v %v, want the backup", last, err)
	}
}
