package operations

import (
	"bytes"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"tenantry/backends/enginetest"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/audit"
	"tenantry/tenants"
)

// canary is a text that the organization has everywhere, to find what is left of it.
const canary = "canary-of-the-deleted"

// filesWith returns the files in a folder that contain the text.
func filesWith(t *testing.T, folder, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == folder {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(filepath.Clean(path))
		if bytes.Contains(content, []byte(text)) {
			found = append(found, filepath.Base(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// ends fills an organization and its trash with the canary, and returns a function that reads contacts with one of its
// keys.
func ends(t *testing.T, g *gatewaytest.Gateway, slug string) (read func() (int, string)) {
	t.Helper()
	org := g.Org(t, slug)
	command[control.Organization](t, g, "org.update", control.OrganizationChange{Slug: slug, OrganizationFields: control.OrganizationFields{Name: canary, Providers: []string{canary}}})
	key := org.KeyWith(t, func(k *control.NewKey) {
		k.Name, k.Permissions = canary, []string{string(tenants.Contacts)}
	}).Token
	org.Person(t, "a@example.com", func(u *control.NewUser) { u.Name = canary })
	org.Import(t, `{"kind":"contact_field","key":"iban","title":"IBAN","type":"Encrypted"}`,
		`{"kind":"contact","email":"a@example.com","first_name":"`+canary+`","fields":{"iban":"`+canary+`"}}`)
	org.Import(t, `{"kind":"contact","id":"0000000000000000000000c1","first_name":"`+canary+`"}`)
	org.Do(t, http.MethodDelete, "/api/contacts/0000000000000000000000c1", gatewaytest.WithKey(key))
	return func() (int, string) {
		a := org.Get(t, key, "/api/contacts")
		return a.Code, a.Text()
	}
}

// TestErasureRemovesBytes checks that an erased organization leaves no object, neither of files and their versions nor of
// uploads under way, erased by command or when it is due, and that those of others stay.
func TestErasureRemovesBytes(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option, func(_ *config.Config, o *gateway.Options) { o.Leases.Settled = 3 * time.Second })
	folder := func(slug string) string {
		org := &gatewaytest.Org{Gateway: g, Slug: slug}
		return filepath.Join(g.Config.Data, "files", strconv.FormatInt(org.Tenant(t).Org.OrgID, 10))
	}
	folders := map[string]string{}
	for _, slug := range []string{"now", "due", "stays"} {
		org := g.Org(t, slug)
		key := gatewaytest.WithKey(org.Key(t, tenants.ManageFiles))
		a := org.Do(t, http.MethodPost, "/api/files/upload?filename=a.txt", key, gatewaytest.Body("text/plain", canary))
		files, _ := a.Field("results").([]any)
		if a.Code != http.StatusOK || len(files) != 1 {
			t.Fatalf("upload: got %d %s", a.Code, a.Body)
		}
		id, _ := files[0].(map[string]any)["id"].(string)
		if a := org.Do(t, http.MethodPost, "/api/files/"+id+"/content", key, gatewaytest.Body("text/plain", canary+" again")); a.Code != http.StatusOK {
			t.Fatalf("replace: got %d %s", a.Code, a.Body)
		}
		tus := gatewaytest.Header("Tus-Resumable", "1.0.0")
		begun := org.Do(t, http.MethodPost, "/api/files/tus", key, tus, gatewaytest.Header("Upload-Length", "1000"),
			gatewaytest.Header("Upload-Metadata", "filename YS50eHQ="))
		at, err := url.Parse(begun.Header.Get("Location"))
		if err != nil || begun.Code != http.StatusCreated {
			t.Fatalf("begin an upload: got %d %s", begun.Code, begun.Body)
		}
		part := org.Do(t, http.MethodPatch, at.Path, key, tus, gatewaytest.Header("Upload-Offset", "0"),
			gatewaytest.Body("application/offset+octet-stream", canary))
		if part.Code != http.StatusNoContent {
			t.Fatalf("send a part: got %d %s", part.Code, part.Body)
		}
		folders[slug] = folder(slug)
		if found := filesWith(t, folders[slug], canary); len(found) != 3 {
			t.Fatalf("%s has the objects %q, want two contents and a part", slug, found)
		}
	}
	command[control.Certificate](t, g, "org.delete", control.Deletion{Slug: "now", Now: true})
	command[control.Certificate](t, g, "org.delete", control.Deletion{Slug: "due"})
	clock.Advance(31 * fixture.Day)
	fixture.EmptyTrash(t, g.App)
	for slug, want := range map[string]int{"now": 0, "due": 0, "stays": 2} { // an upload that nobody goes on with ends
		if found := filesWith(t, folders[slug], canary); len(found) != want {
			t.Errorf("%s has the objects %q, want %d", slug, found, want)
		}
	}
}

func command[Out any](t *testing.T, g *gatewaytest.Gateway, name string, in any) Out {
	t.Helper()
	out, err := control.Call[Out](t.Context(), g.Commands, name, in)
	if err != nil {
		t.Fatalf("%s: got %v, want no error", name, err)
	}
	return out
}

// TestOrganizationIsDeletedAndErased checks that a deleted organization answers nobody and can be restored until it is
// erased. Afterwards nothing of it is left in files, a certificate says so, and the installation's audit log says who
// did it.
func TestOrganizationIsDeletedAndErased(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]gatewaytest.Option{"engine": nil, "shared files": {gatewaytest.SharedFiles}, "own files": {gatewaytest.OwnFiles}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := &fixture.Clock{}
			g := gatewaytest.Start(t, append(options, clock.Option, func(_ *config.Config, o *gateway.Options) { o.Leases.Settled = 3 * time.Second })...)
			stays := ends(t, g, "stays")
			read := ends(t, g, "acme")
			_, before := read()
			nobody := g.Do(t, http.MethodGet, "nobody.localhost", "/api/contacts")

			due := command[control.Certificate](t, g, "org.delete", control.Deletion{Slug: "acme"})
			if due.State != tenants.Deleted || due.DueAt == nil || due.DueAt.Sub(*due.DeletedAt) != 30*fixture.Day || due.ErasedAt != nil || due.Documents != nil {
				t.Errorf("deleted: got %+v, want it due after 30 days and not erased", due)
			}
			if code, text := read(); code != nobody.Code || text != nobody.Text() {
				t.Errorf("a deleted organization answers %d %s, one that is not there %d %s, want %d and %v",
					code, text, nobody.Code, nobody.Text(), nobody.Code, nobody.Text())
			}
			clock.Advance(29 * fixture.Day)
			fixture.EmptyTrash(t, g.App)
			if again := command[control.Certificate](t, g, "org.delete", control.Deletion{Slug: "acme"}); !again.DueAt.Equal(*due.DueAt) {
				t.Errorf("deleted twice: due on %s, want %s", again.DueAt, due.DueAt)
			}
			command[control.Organization](t, g, "org.undelete", control.Slug{Slug: "acme"})
			clock.Advance(time.Second)
			if code, text := read(); code != 200 || text != before {
				t.Errorf("undeleted: got %d %s, want 200 %s", code, text, before)
			}

			command[control.Organization](t, g, "org.suspend", control.Slug{Slug: "acme"})
			command[control.Certificate](t, g, "org.delete", control.Deletion{Slug: "acme"})
			if o := command[control.Organization](t, g, "org.undelete", control.Slug{Slug: "acme"}); o.State != "suspended" {
				t.Errorf("suspended before, undeleted it is %s, want State suspended", o.State)
			}
			command[control.Certificate](t, g, "org.delete", control.Deletion{Slug: "acme"})
			clock.Advance(30*fixture.Day + time.Hour)
			fixture.EmptyTrash(t, g.App)
			erased := command[control.Certificate](t, g, "org.certificate", control.Ended{Slug: "acme"})
			if erased.State != tenants.Removed || erased.ErasedAt == nil || erased.Documents == nil || *erased.Documents < 2 || erased.People < 3 || erased.DataKeys < 1 {
				t.Errorf("erased: got %+v, want the numbers of what was erased", erased)
			}
			if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.undelete", control.Slug{Slug: "acme"}); err == nil {
				t.Error("undeleting an erased organization: got no error, want one")
			}
			if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.create", control.NewOrganization{Slug: "acme", OrganizationFields: control.OrganizationFields{Name: "A"}}); err == nil {
				t.Error("creating an organization with an erased slug: got no error, want one")
			}
			if code, text := stays(); code != 200 || !strings.Contains(text, canary) {
				t.Errorf("its neighbour: got %d %s, want 200 with %q", code, text, canary)
			}
			var done []string
			for _, rec := range command[[]control.AuditRecord](t, g, "audit", control.LogPage{}) {
				done = append(done, rec.Operation+" "+rec.Subject+" "+rec.Facts["organization"])
			}
			want := "org.erased system acme,org.delete command acme,org.undelete command acme,org.delete command acme,org.suspend command acme,org.undelete command acme,org.delete command acme,org.delete command acme,org.update command acme,org.create command acme,org.update command stays,org.create command stays"
			if got := strings.Join(done, ","); got != want {
				t.Errorf("the installation's log has %s, want %s", got, want)
			}
			command[control.Certificate](t, g, "org.delete", control.Deletion{Slug: "stays", Now: true})
			again := command[control.Certificate](t, g, "org.delete", control.Deletion{Slug: "acme"})
			if !again.ErasedAt.Equal(*erased.ErasedAt) || again.People != erased.People {
				t.Errorf("erased once more: got %+v, want %+v", again, erased)
			}
			if left := filesWith(t, g.Config.Data, canary); len(left) > 0 {
				t.Errorf("what was erased is in %q, want none", left)
			}
			if overwritten := len(erased.Overwritten) == 2; overwritten != (options != nil || !enginetest.OnMongo()) {
				t.Errorf("overwritten = %q, want both files on SQLite", erased.Overwritten)
			}
		})
	}
}

// database is a database of the gateway as another program opens it.
type database struct {
	*sqlite.Conn
	path string
}

func opened(t *testing.T, folder string) (all []database) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".db" {
			return err
		}
		conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			all = append(all, database{conn, path})
		}
		return err
	})
	if err != nil || len(all) < 2 {
		t.Fatalf("%d databases: got %v, want no error and at least 2 all", len(all), err)
	}
	return all
}

func sql(t *testing.T, db database, text string) {
	t.Helper()
	if err := sqlitex.ExecuteTransient(db.Conn, text, nil); err != nil {
		t.Fatalf("%s: got %v, want no error", db.path, err)
	}
}

// reading reads all databases like a backup, until done is called.
func reading(t *testing.T, folder string) (done func()) {
	t.Helper()
	all := opened(t, folder)
	for _, db := range all {
		sql(t, db, "BEGIN")
		sql(t, db, "SELECT count(*) FROM sqlite_schema")
	}
	return func() {
		for _, db := range all {
			sql(t, db, "COMMIT")
		}
	}
}

// TestDelayedErasureIsCompleted checks that an erasure that a reader of the files delayed is completed afterwards.
func TestDelayedErasureIsCompleted(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, gatewaytest.SharedFiles, clock.Option)
	ends(t, g, "acme")
	command[control.Certificate](t, g, "org.delete", control.Deletion{Slug: "acme"})
	clock.Advance(31 * fixture.Day)
	done := reading(t, g.Config.Data)
	fixture.TrashTurn(t, g.App)
	half := command[control.Certificate](t, g, "org.certificate", control.Ended{Slug: "acme"})
	if half.State != tenants.Removed || half.ErasedAt != nil {
		t.Errorf("while a backup reads: got %+v, want State %v and ErasedAt nil", half, tenants.Removed)
	}
	if _, err := control.Call[control.Certificate](t.Context(), g.Commands, "org.delete", control.Deletion{Slug: "acme"}); err == nil {
		t.Error("erasing while a backup reads: got no error, want one")
	}
	if log := command[[]control.AuditRecord](t, g, "audit", control.LogPage{}); log[0].Operation != "org.delete" || log[0].Outcome != audit.Failed || log[0].Facts["organization"] != "acme" {
		t.Errorf("the failed erasure is recorded as %+v, want a failed org.delete of acme", log[0])
	}
	done()
	clock.Advance(2 * time.Hour)
	fixture.EmptyTrash(t, g.App)
	if whole := command[control.Certificate](t, g, "org.certificate", control.Ended{Slug: "acme"}); whole.ErasedAt == nil || *whole.Documents != *half.Documents {
		t.Errorf("afterwards: got %+v, want it erased with the same documents", whole)
	}
	if left := filesWith(t, g.Config.Data, canary); len(left) > 0 {
		t.Errorf("what was erased is in %q, want none", left)
	}
}

// TestInstallationLogIsSealed checks that a record removed from the installation's audit log is noticed, also after its
// keys were re-wrapped.
func TestInstallationLogIsSealed(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, gatewaytest.Embedded, clock.Option)
	g.Org(t, "acme")
	command[control.Rotation](t, g, "keyring.rotate", struct{}{})
	clock.Advance(2 * time.Hour)
	fixture.EmptyTrash(t, g.App)
	command[control.Rotation](t, g, "keyring.rotate", struct{}{})
	command[control.Retired](t, g, "keyring.retire", control.Version{Version: 1})
	if v := command[audit.Verification](t, g, "audit.verify", control.Log{}); !v.Intact || v.Records != 2 || v.Unsealed != 2 {
		t.Errorf("got %+v, want v.Intact and v.Records = 2 and v.Unsealed = 2", v)
	}
	for _, conn := range opened(t, g.Config.Data) {
		if strings.HasSuffix(conn.path, "control.db") {
			sql(t, conn, `DELETE FROM "c:audit_log" WHERE id = (SELECT min(id) FROM "c:audit_log")`)
		}
	}
	var err error
	for deadline := time.Now().Add(time.Minute); err == nil && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) { // what is read lies on a snapshot for a moment
		_, err = control.Call[audit.Verification](t.Context(), g.Commands, "audit.verify", control.Log{})
	}
	if err == nil || !strings.Contains(err.Error(), "seals do not match") {
		t.Errorf("a record is gone, and the verification says %v, want an error with %q", err, "seals do not match")
	}
}

// TestInstallationLogNamesTheOperator checks the records of commands, including one for each organization of a file,
// and none of a dry run.
func TestInstallationLogNamesTheOperator(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	for _, dry := range []bool{true, false} {
		file := strings.NewReader(`{"slug":"one","name":"One"}` + "\n" + `{"slug":"one","name":"Again"}` + "\n" + `{"slug":"two","name":"Two"}` + "\n")
		_, _ = g.Commands.Do(t.Context(), "org.create.from", control.Creations{DryRun: dry}, control.Streams{Input: file, Operator: "ada"}) // one line is refused
		var told []string
		for _, rec := range command[[]control.AuditRecord](t, g, "audit", control.LogPage{}) {
			told = append(told, rec.Operation+" "+rec.Facts["organization"]+" "+rec.Facts["operator"])
		}
		slices.Sort(told)
		if want := map[bool]string{true: "", false: "org.create one ada,org.create two ada"}[dry]; strings.Join(told, ",") != want {
			t.Errorf("dry run %t: %q, want %s", dry, told, want)
		}
	}
}
