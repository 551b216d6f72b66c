package operations

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenantry/backends/mongo/mongotest"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// inFiles is InFolder with a file for each organization.
func inFiles(data string) gatewaytest.Option {
	return func(c *config.Config, o *gateway.Options) {
		gatewaytest.OwnFiles(c, o)
		c.Data = data
	}
}

func countOf(t *testing.T, o *gatewaytest.Org, key string) string {
	t.Helper()
	a := o.Get(t, key, countPath)
	if a.Status != "ok" {
		t.Errorf("counting the contacts of %s: got %d %s, want the status ok", o.Slug, a.Code, a.Body)
	}
	return fmt.Sprint(a.Field("count"))
}

// strays returns doctor's findings about workspaces without an organization.
func strays(t *testing.T, g *gatewaytest.Gateway) (found []string) {
	t.Helper()
	for _, f := range fixture.Findings(t, g, control.Examination{Quick: true}) {
		switch {
		case strings.HasSuffix(f.What, " strays"):
			if f.Verdict != control.Warning {
				t.Errorf("got %+v, want f.Verdict = %v", f, control.Warning)
			}
			found = append(found, f.Says+"; "+f.Advice)
		case strings.HasSuffix(f.What, " indexes"), strings.HasSuffix(f.What, " server"), strings.HasSuffix(f.What, " documents"):
			// Indexes may still be built, and other findings are about the substitute for MongoDB.
		case f.Verdict != control.Good:
			t.Errorf("got %+v, want Verdict %v", f, control.Good)
		}
	}
	return found
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRestoredControlDataAdoptNothing restores control data from before gamma was created. The organization created
// next gets nothing of gamma's, and doctor names what gamma left.
func TestRestoredControlDataAdoptNothing(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	controlFile, backup := filepath.Join(data, "db", "control.db"), filepath.Join(t.TempDir(), "control.db")
	g := gatewaytest.Start(t, inFiles(data))
	acme := g.Org(t, "acme")
	acme.Import(t, fixture.ContactsBundle(5)...)
	key := acme.Key(t, tenants.Contacts)
	g.Stop(t)
	copyFile(t, controlFile, backup)

	g = gatewaytest.Start(t, inFiles(data))
	gamma := g.Org(t, "gamma")
	gamma.Import(t, fixture.ContactsBundle(7)...)
	left := filepath.Join(data, "db", fmt.Sprintf("org-%d.db", gamma.Tenant(t).Org.OrgID))
	gone := g.Org(t, "gone")
	gone.Import(t, fixture.ContactsBundle(1)...)
	removed := filepath.Join(data, "db", fmt.Sprintf("org-%d.db", gone.Tenant(t).Org.OrgID))
	if found := strays(t, g); len(found) > 0 {
		t.Errorf("before anything is restored: got %q, want none", found)
	}
	g.Stop(t)
	copyFile(t, backup, controlFile)

	g = gatewaytest.Start(t, inFiles(data))
	found := strays(t, g)
	if len(found) != 2 || !strings.Contains(found[0], left+" belongs to this installation, which knows no such organization") || !strings.Contains(found[1], removed) {
		t.Errorf("doctor says %q, want that %s and %s are nobody's", found, left, removed)
	}
	delta := g.Org(t, "delta")
	if n := countOf(t, delta, delta.Key(t, tenants.Contacts)); n != "0" {
		t.Errorf("delta counts %s contacts, all of them gamma's, want 0", n)
	}
	if n := countOf(t, &gatewaytest.Org{Gateway: g, Slug: "acme", Host: acme.Host}, key); n != "5" {
		t.Errorf("acme counts %s, want its 5", n)
	}
	if path := filepath.Join(data, "db", fmt.Sprintf("org-%d.db", delta.Tenant(t).Org.OrgID)); path == left || path == removed {
		t.Errorf("delta is in %s, want a file of its own", path)
	}
	if found := strays(t, g); len(found) != 2 {
		t.Errorf("gamma's documents are gone, or delta is a stray: got %q, want 2", found)
	}
	for _, path := range []string{left, removed} {
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
	}
	if found := strays(t, g); len(found) > 0 {
		t.Errorf("with the strays moved away: got %q, want none", found)
	}
}

// TestDoctorNamesStrays checks that doctor names the owner of a stray as far as it is known.
func TestDoctorNamesStrays(t *testing.T) {
	t.Parallel()
	theirs := t.TempDir()
	other := gatewaytest.Start(t, inFiles(theirs))
	other.Org(t, "acme")
	identity := other.Org(t, "beta").Tenant(t).Org.ID
	other.Stop(t)

	data := t.TempDir()
	at := func(name string) string { return filepath.Join(data, "db", name) }
	g := gatewaytest.Start(t, inFiles(data))
	gone := g.Org(t, "gone")
	g.Stop(t)
	copyFile(t, at("org-1.db"), at("copy.db"))
	g = gatewaytest.Start(t, inFiles(data))
	if _, err := control.Call[control.Certificate](t.Context(), g.Commands, "org.delete", control.Deletion{Slug: gone.Slug, Now: true}); err != nil {
		t.Fatal(err)
	}
	copyFile(t, at("copy.db"), at("org-1.db"))
	copyFile(t, filepath.Join(theirs, "db", "org-2.db"), at("org-7.db"))
	for name, text := range map[string]string{"org-8.db": strings.Repeat("no database ", 400), "org-9.db": "", "org-010.db": ""} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := strings.Join(strays(t, g), "\n")
	for _, want := range []string{
		at("copy.db") + " belongs to this installation, which knows no such organization: ",
		at("org-010.db") + " has no owner; ",
		at("org-1.db") + " is left from organization gone, which was erased; tenantry org delete gone --yes",
		at("org-7.db") + " belongs to another installation: ", "/" + identity + "; give each installation",
		at("org-8.db") + " does not say which organization it belongs to: ",
		at("org-9.db") + " has no owner; ",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("doctor does not say %q, but\n%s", want, found)
		}
	}
	if n := strings.Count(found, "\n") + 1; n != 6 {
		t.Errorf("got %d strays, want 6", n)
	}
	if _, err := control.Call[control.Certificate](t.Context(), g.Commands, "org.delete", control.Deletion{Slug: gone.Slug, Now: true}); err != nil {
		t.Fatal(err)
	}
	if found := strings.Join(strays(t, g), "\n"); strings.Contains(found, "gone") {
		t.Errorf("after following doctor: got %s, want nothing gone", found)
	}
}

// TestTwoGatewaysOnOneFolder checks that the second one is refused, also with control data of its own.
func TestTwoGatewaysOnOneFolder(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	g := gatewaytest.Start(t, fixture.InFolder(data))
	acme := g.Org(t, "acme")
	cfg := config.Default()
	cfg.Data, cfg.Listen, cfg.AdminListen = t.TempDir(), "127.0.0.1:0", ""
	cfg.Backends = map[string]config.Backend{config.DefaultBackend: {Engine: config.EngineSQLite}, "shared": {Engine: config.EngineSQLite, Dir: filepath.Join(data, "db")}}
	cfg.Store = "shared"
	app, err := gateway.New(t.Context(), cfg, gateway.Options{Init: true})
	if err == nil {
		err = errors.Join(errors.New("it started"), app.Close())
	}
	if !strings.Contains(err.Error(), filepath.Join(data, "db")) || !strings.Contains(err.Error(), "another process uses the data") {
		t.Errorf("a second installation on the folder of the first: got %v, want it with %q with %q",
			err, filepath.Join(data, "db"), "another process uses the data")
	}
	if n := countOf(t, acme, acme.Key(t, tenants.Contacts)); n != "0" {
		t.Errorf("the first counts %s, want 0", n)
	}
}

// TestTwoInstallationsOnOneDatabase gives each its own control data and an organization of number 1.
func TestTwoInstallationsOnOneDatabase(t *testing.T) {
	t.Parallel()
	var store config.Config
	if err := gatewaytest.UseMongo(&store, mongotest.URI(t), mongotest.Database(t)); err != nil {
		t.Fatal(err)
	}
	installation := func() *gatewaytest.Gateway {
		return gatewaytest.Start(t, gatewaytest.Embedded, func(c *config.Config, _ *gateway.Options) {
			c.Backends = map[string]config.Backend{config.DefaultBackend: {Engine: config.EngineSQLite}, "shared": store.Backends["mongo"]}
			c.Store = "shared"
		})
	}
	first, second := installation(), installation()
	gamma := first.Org(t, "gamma")
	gamma.Import(t, fixture.ContactsBundle(7)...)
	delta := second.Org(t, "delta")
	key := delta.Key(t, tenants.Contacts)
	if n := countOf(t, delta, key); n != "0" {
		t.Errorf("delta counts %s contacts, all of them gamma's, want 0", n)
	}
	if a, b := gamma.Tenant(t).Org.OrgID, delta.Tenant(t).Org.OrgID; a != 1 || b != 2 {
		t.Errorf("gamma is organization %d, delta %d of its own installation, which passes over what lies there, want 1 and 2",
			a, b)
	}
	for g, other := range map[*gatewaytest.Gateway]*gatewaytest.Org{first: delta, second: gamma} {
		found := strays(t, g)
		want := fmt.Sprintf("org_id org-%d in database", other.Tenant(t).Org.OrgID)
		if len(found) != 1 || !strings.Contains(found[0], want) || !strings.Contains(found[0], "belongs to another installation") {
			t.Errorf("doctor says %q, want the other's %q", found, want)
		}
	}
	delta.Import(t, fixture.ContactsBundle(3)...)
	if _, err := control.Call[control.Certificate](t.Context(), second.Commands, "org.delete", control.Deletion{Slug: "delta", Now: true}); err != nil {
		t.Fatal(err)
	}
	if n := countOf(t, gamma, gamma.Key(t, tenants.Contacts)); n != "7" {
		t.Errorf("gamma counts %s after the other installation's organization was deleted, want 7", n)
	}
}

// formerData unpacks data from before workspaces had owners: two organizations, one of which, acme, has three contacts,
// one with an encrypted value, a folder, reports and people.
func formerData(t *testing.T, data string, only ...string) {
	t.Helper()
	packed, err := os.ReadFile("testdata/data-without-owners.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(data, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o700)
		} else if len(only) == 0 || only[0] == h.Name {
			var content []byte
			if content, err = io.ReadAll(files); err == nil {
				err = os.WriteFile(path, content, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Credentials in the former data.
const (
	formerKey   = "tnt_server_full_AO4A9QtcRY7bTcknMUfCkwNsyDmboe9W_1s6jfM"
	formerToken = "eyJhbGciOiJIUzI1NiIsImtpZCI6IjEiLCJ0eXAiOiJKV1QifQ." +
		"eyJpc3MiOiJ0ZW5hbnRyeSIsImF1ZCI6ImFjbWUiLCJzdWIiOiJwdWJsaWMtcmVwb3J0LTAwMDEiLCJqdGkiOiIwLUtEMGx0SEh6NnRnMmd6NDM0U1F1RUxxU2p6dCIsImlhdCI6MTc5NTMyMzg0MiwiZXhwIjoxNzk1MzI3NDQyLCJwYXJhbXMiOnt9fQ." +
		"gUPQ-_vYXJtAEo6qv_xaeUPOfOSP10ibvQrESvZwdVM"
)

// TestFormerDataAreUpgraded starts on data from before workspaces had owners, and once more with the old control data
// and the present documents.
func TestFormerDataAreUpgraded(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	formerData(t, data)
	at := time.Unix(1795323900, 0) // the token of the share was good
	then := func(_ *config.Config, o *gateway.Options) {
		began := time.Now()
		o.Now = func() time.Time { return at.Add(time.Since(began)) }
	}
	var identity string
	for _, when := range []string{"at first", "once more", "with control data of before"} {
		if when == "with control data of before" {
			formerData(t, data, "db/control.db")
		}
		g := gatewaytest.Start(t, fixture.InFolder(data), then)
		acme := &gatewaytest.Org{Gateway: g, Slug: "acme", Host: "acme.localhost"}
		if n := countOf(t, acme, formerKey); n != "3" {
			t.Errorf("%s: acme counts %s contacts, want 3", when, n)
		}
		if a := acme.Get(t, formerKey, "/api/contacts/5eed00000000000000000001/reveal-secret?field=passport"); a.Field("field_value") != "X123" {
			t.Errorf("%s: the encrypted value: got %s, want field_value X123", when, a.Body)
		}
		if a := acme.Get(t, formerKey, "/api/files/folders/5eed0000000000000000000a"); fmt.Sprint(a.Field("files_count")) != "1" {
			t.Errorf("%s: the folder: got %s, want files_count 1", when, a.Body)
		}
		for _, path := range []string{"/api/reports/shared/p2", "/api/reports/shared/public-report-0001?token=" + formerToken} {
			if a := acme.Do(t, http.MethodGet, path); a.Message != "Shared Report found" {
				t.Errorf(`%s: got %s: %s, want a.Message = "Shared Report found"`, when, path, a.Body)
			}
		}
		if a := acme.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": "ada@example.com", "password": gatewaytest.Password})); a.Message != "Signed in" {
			t.Errorf("%s: signing in: got %s, want the message %q", when, a.Body, "Signed in")
		}
		if found, _ := doctor(t, g); len(found) > 0 {
			t.Errorf("%s: doctor finds %q, want none", when, found)
		}
		if found := strays(t, g); len(found) > 0 {
			t.Errorf("%s: strays %q, want none", when, found)
		}
		now := g.App.Directory().Installation()
		if len(now) != 32 || identity != "" && now != identity {
			t.Errorf("%s: the installation is %q, want %q with 32 digits", when, now, identity)
		}
		identity = now
		g.Stop(t)
	}
}

// TestFormerDataWithOneFaultyFile checks that a fault of one organization does not keep others from being upgraded.
func TestFormerDataWithOneFaultyFile(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func([]byte) []byte{
		"a file of a newer version":      func(b []byte) []byte { b[63] = 99; return b },
		"a database of another program":  func(b []byte) []byte { b[71]++; return b },
		"no database":                    func([]byte) []byte { return bytes.Repeat([]byte("no database "), 1000) },
		"a database without its content": func(b []byte) []byte { return b[:4096] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			formerData(t, data)
			path := filepath.Join(data, "db", "org-1.db")
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, spoil(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			g := gatewaytest.Start(t, fixture.InFolder(data))
			initech := &gatewaytest.Org{Gateway: g, Slug: "initech", Host: "initech.localhost"}
			if n := countOf(t, initech, initech.Key(t, tenants.Contacts)); n != "1" {
				t.Errorf("the other organization counts %s, want 1", n)
			}
			acme := &gatewaytest.Org{Gateway: g, Slug: "acme", Host: "acme.localhost"}
			if a := acme.Get(t, formerKey, countPath); a.Code != http.StatusServiceUnavailable && a.Code != http.StatusInternalServerError {
				t.Errorf("the odd one: got %d %s, want 503 or 500", a.Code, a.Body)
			}
		})
	}
}
