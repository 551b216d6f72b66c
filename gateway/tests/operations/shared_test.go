package operations

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// sharedFile returns the shared file of the organization, and its number in the file.
func sharedFile(t *testing.T, o *gatewaytest.Org) (path string, ws int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(o.Config.Data, "db", "_shared-*.db"))
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("org-%d", o.Tenant(t).Org.OrgID)
	for _, file := range files {
		for _, n := range numbers(t, file, "SELECT ws FROM workspaces WHERE name = '"+name+"'") {
			return file, n
		}
	}
	t.Fatalf("%s is in none of %q, want it in one", name, files)
	return "", 0
}

// numbers returns the numbers that a statement finds in a file.
func numbers(t *testing.T, file, statement string) (found []int64) {
	t.Helper()
	conn, err := sqlite.OpenConn(file, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetBusyTimeout(5 * time.Second)
	if err := sqlitex.Execute(conn, statement, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		found = append(found, s.ColumnInt64(0))
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	return found
}

// neighbours creates organizations until two share a file and a third is in another one.
func neighbours(t *testing.T, g *gatewaytest.Gateway) (a, b, apart *gatewaytest.Org) {
	t.Helper()
	in := map[string]*gatewaytest.Org{}
	for i := 0; b == nil || apart == nil; i++ {
		o := g.Org(t, fmt.Sprintf("org%d", i))
		file := fileOf(t, o)
		switch {
		case b == nil && in[file] != nil:
			a, b = in[file], o
			for other, o := range in {
				if other != file {
					apart = o
				}
			}
		case b != nil && file != fileOf(t, a):
			apart = o
		}
		in[file] = o
	}
	return a, b, apart
}

func fileOf(t *testing.T, o *gatewaytest.Org) string {
	t.Helper()
	file, _ := sharedFile(t, o)
	return file
}

// TestShared_DamageAffectsNeighboursOnly checks that a lost shared file is named for each organization in it, that
// organizations in other files continue, and that everything works with the file restored.
func TestShared_DamageAffectsNeighboursOnly(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.SharedFiles)
	a, b, apart := neighbours(t, g)
	keys := map[*gatewaytest.Org]string{}
	for _, o := range []*gatewaytest.Org{a, b, apart} {
		o.Import(t, fixture.ContactsBundle(20)...)
		keys[o] = o.Key(t, tenants.Contacts)
	}
	if found, documents := doctor(t, g); len(found) > 0 || documents < 60 {
		t.Fatalf("whole organizations: got %v, %d documents, want no found and at least 60", found, documents)
	}
	file := fileOf(t, a)
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	found, _ := doctor(t, g)
	for _, o := range []*gatewaytest.Org{a, b} {
		if answer := o.Get(t, keys[o], countPath); !fixture.IsUnavailable(t, o.Slug, answer) {
			t.Errorf("%s: got %d %s, want service unavailable", o.Slug, answer.Code, answer.Body)
		}
		if !slices.ContainsFunc(found, func(f string) bool {
			return strings.HasPrefix(f, "organization "+o.Slug+": ") && strings.Contains(f, file)
		}) {
			t.Errorf("doctor does not name %s: got %q, want it", o.Slug, found)
		}
	}
	fixture.WantBody(t, apart.Get(t, keys[apart], countPath), http.StatusOK, `{"status":"ok","message":"success","data":{"count":20}}`)
	if err := os.Rename(file+".away", file); err != nil {
		t.Fatal(err)
	}
	if found, _ := doctor(t, g); len(found) > 0 {
		t.Errorf("with the file back: got %q, want none", found)
	}
	for o, key := range keys {
		fixture.AwaitWithin(t, o.Slug+" back", 10*time.Second, func() bool { return o.Get(t, key, countPath).Code == http.StatusOK })
		fixture.WantBody(t, o.Get(t, key, countPath), http.StatusOK, `{"status":"ok","message":"success","data":{"count":20}}`)
	}
}

// TestShared_TornFile zeroes a page or the header of a shared file: doctor names the affected organizations, no answer
// is incomplete, organizations in other files continue, and everything works with the file restored.
func TestShared_TornFile(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]int64{"a page of zeros": -1, "no header": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := t.TempDir()
			here := func(c *config.Config, _ *gateway.Options) { c.Data = data }
			g := gatewaytest.Start(t, gatewaytest.SharedFiles, here)
			a, b, apart := neighbours(t, g)
			all, keys := []*gatewaytest.Org{a, b, apart}, map[string]string{}
			for _, o := range all {
				o.Import(t, fixture.ContactsBundle(400)...)
				keys[o.Slug] = o.Key(t, tenants.Contacts)
			}
			file := fileOf(t, a)
			g.Stop(t)
			good, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			zeroPage(t, file, page)

			g = gatewaytest.Start(t, gatewaytest.SharedFiles, here)
			ask := func(o *gatewaytest.Org, path string) *gatewaytest.Answer {
				return (&gatewaytest.Org{Gateway: g, Slug: o.Slug, Host: o.Host}).Get(t, keys[o.Slug], path)
			}
			found, _ := doctor(t, g)
			if len(found) == 0 {
				t.Error("doctor finds nothing, want the damage")
			}
			for _, f := range found {
				if !strings.Contains(f, file) || strings.HasPrefix(f, "organization "+apart.Slug+":") {
					t.Errorf("got %v, want containing %q", f, file)
				}
			}
			for _, o := range []*gatewaytest.Org{a, b} {
				answer := ask(o, "/api/contacts?per_page=1000")
				if whole := page < 0 && answer.Code == http.StatusOK && len(answer.Field("results").([]any)) == 400; !whole && !fixture.IsUnavailable(t, o.Slug, answer) {
					t.Errorf("%s: got %d %.300s, want 400 results or service unavailable",
						o.Slug, answer.Code, answer.Body)
				}
			}
			fixture.WantBody(t, ask(apart, countPath), http.StatusOK, `{"status":"ok","message":"success","data":{"count":400}}`)

			g.Stop(t)
			for _, suffix := range []string{"-wal", "-shm", ""} {
				_ = os.Remove(file + suffix) // it may not be there
			}
			if err := os.WriteFile(file, good, 0o600); err != nil {
				t.Fatal(err)
			}
			g = gatewaytest.Start(t, gatewaytest.SharedFiles, here)
			if found, _ := doctor(t, g); len(found) > 0 {
				t.Errorf("with the file back: got %q, want none", found)
			}
			for _, o := range all {
				fixture.WantBody(t, ask(o, countPath), http.StatusOK, `{"status":"ok","message":"success","data":{"count":400}}`)
			}
		})
	}
}

// TestShared_ErasedDataAreGone checks that nothing of an erased organization is left in the file, and that its
// neighbour is unchanged.
func TestShared_ErasedDataAreGone(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.SharedFiles)
	a, b, _ := neighbours(t, g)
	for _, o := range []*gatewaytest.Org{a, b} {
		o.Import(t, fixture.ContactsBundle(600)...)
	}
	file, ws := sharedFile(t, a)
	_, kept := sharedFile(t, b)
	total := func(ws int64) (n int64) {
		t.Helper()
		var parts []string
		conn, err := sqlite.OpenConn(file, sqlite.OpenReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := sqlitex.Execute(conn, `SELECT name FROM sqlite_schema WHERE type = 'table' AND (name GLOB '[cs]:*' OR name IN ('counters', 'workspaces'))`, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
			parts = append(parts, fmt.Sprintf(`SELECT count(*) FROM %q WHERE ws = %d`, s.ColumnText(0), ws))
			return nil
		}}); err != nil || len(parts) < 20 {
			t.Fatalf("got %d tables, %v, want some", len(parts), err)
		}
		for _, n0 := range numbers(t, file, strings.Join(parts, " UNION ALL ")) {
			n += n0
		}
		return n
	}
	before := total(kept)
	if n := total(ws); n < 600 || before < 600 {
		t.Fatalf("got %d and %d rows, want at least 600", n, before)
	}
	if _, err := control.Call[control.Certificate](t.Context(), g.Commands, "org.delete", control.Deletion{Slug: a.Slug, Now: true}); err != nil {
		t.Fatal(err)
	}
	if n, left := total(ws), total(kept); n != 0 || left != before {
		t.Errorf("%d rows of the deleted organization and %d of its neighbour are left, want 0 and %d", n, left, before)
	}
	if found := strays(t, g); len(found) > 0 {
		t.Errorf("strays: got %q, want none", found)
	}
}

// TestShared_RestoredControlDataAdoptNothing is TestRestoredControlDataAdoptNothing with shared files.
func TestShared_RestoredControlDataAdoptNothing(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	controlFile, backup := filepath.Join(data, "db", "control.db"), filepath.Join(t.TempDir(), "control.db")
	g := gatewaytest.Start(t, gatewaytest.SharedFiles, func(c *config.Config, _ *gateway.Options) { c.Data = data })
	acme := g.Org(t, "acme")
	acme.Import(t, fixture.ContactsBundle(5)...)
	key := acme.Key(t, tenants.Contacts)
	g.Stop(t)
	copyFile(t, controlFile, backup)
	g = gatewaytest.Start(t, gatewaytest.SharedFiles, func(c *config.Config, _ *gateway.Options) { c.Data = data })
	gamma := g.Org(t, "gamma")
	gamma.Import(t, fixture.ContactsBundle(7)...)
	number, file := gamma.Tenant(t).Org.OrgID, fileOf(t, gamma)
	g.Stop(t)
	copyFile(t, backup, controlFile)

	g = gatewaytest.Start(t, gatewaytest.SharedFiles, func(c *config.Config, _ *gateway.Options) { c.Data = data })
	if found := strays(t, g); len(found) != 1 || !strings.Contains(found[0], fmt.Sprintf("org-%d in %s belongs to this installation, which knows no such organization", number, file)) {
		t.Errorf("doctor says %q, want the stray and its file", found)
	}
	delta := g.Org(t, "delta")
	if n := countOf(t, delta, delta.Key(t, tenants.Contacts)); n != "0" {
		t.Errorf("delta counts %s contacts, all of them gamma's, want 0", n)
	}
	if n := countOf(t, &gatewaytest.Org{Gateway: g, Slug: "acme", Host: acme.Host}, key); n != "5" {
		t.Errorf("acme counts %s, want its 5", n)
	}
}
