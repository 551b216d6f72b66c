package operations

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"tenantry/backends/mongo/mongotest"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// refused starts a gateway that must not start, and checks its error and message.
func refused(t *testing.T, what string, cfg config.Config, init bool, want error, says ...string) {
	t.Helper()
	app, err := gateway.New(t.Context(), cfg, gateway.Options{Init: init})
	if err == nil {
		_ = app.Close() // it should not be there
	}
	if !errors.Is(err, want) {
		t.Errorf("%s, init %t: got %v, want the error %v", what, init, err, want)
		return
	}
	for _, part := range says {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s, init %t: %q is missing in: got %v, want it there", what, init, part, err)
		}
	}
}

// examined returns doctor's findings, with its error if something is wrong.
func examined(t *testing.T, commands *control.Client, quick bool) (found []control.Finding, wrong error) {
	t.Helper()
	answer, wrong := commands.Do(t.Context(), "doctor", control.Examination{Quick: quick}, control.Streams{})
	if answer == nil {
		t.Fatalf("got %v, want answer other than nil", wrong)
	}
	if err := json.Unmarshal(answer.Data, &found); err != nil {
		t.Fatal(err)
	}
	return found, wrong
}

// TestNoInstallation checks that a folder that is missing, empty or without the data of its keyring is not taken for a
// new installation, and is left unchanged.
func TestNoInstallation(t *testing.T) {
	t.Parallel()
	cfg := fixture.Config(t)
	refused(t, "an empty folder", cfg, false, gateway.ErrNoInstallation, cfg.Data, "--init", "org create", "--data")
	if left := fingerprint(t, cfg.Data); len(left) > 0 {
		t.Errorf("in an empty folder it left %v, want none", left)
	}
	cfg.Data = filepath.Join(cfg.Data, "mistyped")
	refused(t, "no folder", cfg, false, gateway.ErrNoInstallation, cfg.Data)
	if _, err := os.Stat(cfg.Data); err == nil {
		t.Error("got a new folder, want none")
	}

	g := gatewaytest.Start(t, gatewaytest.Embedded)
	g.Org(t, "acme")
	g.Stop(t)
	cfg = g.Config
	db, away := filepath.Join(cfg.Data, "db"), filepath.Join(t.TempDir(), "db")
	if err := os.Rename(db, away); err != nil {
		t.Fatal(err)
	}
	lone := func(what string) {
		t.Helper()
		before := fingerprint(t, cfg.Data)
		for _, init := range []bool{false, true} {
			refused(t, what, cfg, init, gateway.ErrNoInstallation, cfg.KeyringPath(), db, "-wal", "move it away")
		}
		after := fingerprint(t, cfg.Data)
		for path, sum := range before {
			if after[path] != sum {
				t.Errorf("%s: got a change of %s, want none", what, path)
			}
		}
	}
	lone("a keyring alone")
	if err := os.Mkdir(db, 0o700); err != nil {
		t.Fatal(err)
	}
	lone("an empty folder of databases")
	conn, err := sqlite.OpenConn(filepath.Join(db, "control.db"), sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err == nil { // what a copy without the log has
		err = errors.Join(sqlitex.ExecuteTransient(conn, "PRAGMA journal_mode = WAL", nil), conn.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	lone("a database without its log")
	if err := errors.Join(os.RemoveAll(db), os.Rename(away, db)); err != nil {
		t.Fatal(err)
	}
	app, err := gateway.New(t.Context(), cfg, gateway.Options{})
	if err != nil {
		t.Fatalf("with everything back: got %v, want no error", err)
	}
	if app.Made() {
		t.Error("Made() = true for a restored installation, want false")
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
}

// TestKeyringOfAnotherDatabase checks on every engine that a keyring without its control data is not an installation,
// and that nothing is written.
func TestKeyringOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	g.Org(t, "acme")
	g.Stop(t)
	cfg, database := g.Config, ""
	cfg.Data, cfg.Keyring = t.TempDir(), g.Config.KeyringPath()
	if cfg.Shared() {
		database = mongotest.Database(t)
		if err := gatewaytest.UseMongo(&cfg, mongotest.URI(t), database); err != nil {
			t.Fatal(err)
		}
	}
	for _, init := range []bool{false, true} {
		refused(t, "a keyring of other data", cfg, init, gateway.ErrNoInstallation, cfg.Keyring, "restore")
	}
	if database != "" {
		names, err := mongotest.Client(t).Database(database).ListCollectionNames(t.Context(), map[string]any{})
		if err != nil || len(names) > 0 {
			t.Errorf("the database has %q (%v), want no error and no names", names, err)
		}
	}
	cfg.Keyring = filepath.Join(t.TempDir(), "keyring.json")
	refused(t, "nothing", cfg, false, gateway.ErrNoInstallation, "--init")
	app, err := gateway.New(t.Context(), cfg, gateway.Options{Init: true})
	if err != nil {
		t.Fatal(err)
	}
	if !app.Made() {
		t.Error("Made() = false for a new installation, want true")
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
}

// TestControlDataAlone checks that the gateway does not start without any data of organizations, and starts if only
// some are lost.
func TestControlDataAlone(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.OwnFiles)
	g.Org(t, "acme")
	birch := g.Org(t, "birch")
	key := birch.Key(t)
	g.Stop(t)
	db := filepath.Join(g.Config.Data, "db")
	lose := func(name string) {
		t.Helper()
		if err := os.Rename(filepath.Join(db, name), filepath.Join(g.Config.Data, name)); err != nil {
			t.Fatal(err)
		}
	}
	lose("org-1.db")
	some := gatewaytest.Start(t, fixture.InFolder(g.Config.Data), gatewaytest.OwnFiles, func(_ *config.Config, o *gateway.Options) { o.Init = false })
	if a := some.Do(t, http.MethodGet, "birch.localhost", "/api/campaigns/count", gatewaytest.WithKey(key)); a.Code != http.StatusOK {
		t.Errorf("the other organization: got %d %s, want 200", a.Code, a.Body)
	}
	some.Stop(t)
	lose("org-2.db")
	refused(t, "no files", g.Config, false, gateway.ErrNoFiles, db, "none of its 2", "org-2.db", "restore", "tenantry doctor")

	services, err := gateway.OpenServices(t.Context(), g.Config, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = services.Close() }()
	found, err := examined(t, services.Commands(), false)
	wrong := 0
	for _, f := range found {
		if f.Verdict == control.Wrong && strings.HasPrefix(f.What, "organization ") {
			wrong++
		}
	}
	if err == nil || wrong != 2 {
		t.Errorf("doctor finds %d organizations lost (%v), want an error and 2", wrong, err)
	}
}

// TestLostControlDataAreReported checks that a running gateway reports missing control data, although it still answers
// for a while.
func TestLostControlDataAreReported(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	fixture.ReadyIn(t, g, http.StatusOK, "ok", map[string]string{"installation": "ok"}, fixture.ReadyLimit)
	if b := g.Config.Backends[g.Config.Control]; g.Config.Shared() {
		if err := mongotest.Client(t).Database(b.Database).Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Rename(filepath.Join(g.Config.Data, "db", "control.db"), filepath.Join(t.TempDir(), "control.db")); err != nil {
		t.Fatal(err)
	}
	fixture.ReadyIn(t, g, http.StatusServiceUnavailable, "failed", map[string]string{"installation": "missing"}, fixture.ReadyLimit)
	found, _ := examined(t, g.Commands, true)
	said := false
	for _, f := range found {
		said = said || f.What == "installation" && f.Verdict == control.Wrong && f.Advice != ""
	}
	if !said {
		t.Errorf("doctor does not name the installation, want a finding: %v", cmp.Diff(nil, found))
	}
}
