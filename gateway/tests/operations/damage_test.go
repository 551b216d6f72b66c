package operations

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

const countPath = "/api/campaigns/count"

// doctor returns its findings about the organizations as text, and the number of counted documents.
func doctor(t *testing.T, g *gatewaytest.Gateway) (found []string, documents int64) {
	t.Helper()
	for _, f := range fixture.Findings(t, g, control.Examination{}) {
		switch {
		case f.What == "data":
			if _, counted, ok := strings.Cut(f.Says, "documents: "); ok {
				documents, _ = strconv.ParseInt(counted, 10, 64)
			}
		case strings.HasPrefix(f.What, "organization "):
			if f.Verdict != control.Wrong {
				t.Errorf("verdict %s: got %+v, want Verdict %v", f.Verdict, f, control.Wrong)
			}
			found = append(found, f.What+": "+f.Says)
		}
	}
	return found, documents
}

// zeroPage overwrites a page of a database with zeros, by default the middle one.
func zeroPage(t *testing.T, path string, page int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	const size = 4096
	if page < 0 {
		page = info.Size() / size / 2
	}
	if _, err := f.WriteAt(make([]byte, size), page*size); err != nil {
		t.Fatal(err)
	}
}

// TestDamageAffectsOneOrganization loses a file while the gateway runs, zeroes a page of another and the header of a
// third. doctor, metrics, /readyz and the log name them, their organizations answer 503, and the others continue. With
// the files restored everything works.
func TestDamageAffectsOneOrganization(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	here := func(c *config.Config, _ *gateway.Options) { c.Data = data }
	g := gatewaytest.Start(t, gatewaytest.OwnFiles, here)
	keys, files := map[string]string{}, map[string]string{}
	for _, slug := range []string{"beheaded", "fine", "lost", "torn"} {
		org := g.Org(t, slug)
		org.Import(t, fixture.ContactsBundle(400)...)
		keys[slug] = org.Key(t, tenants.Contacts)
		files[slug] = filepath.Join(data, "db", fmt.Sprintf("org-%d.db", org.Tenant(t).Org.OrgID))
	}
	if found, documents := doctor(t, g); len(found) > 0 || documents < 4*400 {
		t.Fatalf("whole organizations: got %v, %d documents, want no found and at least %v", found, documents, 4*400)
	}
	g.Stop(t)
	good := map[string][]byte{}
	for slug, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		good[slug] = b
	}
	zeroPage(t, files["torn"], -1)
	zeroPage(t, files["beheaded"], 0)

	g = gatewaytest.Start(t, gatewaytest.OwnFiles, here)
	ask := func(slug string) *gatewaytest.Answer {
		t.Helper()
		return (&gatewaytest.Org{Gateway: g, Slug: slug, Host: slug + ".localhost"}).Get(t, keys[slug], countPath)
	}
	away := func(slug string) {
		t.Helper()
		for range 3 {
			if a := ask(slug); !fixture.IsUnavailable(t, slug, a) {
				t.Errorf("%s: got %d %s, want service unavailable", slug, a.Code, a.Body)
			}
		}
	}
	// Damage that is found while answering is reported without doctor.
	away("beheaded")
	if code, r := fixture.Ready(t, g); code != http.StatusOK || r.Status != "degraded" || r.Checks["organizations"] != "damaged: 1" || r.Checks["store"] != "ok" {
		t.Errorf(`got %d %+v, want %v and r.Status = "degraded" and r.Checks["organizations"] = "damaged: 1" and r.Checks["store"] = "ok"`,
			code, r, http.StatusOK)
	}
	if a := ask("lost"); a.Code != http.StatusOK {
		t.Fatalf("before the file is lost: got %d %s, want 200", a.Code, a.Body)
	}
	if err := os.Rename(files["lost"], files["lost"]+".away"); err != nil {
		t.Fatal(err)
	}
	found, _ := doctor(t, g)
	if len(found) != 3 {
		t.Errorf("doctor finds %q, want 3", found)
	}
	for i, slug := range []string{"beheaded", "lost", "torn"} {
		if i < len(found) && (!strings.HasPrefix(found[i], "organization "+slug+": backend default: ") || !strings.Contains(found[i], files[slug])) {
			t.Errorf("%s: got %s, want its backend and file", slug, found[i])
		}
		_, _, figures := fixture.CallAdmin(t, g, http.MethodGet, "/metrics")
		if line := fmt.Sprintf(`tenantry_store_damaged{backend="default",organization=%q} 1`, slug); !strings.Contains(figures, line) {
			t.Errorf("no figure for %s, want it with %q", slug, line)
		}
	}
	away("lost")
	if code, r := fixture.Ready(t, g); code != http.StatusOK || r.Status != "degraded" || r.Checks["organizations"] != "damaged: 3" {
		t.Errorf(`got %d %+v, want %v and r.Status = "degraded" and r.Checks["organizations"] = "damaged: 3"`,
			code, r, http.StatusOK)
	}
	fixture.WantBody(t, ask("fine"), http.StatusOK, `{"status":"ok","message":"success","data":{"count":400}}`)
	for _, slug := range []string{"beheaded", "lost", "torn"} {
		n := 0
		for line := range strings.Lines(g.Log.String()) {
			if strings.Contains(line, "damaged or missing") && strings.Contains(line, `"org":"`+slug+`"`) && strings.Contains(line, filepath.Base(files[slug])) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("the log tells of %s %d times, want 1", slug, n)
		}
	}

	for slug, path := range files {
		if slug == "fine" {
			continue
		}
		for _, suffix := range []string{"-wal", "-shm", ""} {
			_ = os.Remove(path + suffix) // it may not be there
		}
		if err := os.WriteFile(path, good[slug], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found, documents := doctor(t, g); len(found) > 0 || documents < 4*400 {
		t.Errorf("with the files back: got %v, %d documents, want no found and at least %v", found, documents, 4*400)
	}
	for slug := range files {
		for deadline := time.Now().Add(10 * time.Second); ask(slug).Code != http.StatusOK && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond) // what the directory could not read it reads again after a moment
		}
		fixture.WantBody(t, ask(slug), http.StatusOK, `{"status":"ok","message":"success","data":{"count":400}}`)
	}
	if code, r := fixture.Ready(t, g); code != http.StatusOK || r.Status != "ok" || r.Checks["organizations"] != "" {
		t.Errorf(`got %d %+v, want %v and r.Status = "ok" and r.Checks["organizations"] = ""`, code, r, http.StatusOK)
	}
	if _, _, figures := fixture.CallAdmin(t, g, http.MethodGet, "/metrics"); strings.Contains(figures, "tenantry_store_damaged{") {
		t.Error("got a metric of damage, want none")
	}
}

// TestDoctorOpensEveryOrganization checks that doctor opens every organization, on the engine of the tests.
func TestDoctorOpensEveryOrganization(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	for _, slug := range []string{"acme", "globex"} {
		g.Org(t, slug).Import(t, fixture.ContactsBundle(20)...)
	}
	if err := g.App.Directory().Suspend(t.Context(), "globex"); err != nil {
		t.Fatal(err)
	}
	if found, documents := doctor(t, g); len(found) > 0 || documents < 40 {
		t.Errorf("got %v, %d documents, want no found and at least 40", found, documents)
	}
}

// TestWritesToADamagedFileAreRefused checks that no organization in a damaged file can write, because a restored backup
// would lose the write. Reads of intact parts and organizations in other files continue. With the file restored all can
// write.
func TestWritesToADamagedFileAreRefused(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	here := func(c *config.Config, _ *gateway.Options) { c.Data = data }
	g := gatewaytest.Start(t, gatewaytest.SharedFiles, here)
	a, b, apart := neighbours(t, g)
	a.Import(t, fixture.ContactsBundle(1500)...) // so that the middle of the file is of contacts
	keys := map[string]string{}
	for _, o := range []*gatewaytest.Org{a, b, apart} {
		keys[o.Slug] = o.Key(t, tenants.Contacts)
	}
	b.Import(t, fixture.ContactsBundle(1)...)
	file := fileOf(t, a)
	g.Stop(t)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	zeroPage(t, file, -1)

	g = gatewaytest.Start(t, gatewaytest.SharedFiles, here)
	ask := func(o *gatewaytest.Org, method, path string, changes ...gatewaytest.Request) *gatewaytest.Answer {
		t.Helper()
		return (&gatewaytest.Org{Gateway: g, Slug: o.Slug, Host: o.Host}).Do(t, method, path, append(changes, gatewaytest.WithKey(keys[o.Slug]))...)
	}
	n := 0
	create := func(o *gatewaytest.Org) *gatewaytest.Answer {
		t.Helper()
		n++
		return ask(o, http.MethodPost, "/api/contacts", gatewaytest.JSON(map[string]string{"email": fmt.Sprintf("new%d@example.com", n)}))
	}
	found, _ := doctor(t, g)
	if len(found) == 0 || !strings.Contains(found[0], file) {
		t.Fatalf("doctor finds %q, want the file first", found)
	}
	for _, o := range []*gatewaytest.Org{a, b} {
		answer := create(o)
		if !fixture.IsUnavailable(t, o.Slug, answer) || !strings.Contains(answer.Message, "damaged") || !strings.Contains(answer.Message, "restored") {
			t.Errorf("%s writes: got %d %s, want service unavailable, with damaged and with restored",
				o.Slug, answer.Code, answer.Body)
		}
	}
	if answer := ask(b, http.MethodGet, "/api/contacts"); answer.Code != http.StatusOK {
		t.Errorf("%s reads: got %d %s, want 200", b.Slug, answer.Code, answer.Body)
	}
	if answer := create(apart); answer.Code != http.StatusOK {
		t.Errorf("%s writes: got %d %s, want 200", apart.Slug, answer.Code, answer.Body)
	}
	told := fixture.Findings(t, g, control.Examination{})
	if !slices.ContainsFunc(told, func(f control.Finding) bool {
		return f.Verdict == control.Wrong && strings.Contains(f.Advice, "writes to it are refused")
	}) {
		t.Errorf("doctor: got %+v, want advice", told)
	}

	// After a restart the damage is known before anybody uses the organization.
	g.Stop(t)
	g = gatewaytest.Start(t, gatewaytest.SharedFiles, here)
	if !strings.Contains(g.Log.String(), `"writes_refused":true`) {
		t.Error("got no writes_refused in the log after a restart, want it")
	}
	if answer := create(b); !fixture.IsUnavailable(t, b.Slug, answer) {
		t.Errorf("%s writes after a restart: got %d %s, want service unavailable", b.Slug, answer.Code, answer.Body)
	}

	// The file stays damaged until it is restored, even if it was checked just before.
	if found, _ := doctor(t, g); len(found) == 0 || create(b).Code != http.StatusServiceUnavailable {
		t.Errorf("once more: got %q, want a finding and refused writes", found)
	}
	for _, suffix := range []string{"-wal", "-shm", ""} {
		_ = os.Remove(file + suffix) // it may not be there
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if found, _ := doctor(t, g); len(found) > 0 {
		t.Errorf("with the file back: got %q, want none", found)
	}
	for _, o := range []*gatewaytest.Org{a, b, apart} {
		if answer := create(o); answer.Code != http.StatusOK {
			t.Errorf("%s with the file back: got %d %s, want 200", o.Slug, answer.Code, answer.Body)
		}
	}
}
