package access

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
	"tenantry/tenants/sessions"
)

// TestDeactivatedAdministratorStaysDeactivated deactivates an administrator while the body of a change arrives: it
// neither reactivates the account nor takes rights from others.
func TestDeactivatedAdministratorStaysDeactivated(t *testing.T) {
	t.Parallel()
	p := fixture.PartyOf(gatewaytest.Start(t).Org(t, "acme"))
	admin := func(u *control.NewUser) { u.Roles = []string{"admin"} }
	ada, cookie := p.Person(t, "ada@example.com", admin)
	p.AdminCookie = cookie
	eve, cookie := p.Person(t, "eve@example.com", admin)
	row := p.Row(t, "users.update")
	at := func(id int64) string { return fmt.Sprintf("/api/users/%d", id) }
	var held []*fixture.OpenBody
	for _, q := range []fixture.Call{
		{Method: http.MethodPut, Target: at(eve.ID), Changes: []gatewaytest.Request{fixture.JSONText(`{"active":true,"name":"Back"}`)}},
		{Method: http.MethodPut, Target: at(ada.ID), Changes: []gatewaytest.Request{fixture.JSONText(`{"roles":[]}`)}},
	} {
		h := p.HoldBody(t, row, q, gatewaytest.Cookie(cookie))
		fixture.Send(t, h.Conn, string(h.Body[:5]))
		held = append(held, h)
	}
	asAdmin(p).Want(t, http.MethodPost, at(eve.ID)+"/deactivate", "", 200, "")
	for _, h := range held {
		fixture.Send(t, h.Conn, string(h.Body[5:]))
		if code, body := h.Answer(t); code != http.StatusForbidden || body != fixture.DeniedBody {
			t.Errorf("got %d %s, want %v and body = %v", code, body, http.StatusForbidden, fixture.DeniedBody)
		}
	}
	asAdmin(p).Want(t, http.MethodGet, "/api/users?sort=-id&per_page=1", "", 200, `"active":false`)
}

// TestScopeIsResolvedAfterTheBody limits an account to a team while a body arrives: nothing of other teams is
// changed by it.
func TestScopeIsResolvedAfterTheBody(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p := w.A
	key := p.KeyWith(t, func(k *control.NewKey) { k.Permissions = fixture.PermissionNames(tenants.AllPermissions()) })
	q := fixture.Call{Method: http.MethodPut, Target: "/api/contacts/" + p.IDs[fixture.RefContactOther], Changes: []gatewaytest.Request{fixture.JSONText(`{"first_name":"Changed"}`)}}
	h := p.HoldBody(t, p.Row(t, "contacts.update"), q, gatewaytest.WithKey(key.Token))
	changeAccount(t, p, key, `{"teams":["`+p.IDs[fixture.RefTeam]+`"]}`)
	fixture.Send(t, h.Conn, string(h.Body))
	if code, body := h.Answer(t); code != http.StatusNotFound {
		t.Errorf("got %d %s, want %v", code, body, http.StatusNotFound)
	}
}

// TestRevokedKeyGetsNoReplay revokes a key while a repeated request arrives: the first answer is not replayed.
func TestRevokedKeyGetsNoReplay(t *testing.T) {
	t.Parallel()
	p := fixture.PartyOf(gatewaytest.Start(t).Org(t, "acme"))
	key := p.KeyWith(t, func(k *control.NewKey) { k.Permissions = []string{"contacts"} })
	q := fixture.Call{Method: http.MethodPost, Target: "/api/contacts", Changes: []gatewaytest.Request{fixture.JSONText(`{"email":"ada@example.com"}`), fixture.IdempotencyKey("one")}}
	if a := p.Do(t, q.Method, q.Target, append(q.Changes, gatewaytest.WithKey(key.Token))...); a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
	}
	q.Changes[0] = fixture.JSONText(`{"email":"ada@example.com"}`) // as it was
	h := p.HoldBody(t, p.Row(t, "contacts.create"), q, gatewaytest.WithKey(key.Token))
	if _, err := control.Call[control.Key](t.Context(), p.Commands, "key.revoke", control.KeyRef{Org: p.Slug, ID: key.ID}); err != nil {
		t.Fatal(err)
	}
	fixture.Send(t, h.Conn, string(h.Body))
	if code, body := h.Answer(t); code != http.StatusForbidden || body != fixture.DeniedBody {
		t.Errorf("got %d %s, want %v and body = %v", code, body, http.StatusForbidden, fixture.DeniedBody)
	}
}

// TestSlowAnswersAreWithheldAfterRevocation revokes a key while a slow answer is prepared.
func TestSlowAnswersAreWithheldAfterRevocation(t *testing.T) {
	t.Parallel()
	held := fixture.NewStoreGate()
	p := fixture.PartyOf(gatewaytest.Start(t, held.Option).Org(t, "acme"))
	key := p.KeyWith(t, func(k *control.NewKey) { k.Permissions = fixture.PermissionNames(tenants.AllPermissions()) })
	a := held.During(t, "find contacts", 0, func() *gatewaytest.Answer {
		return p.Get(t, key.Token, "/api/contacts?per_page=1")
	}, func() {
		if _, err := control.Call[control.Key](t.Context(), p.Commands, "key.revoke", control.KeyRef{Org: p.Slug, ID: key.ID}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // so it has taken long
	})
	fixture.WantDenied(t, "a slow answer", a)
}

// TestQueuedImportChecksRightsBeforeItStarts takes the rights of an import's owner while it waits: it does not
// start, though it would store nothing.
func TestQueuedImportChecksRightsBeforeItStarts(t *testing.T) {
	t.Parallel()
	held := fixture.NewStoreGate()
	p := fixture.PartyOf(gatewaytest.Start(t, held.Option).Org(t, "acme"))
	_, p.AdminCookie = p.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	as, end := personEndings()[0].begin(t, p)
	a := held.During(t, "write imports", 1, func() *gatewaytest.Answer { // once it has arrived
		return p.Do(t, http.MethodPost, "/api/import?dry_run=true", as, gatewaytest.Body("application/x-ndjson", `{"kind":"team","name":"North"}`+"\n"))
	}, end)
	id, _ := a.Field("id").(string)
	if a := fixture.AwaitImport(t, p.Org, gatewaytest.Cookie(p.AdminCookie), id); a.Field("state") != "failed" || a.Field("step") != "reading" {
		t.Errorf(`got %s, want a.Field("state") = "failed" and a.Field("step") = "reading"`, a.Body)
	}
}

// TestImportOutlivesItsSession checks that an import goes on after its session has expired.
func TestImportOutlivesItsSession(t *testing.T) {
	t.Parallel()
	held, clock := fixture.NewStoreGate(), &fixture.Clock{}
	p := fixture.PartyOf(gatewaytest.Start(t, held.Option, clock.Option).Org(t, "acme"))
	_, cookie := p.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	what := "count contacts"
	held.What.Store(&what)
	clock.Advance(sessions.DefaultAbsolute - 10*time.Minute)
	a := p.Do(t, http.MethodPost, "/api/import", gatewaytest.Cookie(cookie), gatewaytest.Body("application/x-ndjson", `{"kind":"team","name":"North"}`+"\n"))
	id, _ := a.Field("id").(string)
	<-held.Reached
	clock.Advance(20 * time.Minute) // less than an import may take
	fixture.WantDenied(t, "the session", p.Do(t, http.MethodGet, "/api/import", gatewaytest.Cookie(cookie)))
	held.GoOn <- struct{}{}
	fixture.Await(t, "the import has ended", func() bool { return strings.Contains(p.Log.String(), `"import":"`+id+`","lines"`) })
	if a := p.Do(t, http.MethodGet, "/api/import/"+id, gatewaytest.Cookie(p.SignIn(t, "ada@example.com"))); a.Field("state") != "done" {
		t.Errorf(`got %d %s, want a.Field("state") = "done"`, a.Code, a.Body)
	}
}

// TestSlowExportEndsAfterDeactivation checks that a slowly read export ends with a broken connection soon after its
// reader is deactivated, and contains nothing written since.
func TestSlowExportEndsAfterDeactivation(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]ending{"deactivated": personEndings()[0], "signed out": personEndings()[2], "suspended": personEndings()[3]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fixture.PartyOf(gatewaytest.Start(t).Org(t, "acme"))
			_, p.AdminCookie = p.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
			var lines []string
			for i := range 1500 { // more than the buffers of a connection hold
				lines = append(lines, fmt.Sprintf(`{"kind":"contact","id":"%s","email":"c%d@example.com","notes":"%s"}`, fixture.DocID(0xa000+i), i, strings.Repeat("x", 9000)))
			}
			lines = withFields(lines)
			p.Import(t, lines...)
			as, end := e.begin(t, p)
			conn := fixture.Dial(t, p.App.Addr())
			if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.Host+"/api/export", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			as(r)
			if err := r.Write(conn); err != nil {
				t.Fatal(err)
			}
			from := bufio.NewReaderSize(conn, 16)
			resp, err := http.ReadResponse(from, r)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("got %v %v, want no error and resp.StatusCode = %v", resp, err, http.StatusOK)
			}
			end()
			p.Import(t, `{"kind":"contact","id":"`+fixture.DocID(0xffff)+`","email":"after@example.com"}`) // the last of its kind
			told, err := io.ReadAll(resp.Body)
			if err == nil || strings.Contains(string(told), "after@example.com") {
				t.Errorf("%d bytes were told, and then %v, want an error and without after@example.com", len(told), err)
			}
		})
	}
}

// withFields adds the definition of the contacts' field to the lines.
func withFields(lines []string) []string {
	for i := range lines {
		lines[i] = strings.Replace(lines[i], `"notes":`, `"fields":{"notes":`, 1)
		lines[i] = strings.TrimSuffix(lines[i], "}") + "}}"
	}
	return append([]string{`{"kind":"contact_field","key":"notes","title":"Notes","type":"LongText"}`}, lines...)
}
