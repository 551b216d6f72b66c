package access

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// The tests of this file and of ended_slow_test.go and ended_named_test.go check that no right outlives its end. Each
// way in which rights end is tried on work in progress of every row: a body held open, an upload, a job, a stream.

// ending is a way in which rights end.
type ending struct {
	name string
	// begin creates a credential with all rights, and returns the function that ends it.
	begin func(t *testing.T, p *fixture.Party) (as gatewaytest.Request, end func())
	// keeps reports whether callers of the row keep their access; nil: none do.
	keeps func(op *operation.Row) bool
	open  bool // it ends what is open to all, too
}

func keyEnding(name string, end func(t *testing.T, p *fixture.Party, key control.IssuedKey), keeps func(*operation.Row) bool) ending {
	return ending{name: name, keeps: keeps, begin: func(t *testing.T, p *fixture.Party) (gatewaytest.Request, func()) {
		t.Helper()
		key := p.KeyWith(t, func(k *control.NewKey) { k.Permissions = fixture.PermissionNames(tenants.AllPermissions()) })
		return gatewaytest.WithKey(key.Token), func() { end(t, p, key) }
	}}
}

func personEnding(name string, end func(t *testing.T, p *fixture.Party, id int64, as gatewaytest.Request), keeps func(*operation.Row) bool) ending {
	return ending{name: name, keeps: keeps, begin: func(t *testing.T, p *fixture.Party) (gatewaytest.Request, func()) {
		t.Helper()
		u, cookie := p.Person(t, p.NewText()+"@example.com", func(u *control.NewUser) { u.Name, u.Roles = p.NewText(), []string{"admin"} })
		return gatewaytest.Cookie(cookie), func() { end(t, p, u.ID, gatewaytest.Cookie(cookie)) }
	}}
}

// needsNoPermission reports whether the row requires only an accepted credential.
func needsNoPermission(op *operation.Row) bool {
	return !op.Rule.IsAdminOnly() && op.Rule.Permissions() == nil
}

func asAdmin(p *fixture.Party) fixture.Client {
	return fixture.As(p.Org, gatewaytest.Cookie(p.AdminCookie))
}

// changeAccount changes the account of a key.
func changeAccount(t *testing.T, p *fixture.Party, key control.IssuedKey, change string) {
	t.Helper()
	a := asAdmin(p).Want(t, http.MethodGet, "/api/service-accounts?per_page=1000", "", 200, "")
	for _, found := range a.Field("results").([]any) {
		if account := found.(map[string]any); account["name"] == key.Account || account["id"] == key.Account {
			asAdmin(p).Want(t, http.MethodPut, "/api/service-accounts/"+account["id"].(string), change, 200, "")
			return
		}
	}
	t.Fatalf("got no account %s, want one", key.Account)
}

// setState suspends or resumes the organization.
func setState(t *testing.T, p *fixture.Party, command string) {
	t.Helper()
	if _, err := control.Call[control.Organization](t.Context(), p.Commands, command, control.Slug{Slug: p.Slug}); err != nil {
		t.Fatal(err)
	}
}

func keyEndings() []ending {
	account := func(change string) func(*testing.T, *fixture.Party, control.IssuedKey) {
		return func(t *testing.T, p *fixture.Party, key control.IssuedKey) {
			changeAccount(t, p, key, change)
		}
	}
	suspended := keyEnding("organization of the key suspended", func(t *testing.T, p *fixture.Party, _ control.IssuedKey) { setState(t, p, "org.suspend") }, nil)
	suspended.open = true
	return []ending{
		keyEnding("key revoked", func(t *testing.T, p *fixture.Party, key control.IssuedKey) {
			asAdmin(p).Want(t, http.MethodDelete, "/api/keys/"+key.ID, "", 200, "")
		}, nil),
		keyEnding("account deactivated", account(`{"active":false}`), nil),
		keyEnding("permissions of the account taken", account(`{"permissions":[]}`), func(op *operation.Row) bool {
			return needsNoPermission(op) || op.Rule.ExemptsKeys()
		}),
		keyEnding("account limited to a team", func(t *testing.T, p *fixture.Party, key control.IssuedKey) {
			t.Helper()
			changeAccount(t, p, key, `{"teams":["`+p.IDs[fixture.RefTeam]+`"]}`)
		}, func(op *operation.Row) bool { return !op.Rule.IsUnlimited() }),
		suspended,
	}
}

func personEndings() []ending {
	suspended := personEnding("organization of the person suspended", func(t *testing.T, p *fixture.Party, _ int64, _ gatewaytest.Request) { setState(t, p, "org.suspend") }, nil)
	suspended.open = true
	return []ending{
		personEnding("person deactivated", func(t *testing.T, p *fixture.Party, id int64, _ gatewaytest.Request) {
			asAdmin(p).Want(t, http.MethodPost, fmt.Sprintf("/api/users/%d/deactivate", id), "", 200, "")
		}, nil),
		personEnding("role dropped", func(t *testing.T, p *fixture.Party, id int64, _ gatewaytest.Request) {
			asAdmin(p).Want(t, http.MethodPut, fmt.Sprintf("/api/users/%d", id), `{"roles":[]}`, 200, "")
		}, needsNoPermission),
		personEnding("session ended", func(t *testing.T, p *fixture.Party, _ int64, as gatewaytest.Request) {
			fixture.As(p.Org, as).Want(t, http.MethodPost, "/auth/sign-out", "", 200, "")
		}, nil),
		suspended,
	}
}

// TestBodiesHeldOpenEndWithTheirRight checks that a caller whose rights end before the end of a body changes nothing
// with it.
func TestBodiesHeldOpenEndWithTheirRight(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, func(c *config.Config, _ *gateway.Options) { c.Timeouts.Read = time.Minute })
	for _, credential := range []struct {
		of      operation.Credentials
		endings []ending
	}{{operation.Key, keyEndings()}, {operation.Session, personEndings()}} {
		nothing := credential.endings[0]
		nothing.name, nothing.begin = "nothing ended", func(t *testing.T, p *fixture.Party) (gatewaytest.Request, func()) {
			as, _ := credential.endings[0].begin(t, p)
			return as, func() {}
		}
		nothing.keeps = func(*operation.Row) bool { return true }
		for _, e := range append([]ending{nothing}, credential.endings...) {
			rows := slices.DeleteFunc(w.Rows(), func(op operation.Row) bool {
				s := fixture.SampleFor(&op)
				fits := op.Credentials&credential.of != 0 && (credential.of != operation.Key || op.Kinds.Admits(tenants.ServerFull) && !op.Rule.IsAdminOnly())
				if op.Name == "passwords.forgot" { // it answers the same where there is no organization
					return true
				}
				return op.Body == nil || !fits && (op.Credentials != operation.Open || !e.open) || e.name == nothing.name && (s.Once || s.Slow || fixture.UsesUp(&op))
			})
			for some := range slices.Chunk(rows, 16) { // of which none waits longer than it may
				holdOpen(t, w, e, some)
			}
			if !testing.Short() && len(rows) < 20 {
				t.Errorf("%s: got %d rows, want at least 20", e.name, len(rows))
			}
		}
	}
}

// holdOpen ends rights while the bodies of calls of the rows are held back.
func holdOpen(t *testing.T, w *fixture.World, e ending, rows []operation.Row) {
	t.Helper()
	p := w.A
	as, end := e.begin(t, p)
	var held []*fixture.OpenBody
	for n := range rows {
		op := &rows[n]
		q := w.Build(op, op.Path, fixture.SampleFor(op), p.Own, fixture.Every)
		if op.Credentials != operation.Open {
			q.Changes = append(q.Changes, as)
		}
		held = append(held, p.HoldBody(t, op, q))
	}
	end()
	before := p.Export(t)
	for _, h := range held {
		fixture.Send(t, h.Conn, string(h.Body))
		code, body := h.Answer(t)
		failed := code >= 500 || strings.Contains(body, `"status":"ok"`)
		if h.Op.Credentials != operation.Open {
			failed = code != http.StatusForbidden
		}
		if e.keeps != nil && e.keeps(h.Op) {
			failed = code >= 500 || body == fixture.DeniedBody
		}
		if failed {
			t.Errorf("%s: got %s: %d %.300s, want not failed", e.name, h.Op.Name, code, body)
		}
	}
	if e.keeps == nil && p.Export(t) != before {
		t.Errorf("%s: got a changed organization, want it unchanged", e.name)
	}
	if e.open {
		setState(t, p, "org.resume")
	}
}

// TestStreamsEndWithTheirRight checks that a caller whose rights end before a stream begins gets nothing of it, on any
// row that streams.
func TestStreamsEndWithTheirRight(t *testing.T) {
	t.Parallel()
	held := fixture.NewStoreGate()
	w := fixture.NewWorld(t, fixture.WithPlants, held.Option)
	p := w.A
	revoke := func(t *testing.T, p *fixture.Party) {
		asAdmin(p).Want(t, http.MethodDelete, "/api/custom-reports/"+p.IDs[fixture.RefReport]+"/shares", "", 200, "")
	}
	withhold := func(t *testing.T, p *fixture.Party) {
		asAdmin(p).Want(t, http.MethodPut, "/api/custom-reports/"+p.IDs[fixture.RefReport], `{"shareable":false}`, 200, "")
	}
	nobody := func(name string, end func(*testing.T, *fixture.Party)) ending {
		return ending{name: name, open: true, begin: func(t *testing.T, p *fixture.Party) (gatewaytest.Request, func()) {
			return func(*http.Request) {}, func() { end(t, p) }
		}}
	}
	openEndings := []ending{
		nobody("the organization suspended", func(t *testing.T, p *fixture.Party) { setState(t, p, "org.suspend") }),
		nobody("tokens revoked", revoke), nobody("not to be shared any more", withhold),
	}
	tried := 0
	for n, rows := 0, w.App.Operations(); n < len(rows); n++ {
		op := &rows[n]
		if op.Streams == nil {
			continue
		}
		q := w.Build(op, op.Path, fixture.SampleFor(op), p.Own, func(name string) bool { return name != "public_key" && name != "teams[]" && name != "teams" })
		endings := openEndings
		switch {
		case op.Credentials&operation.Key != 0:
			endings = append(keyEndings(), keyEnding("another permission of the account taken", func(t *testing.T, p *fixture.Party, key control.IssuedKey) {
				changeAccount(t, p, key, `{"permissions":["`+strings.Join(fixture.PermissionNames(tenants.AllPermissions()[1:]), `","`)+`"]}`)
			}, nil))
		case op.Credentials&operation.Session != 0:
			endings = personEndings()
		}
		if op.Credentials&operation.Key != 0 && op.Credentials&operation.Session != 0 {
			endings = append(endings, personEndings()...)
		}
		for i, e := range append([]ending{endings[0]}, endings...) {
			as, end := e.begin(t, p)
			if i == 0 {
				end = func() {}
			}
			a := held.During(t, "write audit_log", 0, func() *gatewaytest.Answer {
				return p.Do(t, q.Method, q.Target, append(q.Changes, as)...)
			}, end)
			switch refused := a.Status == "failed"; {
			case i == 0 && (a.Code != http.StatusOK || refused):
				t.Errorf("%s: nothing ended: got %d %.300s, want 200", op.Name, a.Code, a.Body)
			case i > 0 && !refused:
				t.Errorf("%s: %s: got %d %.300s, want a refusal", op.Name, e.name, a.Code, a.Body)
			}
			if i > 0 && e.open && strings.Contains(e.name, "suspended") {
				setState(t, p, "org.resume")
			}
			if e.name == "tokens revoked" && i > 0 {
				p.IDs[fixture.RefShare], _ = p.Share(t, p.IDs[fixture.RefReport], map[string]any{})
				q = w.Build(op, op.Path, fixture.SampleFor(op), p.Own, func(name string) bool { return name != "teams[]" && name != "teams" })
			}
			tried++
		}
	}
	if tried < 30 {
		t.Errorf("only %d streams were tried, want at least 30", tried)
	}
}

// TestUploadsEndWithTheirRight checks that a caller whose rights end during an upload is refused soon, however slow the
// upload, and that nothing of it is kept.
func TestUploadsEndWithTheirRight(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithDemoFiles, func(c *config.Config, _ *gateway.Options) { c.Timeouts.Read = time.Hour })
	p := w.A
	for n, rows := 0, w.App.Operations(); n < len(rows); n++ {
		op := &rows[n]
		if op.Upload == nil {
			continue
		}
		want := http.StatusForbidden
		if op.AnySite {
			want = http.StatusNotFound // as for a form that is not public
		}
		for _, e := range personEndings() {
			if op.Credentials == operation.Open && !e.open { // it takes no credential that could end
				continue
			}
			as, end := e.begin(t, p)
			q := w.Build(op, op.Path, fixture.SampleFor(op), p.Own, func(string) bool { return op.Resource != "import" })
			q.Changes = append(q.Changes, gatewaytest.Body(op.Upload[0], op.UploadExamples[0]))
			h := p.HoldBody(t, op, q, as)
			fixture.Send(t, h.Conn, string(h.Body[:5]))
			before := p.Export(t)
			end()
			if code, body := h.Answer(t); code != want { // though nothing more is sent
				t.Errorf("%s: got %s: %d %.300s, want %v", op.Name, e.name, code, body, want)
			}
			if e.open {
				setState(t, p, "org.resume")
			}
			if op.Resource != "import" {
				continue
			}
			if a := asAdmin(p).Want(t, http.MethodGet, op.Path, "", 200, ""); strings.Contains(a.Text(), `"state":"running"`) || strings.Count(a.Text(), `"state":`) != 1 {
				t.Errorf("%s: %s: got the imports %s, want a single one that has ended", op.Name, e.name, a.Text())
			}
			if e.name == "session ended" && p.Export(t) != before {
				t.Errorf("%s: %s: got a changed organization, want it unchanged", op.Name, e.name)
			}
		}
	}
}

// TestImportsEndWithTheirRight checks that an import stores nothing more, and says so, when its owner loses the rights
// or its organization is suspended.
func TestImportsEndWithTheirRight(t *testing.T) {
	t.Parallel()
	held := fixture.NewStoreGate()
	w := fixture.NewWorld(t, held.Option)
	p := w.A
	why := map[string]string{"role dropped": "may no longer import", "organization of the person suspended": "was suspended"}
	for i, e := range append([]ending{personEndings()[0]}, personEndings()...) {
		for _, at := range []string{"count contacts", "write roles"} { // before anything is stored, and before what follows
			as, end := e.begin(t, p)
			if i == 0 {
				end = func() {}
			}
			mark := fmt.Sprintf("job%d%s", i, at[:5])
			lines := fmt.Sprintf(`{"kind":"role","name":"%s","permissions":["contacts"]}`+"\n"+`{"kind":"user","id":%d,"name":"%[1]s-made","email":"%[1]s@example.com","roles":["%[1]s"]}`+"\n"+`{"kind":"contact","email":"%[1]s-made@example.com"}`+"\n", mark, 9_000_000-1000*(2*i+len(at)%2)) // below those that are given from now on
			held.What.Store(&at)
			a := p.Do(t, http.MethodPost, "/api/import", as, gatewaytest.Body("application/x-ndjson", lines))
			id, _ := a.Field("id").(string)
			<-held.Reached
			end()
			held.GoOn <- struct{}{}
			if e.open {
				fixture.Await(t, "the import has ended", func() bool { return strings.Contains(p.Log.String(), `"import":"`+id+`","lines"`) })
				setState(t, p, "org.resume")
			}
			a = fixture.AwaitImport(t, p.Org, gatewaytest.Cookie(p.AdminCookie), id)
			said, _ := a.Field("message").(string)
			made := strings.Count(p.Export(t), mark+"-made")
			if i == 0 {
				if a.Field("state") != "done" || made != 2 {
					t.Errorf("nothing ended: got %s, want state done and 2", a.Body)
				}
				continue
			}
			if a.Field("state") != "failed" || !strings.Contains(said, cmp.Or(why[e.name], "session that started it was ended")) {
				t.Errorf(`got %s, %s: %s, want a.Field("state") = "failed"`, e.name, at, a.Body)
			}
			if made > 0 {
				t.Errorf("%s, %s: %d records were made, want 0", e.name, at, made)
			}
		}
	}
}
