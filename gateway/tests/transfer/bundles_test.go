package transfer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/crypto/sealing"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestImportsOverHTTP checks that an administrator can upload a file and follow the import and its faults, and that
// nobody else can.
func TestImportsOverHTTP(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	org := g.Org(t, "acme", tenants.FeatureTeams)
	_, cookie := org.Person(t, "ada@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Ada", []string{"admin"} })
	admin := gatewaytest.Cookie(cookie)
	send := func(query, kind, file string, code int) string {
		t.Helper()
		a := org.Do(t, http.MethodPost, "/api/import"+query, admin, gatewaytest.Body(kind, file))
		if a.Code != code {
			t.Fatalf("%s %.80s: %d %s, want %d", query, file, a.Code, a.Body, code)
		}
		id, _ := a.Field("id").(string)
		return id
	}
	ended := func(id string) *gatewaytest.Answer {
		t.Helper()
		return fixture.AwaitImport(t, org, admin, id)
	}
	const bundle = "application/x-ndjson"
	for _, c := range []struct {
		query, kind, file, state, says string
	}{
		{"?dry_run=true", bundle, `{"kind":"contact","email":"b@example.com"}`, "done", `"created":1`},
		{"", bundle, `{"kind":"contact","email":"b@example.com"}` + "\n" + `{"kind":"contact","email":"no address"}`, "refused", "Nothing was stored: 1 of 2 lines are bad"},
		{"", bundle, `{"kind":"contact","email":"no address"}`, "refused", "email must be a plain address"},
		{"?partial=true", bundle, `{"kind":"contact","email":"c@example.com","external_id":"7"}` + "\n" + `{"kind":"contact","email":"no address"}`, "done", `"created":1,"unchanged":0,"updated":0,"failed":1`},
		{"?as=contacts", "text/csv", "Email,Town\nd@example.com,Bonn\n", "done", `"columns":[{"name":"Email","field":"email"},{"name":"Town","field":"city"}]`},
		{"?as=contacts&key=email", "text/csv; charset=utf-8", "Email,Town\nd@example.com,Rom\n", "done", `"updated":1`},
		{"?as=contacts&format=json", "application/json", `[{"email":"e@example.com"}]`, "done", `"created":1`},
		{"?as=contacts&dry_run=true", "application/json", `[{"email":"f@example.com"}]`, "done", `"format":"json"`},
		{"?as=contacts&dry_run=true", bundle, `{"email":"f@example.com"}` + "\n" + `{"email":"g@example.com"}`, "done", `"created":2`},
		{"?as=contacts&dry_run=true", "Text/CSV", "email\nf@example.com\n", "done", `"format":"csv"`},
		{"?dry_run=true", bundle, `{"kind":"contact","email":"b@example.com"}`, "done", `"format":null`},
		{"?as=contacts", "text/csv", "", "refused", "the file is empty"},
		{"?as=contacts", "text/csv", "email,Town\rh@example.com,Bonn\r", "done", `"unchanged":0`},
		{"?as=contacts", "application/json", `[{"email":"h@example.com"},]`, "refused", "row 2 is not valid JSON"},
	} {
		if a := ended(send(c.query, c.kind, c.file, 200)); a.Field("state") != c.state || !strings.Contains(string(a.Body), c.says) {
			t.Errorf("%s %s: %s, want %s and %s", c.query, c.file, a.Body, c.state, c.says)
		}
	}
	if a := org.Do(t, http.MethodGet, "/api/campaigns/count", gatewaytest.WithKey(org.Key(t, tenants.Contacts))); fmt.Sprint(a.Field("count")) != "4" {
		t.Errorf("stored: %s, want c, d, e and h", a.Body)
	}
	list := org.Do(t, http.MethodGet, "/api/import?sort=-created_at&filters[state]=refused", admin)
	if fmt.Sprint(list.Field("count")) != "4" {
		t.Errorf("listed: got %s, want count 4", list.Body)
	}
	send("?format=xml", bundle, "{}", 422)
	send("?as=dragons", "text/csv", "a\nb\n", 422)
	send("?nothing=1", bundle, "{}", 400)
	send("", "text/html", "{}", 415)
	for _, credential := range []gatewaytest.Request{gatewaytest.WithKey(org.Key(t, tenants.AllPermissions()...)), func(*http.Request) {}} {
		if a := org.Do(t, http.MethodPost, "/api/import", credential, gatewaytest.Body(bundle, "{}")); a.Code != 403 {
			t.Errorf("not an administrator: got %d %s, want 403", a.Code, a.Body)
		}
	}
	_, other := org.Person(t, "bob@example.com", func(u *control.NewUser) {
		u.Name, u.Permissions = "Bob", fixture.PermissionNames(tenants.AllPermissions())
	})
	if a := org.Do(t, http.MethodGet, "/api/import", gatewaytest.Cookie(other)); a.Code != 403 {
		t.Errorf("a person with all permissions: got %d %s, want 403", a.Code, a.Body)
	}
	recent := fixture.AuditRecords(t, org, 100)
	recorded := map[string]int{}
	for _, r := range recent {
		recorded[r.Operation+" "+r.Outcome]++
	}
	if recorded["import ok"] != 5 || recorded["imports.create ok"] != 14 {
		t.Errorf("the audit log has %v, want 5 of import and 14 of imports.create", recorded)
	}
}

// TestImport_AsIsCarriesNoRights checks that as_is in a line admits no person, grants no unknown
// right, and creates no report that cannot run.
func TestImport_AsIsCarriesNoRights(t *testing.T) {
	t.Parallel()
	org := gatewaytest.Start(t, gatewaytest.OwnFiles).Org(t, "acme", tenants.FeatureTeams)
	_, cookie := org.Person(t, "ada@example.com", fixture.WithRoles("admin"))
	admin := gatewaytest.Cookie(cookie)
	for line, field := range map[string]string{
		`{"kind":"user","as_is":true,"id":70,"name":"Eve","email":"eve@example.com","roles":["ghost"]}`:               "roles",
		`{"kind":"role","as_is":true,"name":"admin","permissions":["contacts"]}`:                                      "name",
		`{"kind":"custom_report","as_is":true,"id":"` + fixture.DocID(7) + `","title":"X","class":"Gone","query":{}}`: "class",
	} {
		a := org.Do(t, http.MethodPost, "/api/import", admin, gatewaytest.Body("application/x-ndjson", line))
		id, _ := a.Field("id").(string)
		if a := fixture.AwaitImport(t, org, admin, id); a.Field("state") != "refused" || !strings.Contains(string(a.Body), `"field":"`+field+`"`) {
			t.Errorf(`%s: got %s, want a.Field("state") = "refused" and containing %q`, line, a.Body, `"field":"`+field+`"`)
		}
	}
	// A report imported by an earlier version is shown as one whose source is gone.
	org.Import(t, `{"kind":"custom_report","id":"`+fixture.DocID(8)+`","pid":"of-a-class-that-is-gone","secure":false,"exportable":true,"title":"X","class":"Campaigns","query":{}}`)
	(&fixture.Party{Org: org}).Exec(t, `UPDATE "c:custom_reports" SET body = json_set(body, '$.class', 'Gone') WHERE id = ?1`, fixture.DocID(8))
	key := org.Key(t, tenants.ManageReports)
	asked := 0
	for _, op := range org.App.Operations() {
		if path := strings.NewReplacer("{id}", fixture.DocID(8), "{pid}", "of-a-class-that-is-gone").Replace(op.Path); op.Method == http.MethodGet && path != op.Path && !strings.Contains(path, "{") && strings.Contains(path, "report") {
			asked++
			if a := org.Do(t, op.Method, path+map[bool]string{true: "?data=1"}[op.Name == "reports.shared"], gatewaytest.WithKey(key)); a.Code >= 500 {
				t.Errorf("%s: got %d %s, want a.Code < 500", op.Name, a.Code, a.Body)
			}
		}
	}
	if asked < 4 {
		t.Errorf("%d rows were asked, want at least 4", asked)
	}
}

// TestImportsOneAtATime checks that an organization has one import at a time, from the beginning of its upload.
func TestImportsOneAtATime(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option)
	org := g.Org(t, "acme", tenants.FeatureTeams)
	importTwice(t, clock, org, org)
}

// TestImportsOneAtATime_OfReplicas is the same with replicas that share a store.
func TestImportsOneAtATime_OfReplicas(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	r := fixture.StartTrio(t, clock.Option)
	org := r.Replicas[0].Org(t, "acme", tenants.FeatureTeams)
	importTwice(t, clock, org, r.On(1, org))
}

// importTwice begins an import with one gateway and tries another import with the other.
func importTwice(t *testing.T, c *fixture.Clock, one, other *gatewaytest.Org) {
	t.Helper()
	_, cookie := one.Person(t, "ada@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Ada", []string{"admin"} })
	admin := gatewaytest.Cookie(cookie)
	begin := func() (end func() string) {
		t.Helper()
		held, release := newHeldBody()
		first := make(chan string, 1)
		go func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, one.URL("/api/import"), held)
			if err != nil {
				first <- err.Error()
				return
			}
			r.Host = one.Host
			r.Header.Set("Content-Type", "application/x-ndjson")
			admin(r)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				first <- err.Error()
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			first <- fmt.Sprint(resp.StatusCode, " ", string(body), err)
		}()
		<-held.asked
		fixture.Await(t, "the import has begun", func() bool {
			return strings.Contains(other.Do(t, http.MethodGet, "/api/import?filters[state]=running", admin).Text(), `"state":"running"`)
		})
		return func() string { release(); return <-first }
	}
	send := func() *gatewaytest.Answer {
		return other.Do(t, http.MethodPost, "/api/import", admin, gatewaytest.Body("application/x-ndjson", `{"kind":"team","name":"South"}`))
	}
	end := begin()
	if a := send(); a.Code != 409 || a.Message != "Another import of the organization is running" {
		t.Errorf("beside another: got %d %s, want 409 and the message %q",
			a.Code, a.Body, "Another import of the organization is running")
	}
	if said := end(); !strings.HasPrefix(said, "200 ") {
		t.Errorf(`got %v, want beginning with "200 "`, said)
	}
	fixture.Await(t, "another may follow", func() bool { return send().Code == 200 })
	fixture.Await(t, "it has ended", func() bool {
		return strings.Contains(other.Do(t, http.MethodGet, "/api/import?filters[state]=running", admin).Text(), `"count":0`)
	})

	// An import that is silent for a minute may or may not be running: another one may begin, and this one may not
	// continue.
	end = begin()
	fixture.Await(t, "it counts as interrupted", func() bool { // its first byte may be noted only now
		c.Advance(2 * time.Minute)
		return strings.Contains(other.Do(t, http.MethodGet, "/api/import?filters[state]=interrupted", admin).Text(), `"count":1`)
	})
	for state, want := range map[string]string{"running": `"count":0`, "interrupted": `"count":1`} {
		if told := other.Do(t, http.MethodGet, "/api/import?filters[state]="+state, admin).Text(); !strings.Contains(told, want) {
			t.Errorf("%s: got %s, want containing %q", state, told, want)
		}
	}
	a := send()
	if a.Code != 200 {
		t.Fatalf("after one that is quiet: got %d %s, want 200", a.Code, a.Body)
	}
	if said := end(); !strings.HasPrefix(said, "409 ") || !strings.Contains(said, "The import made no progress for too long; send the file again") {
		t.Errorf(`%v, want beginning with "409 " and containing "The import made no progress for too long; send the file again"`,
			said)
	}
	if a = fixture.AwaitImport(t, other, admin, a.Field("id").(string)); a.Field("state") != "done" {
		t.Errorf(`got %s, want a.Field("state") = "done"`, a.Body)
	}
	if told := other.Do(t, http.MethodGet, "/api/import", admin).Text(); strings.Count(told, `"state":"done"`) != 3 || strings.Count(told, `"state":"interrupted"`) != 1 {
		t.Error(told)
	}
}

// TestImport_InterruptedUploadLeavesNothing checks that an interrupted upload leaves nothing, also if a list had found
// it silent meanwhile.
func TestImport_InterruptedUploadLeavesNothing(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	one := gatewaytest.Start(t, clock.Option).Org(t, "acme")
	_, cookie := one.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	admin := gatewaytest.Cookie(cookie)
	listed := func(what string) func() bool {
		return func() bool {
			return strings.Contains(one.Do(t, http.MethodGet, "/api/import", admin).Text(), what)
		}
	}
	ctx, hangUp := context.WithCancel(t.Context())
	held, release := newHeldBody()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, one.URL("/api/import"), held)
		if err != nil {
			t.Error(err)
			return
		}
		r.Host = one.Host
		r.Header.Set("Content-Type", "application/x-ndjson")
		admin(r)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
			t.Error("got an answer, want none")
		}
	}()
	<-held.asked
	fixture.Await(t, "it has begun", listed(`"state":"running"`))
	begun := one.Do(t, http.MethodGet, "/api/import", admin).Field("results").([]any)[0].(map[string]any)
	clock.Advance(2 * time.Minute)
	if a := one.Do(t, http.MethodGet, fmt.Sprint("/api/import/", begun["id"]), admin); a.Field("state") != "interrupted" {
		t.Errorf("got %s, want it interrupted before a list stores that", a.Text())
	}
	if !listed(`"state":"interrupted"`)() {
		t.Error("got no interrupted import, want one")
	}
	hangUp()
	fixture.Await(t, "nothing is left of it", listed(`"count":0`))
	release()
	<-ended
}

// TestImport_PanicEndsOnlyThatImport checks that a fault in the program ends only the import that meets it.
func TestImport_PanicEndsOnlyThatImport(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	g := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) {
		o.Observe = func(c store.Call) {
			if c.Collection == "contacts" && broken.Load() {
				panic("broken")
			}
		}
	})
	org := g.Org(t, "acme")
	_, cookie := org.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	send := func() *gatewaytest.Answer {
		t.Helper()
		a := org.Do(t, http.MethodPost, "/api/import", gatewaytest.Cookie(cookie), gatewaytest.Body("application/x-ndjson", `{"kind":"contact","email":"b@example.com"}`))
		return fixture.AwaitImport(t, org, gatewaytest.Cookie(cookie), a.Field("id").(string))
	}
	broken.Store(true)
	if a := send(); a.Field("state") != "failed" || strings.Contains(a.Text(), "broken") {
		t.Errorf(`got %s, want a.Field("state") = "failed" and nothing containing "broken"`, a.Body)
	}
	broken.Store(false)
	if a := send(); a.Field("state") != "done" || !strings.Contains(g.Log.String(), "panic: broken") {
		t.Errorf("got %s\n%s\nwant a.Field(\"state\") = \"done\" and containing \"panic: broken\"", a.Body, g.Log.String())
	}
}

// TestImport_BusyImportStaysAlive checks that an import that is busy for long stays alive, and that no other may
// begin.
func TestImport_BusyImportStaysAlive(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	release := make(chan struct{})
	var held atomic.Bool
	g := gatewaytest.Start(t, clock.Option, func(_ *config.Config, o *gateway.Options) {
		o.Observe = func(c store.Call) {
			if c.Collection == "contacts" && held.Load() {
				<-release
			}
		}
	})
	org := g.Org(t, "acme")
	_, cookie := org.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	admin := gatewaytest.Cookie(cookie)
	send := func() *gatewaytest.Answer {
		return org.Do(t, http.MethodPost, "/api/import", admin, gatewaytest.Body("application/x-ndjson", `{"kind":"contact","email":"b@example.com"}`))
	}
	held.Store(true)
	id := send().Field("id").(string)
	told := func() string { return org.Do(t, http.MethodGet, "/api/import/"+id, admin).Field("updated_at").(string) }
	for range 3 {
		before := told()
		clock.Advance(40 * time.Second)
		fixture.Await(t, "the import is told of", func() bool { return told() > before })
	}
	if a := send(); a.Code != 409 {
		t.Errorf("another began: got %d %s, want 409", a.Code, a.Body)
	}
	held.Store(false)
	close(release)
	if a := fixture.AwaitImport(t, org, admin, id); a.Field("state") != "done" {
		t.Errorf(`got %s, want a.Field("state") = "done"`, a.Body)
	}
}

// TestImport_TooMuch checks that the sender of a file that is too large is told so.
func TestImport_TooMuch(t *testing.T) {
	t.Parallel()
	org := gatewaytest.Start(t).Org(t, "acme")
	_, cookie := org.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	a := org.Do(t, http.MethodPost, "/api/import", gatewaytest.Cookie(cookie), gatewaytest.Body("application/x-ndjson", strings.Repeat("{\"kind\":\"role\"}\n", 100_001)))
	a = fixture.AwaitImport(t, org, gatewaytest.Cookie(cookie), a.Field("id").(string))
	if said := fmt.Sprint(a.Field("message")); a.Field("state") != "refused" || !strings.Contains(said, "too many lines") || !strings.Contains(said, "32 MiB") || !strings.Contains(said, "; line ") {
		t.Errorf(`got %s, want a.Field("state") = "refused" and containing "too many lines" and containing "32 MiB" and containing "; line "`,
			a.Body)
	}
}

// heldBody is a body that returns its first byte, and the rest after its release.
type heldBody struct {
	asked chan struct{}
	rest  chan struct{}
	state int
}

func newHeldBody() (*heldBody, func()) {
	b := &heldBody{asked: make(chan struct{}), rest: make(chan struct{})}
	return b, func() { close(b.rest) }
}

func (b *heldBody) Read(p []byte) (int, error) {
	b.state++
	switch b.state {
	case 1:
		return copy(p, "\n"), nil
	case 2:
		close(b.asked)
		<-b.rest
		return copy(p, "{\"kind\":\"team\",\"name\":\"North\"}\n"), nil
	}
	return 0, io.EOF
}

// TestExportOverHTTP checks that an administrator can export the whole organization and import it elsewhere.
func TestExportOverHTTP(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	from, to := g.Org(t, "acme", tenants.FeatureTeams), g.Org(t, "birch", tenants.FeatureTeams)
	cookies := map[*gatewaytest.Org]gatewaytest.Request{}
	for _, org := range []*gatewaytest.Org{from, to} {
		_, cookie := org.Person(t, "ada@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Ada", []string{"admin"} })
		cookies[org] = gatewaytest.Cookie(cookie)
	}
	from.Import(t, `{"kind":"contact_field","key":"ssn","title":"SSN","type":"Encrypted"}`,
		`{"kind":"contact","email":"b@example.com","external_id":"1","fields":{"ssn":"4711"}}`, `{"kind":"folder","name":"Contracts"}`)
	private, err := sealing.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	key := url.QueryEscape(private.Public().TransferText())
	bundle := from.Do(t, http.MethodGet, "/api/export?public_key="+key, cookies[from])
	if bundle.Code != 200 || bundle.Header.Get("Content-Type") != "application/x-ndjson" || !strings.HasPrefix(bundle.Header.Get("Content-Disposition"), "attachment") ||
		strings.Contains(string(bundle.Body), "4711") || !strings.Contains(string(bundle.Body), `{"sealed":`) || !strings.HasPrefix(string(bundle.Body), `{"kind":"organization"`) {
		t.Fatalf("got %d %v %s, want a bundle as an attachment", bundle.Code, bundle.Header, bundle.Body)
	}
	plain := from.Do(t, http.MethodGet, "/api/export", cookies[from])
	for _, word := range []string{`"Contracts"`, `"b@example.com"`, `{"enc":`} {
		if !strings.Contains(string(plain.Body), word) {
			t.Errorf("without a key: got no %s in %s, want it", word, plain.Body)
		}
	}
	for _, refused := range []struct {
		query string
		as    gatewaytest.Request
		code  int
	}{
		{"?public_key=x", cookies[from], 422},
		{"", gatewaytest.WithKey(from.Key(t, tenants.AllPermissions()...)), 403},
		{"", cookies[to], 403},
	} {
		if a := from.Do(t, http.MethodGet, "/api/export"+refused.query, refused.as); a.Code != refused.code {
			t.Errorf("%s: %d %s, want %d", refused.query, a.Code, a.Body, refused.code)
		}
	}
	var lines []string
	for line := range strings.Lines(string(plain.Body)) {
		if !strings.Contains(line, `{"enc":`) && !strings.HasPrefix(line, `{"kind":"user"`) {
			lines = append(lines, line)
		}
	}
	if a := to.Do(t, http.MethodPost, "/api/import", cookies[to], gatewaytest.Body("application/x-ndjson", strings.Join(lines, ""))); a.Code != 200 {
		t.Fatalf("got %d %s, want 200", a.Code, a.Body)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		a := to.Do(t, http.MethodGet, "/api/export", cookies[to])
		if strings.Contains(string(a.Body), `"Contracts"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("imported elsewhere: got %s, want it done", a.Body)
		}
	}
}
