package records

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestUnansweredSecretsAreUndone checks that a secret that is shown once either reaches the caller or nothing
// is done: here the control store works, and the organization's audit log does not.
func TestUnansweredSecretsAreUndone(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.OwnFiles)
	acme := g.Org(t, "acme")
	root := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	account := root.Create(t, "/api/service-accounts", `{"name":"crm","permissions":["manage_keys"]}`)
	first := root.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q,"expires_in":3600}`, account), 200, "token")
	own, id := fixture.TokenClient(acme, first), fmt.Sprint(first.Field("id"))
	rotated := root.Want(t, http.MethodPost, "/api/keys/"+id+"/rotate", `{"overlap":600}`, 200, "token") // the first goes on
	second := fixture.TokenClient(acme, rotated)
	ed := root.Want(t, http.MethodPost, "/api/users", `{"name":"Ed","email":"ed@example.com"}`, 200, "link")
	_, invite, _ := strings.Cut(fmt.Sprint(ed.Field("link")), "#")
	bo := root.Create(t, "/api/users", `{"name":"Bo","email":"bo@example.com","active":false}`)
	_, cookie := acme.Person(t, "ann@example.com", nil)
	const hook = `{"name":%q,"url":"https://localhost/","account":%q}`
	hooked := root.Want(t, http.MethodPost, "/api/webhooks", fmt.Sprintf(hook, "kept", account), 200, "whsec_")
	used := regexp.MustCompile(`"(last_used_at|unused_since)":("[^"]*"|null)|"unused_permissions":\[[^\]]*\]`)
	state := func() string {
		return used.ReplaceAllString(root.Want(t, http.MethodGet, "/api/keys?sort=id", "", 200, "").DataJSON()+root.Want(t, http.MethodGet, "/api/users?sort=id", "", 200, "").DataJSON()+
			root.Want(t, http.MethodGet, "/api/webhooks", "", 200, "").DataJSON()+
			second.Want(t, http.MethodGet, "/api/keys/"+id, "", 200, "").DataJSON()+own.Want(t, http.MethodGet, "/api/keys/"+id, "", 200, "").DataJSON(), "")
	}
	before := state()
	type call struct{ name, path, body string }
	calls := []call{
		{"keys.create", "/api/keys", fmt.Sprintf(`{"name":"lost","kind":"server_full","account":%q}`, account)},
		{"keys.rotate", "/api/keys/" + id + "/rotate", `{}`},
		{"users.create", "/api/users", `{"name":"Lost","email":"lost@example.com"}`},
		{"users.invite", "/api/users/" + fmt.Sprint(ed.Field("id")) + "/invite", ""},
		{"webhooks.create", "/api/webhooks", fmt.Sprintf(hook, "lost", account)},
		{"webhooks.rotate", "/api/webhooks/" + fmt.Sprint(hooked.Field("id")) + "/rotate", `{}`},
	}
	for _, op := range acme.App.Operations() {
		made := !slices.Contains([]string{"reports.share", "sessions.end_others", "passwords.change", "contacts.disclose", "forms.attach", "forms.public_attach"}, op.Name) // these leave nothing to take back, or nothing that lasts
		if op.Once && made && !slices.ContainsFunc(calls, func(c call) bool { return c.name == op.Name }) {
			t.Errorf("%s shows a secret once and is not tried here, want it tried", op.Name)
		}
	}
	back := fixture.HideFiles(t, g, "org-*")
	for _, c := range calls {
		root.Want(t, http.MethodPost, c.path, c.body, 503, "The service is temporarily unavailable, please retry later")
	}
	// A change that cannot be undone is reported as done.
	root.Want(t, http.MethodPost, "/api/users/"+bo+"/reactivate", "", 503, "was applied but not audited")
	changed := fmt.Sprintf(`{"present_password":%q,"password":"battery horse staple"}`, gatewaytest.Password)
	fixture.As(acme, gatewaytest.Cookie(cookie)).Want(t, http.MethodPost, "/api/me/password", changed, 503, "was applied but not audited")
	back()
	fixture.AwaitWithin(t, "the organization back", 10*time.Second, func() bool { return acme.Do(t, http.MethodGet, "/api/audit", root.As).Code == 200 })
	if after := state(); after != strings.Replace(before, `"active":false`, `"active":true`, 1) {
		t.Errorf("before\n%s\nafter\n%s, want only the activation", before, after)
	}
	if a := acme.Do(t, http.MethodPost, "/auth/password", fixture.JSONText(fmt.Sprintf(`{"token":%q,"password":"correct horse battery"}`, invite))); a.Status != "ok" {
		t.Errorf("the link before: got %d %s, want the status ok", a.Code, a.Body)
	}
	for _, c := range calls[:3] {
		root.Want(t, http.MethodPost, c.path, c.body, 200, `"status":"ok"`)
	}
}

// TestRotatedTokenIsAnsweredWithoutAnnouncement checks that the token of a rotation that cannot be announced is
// answered with a warning.
func TestRotatedTokenIsAnsweredWithoutAnnouncement(t *testing.T) {
	t.Parallel()
	var cut fixture.StoreHook
	g := gatewaytest.Start(t, gatewaytest.Embedded, cut.Option)
	acme := g.Org(t, "acme")
	k := acme.KeyWith(t, func(k *control.NewKey) { k.Permissions = []string{"manage_keys"} })
	var back func()
	on := func(c store.Call) {
		if c.Operation == "write" && c.Collection == "keys" {
			cut.On.Store(nil)
			back = fixture.HideFiles(t, g, "control*")
		}
	}
	cut.On.Store(&on)
	a := acme.Do(t, http.MethodPost, "/api/keys/"+k.ID+"/rotate", gatewaytest.WithKey(k.Token), fixture.JSONText(`{}`))
	back()
	if a.Code != 200 || !strings.Contains(a.Header.Get("X-Warning"), "the former token may be accepted for a few more minutes") {
		t.Fatalf(`got %d %s %v, want 200 and containing "the former token may be accepted for a few more minutes"`,
			a.Code, a.Body, a.Header)
	}
	fixture.AwaitWithin(t, "the new token accepted", 10*time.Second, func() bool {
		return acme.Do(t, http.MethodGet, "/api/keys", fixture.TokenClient(acme, a).As).Code == 200
	})
}

// TestRestrictedKeysCannotInvite checks that a restricted key cannot invite people without its restrictions.
func TestRestrictedKeysCannotInvite(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	root := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	account := root.Create(t, "/api/service-accounts", `{"name":"crm","permissions":["manage_users"]}`)
	ed := root.Create(t, "/api/users", `{"name":"Ed","email":"ed@example.com"}`)
	for n, bound := range []string{`,"expires_in":3600`, `,"allowed_ips":["127.0.0.0/8","::1"]`, ""} {
		own := fixture.TokenClient(acme, root.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q%s}`, account, bound), 200, "token"))
		code, says := 403, "cannot invite"
		if bound == "" {
			code, says = 200, "/welcome#inv_"
		}
		own.Want(t, http.MethodPost, "/api/users", fmt.Sprintf(`{"name":"X","email":"x%d@example.com"}`, n), code, says)
		own.Want(t, http.MethodPost, "/api/users/"+ed+"/invite", "", code, says)
		off := own.Create(t, "/api/users", fmt.Sprintf(`{"name":"Y","email":"y%d@example.com","active":false}`, n)) // nobody is let in by that
		own.Want(t, http.MethodPost, "/api/users/"+off+"/reactivate", "", 200, "")
		own.Want(t, http.MethodPost, "/api/users/"+off+"/invite", "", code, says)
	}
	if n := strings.Count(root.Want(t, http.MethodGet, "/api/users", "", 200, "").Text(), "x0@example.com"); n != 0 {
		t.Error("got a person from a refused call, want none")
	}
}

// TestDeletionIsConditionalOnTheCheck checks that a record is deleted only in the state in which the caller's
// rights were checked, or is checked again.
func TestDeletionIsConditionalOnTheCheck(t *testing.T) {
	t.Parallel()
	var cut fixture.StoreHook
	acme := gatewaytest.Start(t, cut.Option).Org(t, "acme")
	root := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	keeper := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.ManageUsers)))
	for path, of := range map[string]string{"/api/roles": "roles", "/api/service-accounts": "accounts"} {
		id := root.Create(t, path, `{"name":"mine"}`)
		at := path + "/" + id
		if of == "roles" {
			at = path + "/mine"
		}
		keeper.Want(t, http.MethodGet, at, "", 200, "") // who asks is known from now on
		on := func(c store.Call) {
			if c.Operation == "find" && c.Collection == of {
				cut.On.Store(nil)
				root.Want(t, http.MethodPut, at, `{"permissions":["manage_forms"]}`, 200, "")
			}
		}
		cut.On.Store(&on)
		keeper.Want(t, http.MethodDelete, at, "", 403, "The caller lacks manage_forms")
		root.Want(t, http.MethodGet, at, "", 200, `"manage_forms"`)
		root.Want(t, http.MethodDelete, at, "", 200, "")
		root.Want(t, http.MethodGet, at, "", 404, "")
	}
	// An account that is inactive from the start is never active either.
	on := func(c store.Call) {
		if c.Operation == "write" && c.Collection == "accounts" {
			cut.On.Store(nil)
			root.Want(t, http.MethodGet, "/api/service-accounts?filters[name]=off", "", 200, `"active":false`)
		}
	}
	cut.On.Store(&on)
	root.Create(t, "/api/service-accounts", `{"name":"off","active":false}`)
	if cut.On.Load() != nil {
		t.Error("got no query in between, want one")
	}
}

// TestPeopleAreChangedConditionally checks that a person can be changed only by a caller who has read the last
// revision.
func TestPeopleAreChangedConditionally(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	ada, cookie := acme.Person(t, "ada@example.com", nil)
	as := map[string]gatewaytest.Request{"/api/me": gatewaytest.Cookie(cookie), fmt.Sprint("/api/users/", ada.ID): gatewaytest.WithKey(acme.Key(t, tenants.ManageUsers))}
	for path, who := range as {
		tag := acme.Do(t, http.MethodGet, path, who).Header.Get("ETag")
		if a := acme.Do(t, http.MethodGet, path, who, ifNoneMatch(tag)); a.Code != http.StatusNotModified {
			t.Errorf("%s with the tag %s: got %d, want 304", path, tag, a.Code)
		}
		change := func(name string) *gatewaytest.Answer {
			return acme.Do(t, http.MethodPut, path, who, fixture.JSONText(`{"name":"`+name+`"}`), ifMatch(tag))
		}
		first := change("One" + path[5:7])
		if first.Code != 200 || first.Header.Get("ETag") == "" || first.Header.Get("ETag") == tag {
			t.Errorf("%s: got %d %s %v, want 200", path, first.Code, first.Body, first.Header)
		}
		wantStale(t, change("Two"))
	}
}

// TestInterruptedRequestIsNotReportedDone ends the process between the claim of a request and its other writes: a
// repetition is not told that it was carried out.
func TestInterruptedRequestIsNotReportedDone(t *testing.T) {
	t.Parallel()
	var c fixture.Clock
	var cut fixture.StoreHook
	acme := gatewaytest.Start(t, c.Option, cut.Option).Org(t, "acme")
	key := gatewaytest.WithKey(acme.Key(t, tenants.ManageUsers))
	marks := 0
	on := func(c store.Call) {
		if c.Operation != "write" || c.Collection != "kept_answers" {
			return
		}
		if marks++; marks == 2 { // the first claims it
			cut.On.Store(nil)
			panic("killed")
		}
	}
	send := func() *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/api/teams", key, fixture.JSONText(`{"name":"Red"}`), fixture.IdempotencyKey("k"))
	}
	cut.On.Store(&on)
	if a := send(); a.Code != http.StatusInternalServerError {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusInternalServerError)
	}
	c.Advance(time.Minute)
	if a := send(); a.Code != http.StatusConflict || !strings.Contains(a.Message, "may have been carried out") {
		t.Errorf(`got %d %s, want %v and containing "may have been carried out"`, a.Code, a.Body, http.StatusConflict)
	}
	if n := acme.Do(t, http.MethodGet, "/api/teams", key).Field("count"); fmt.Sprint(n) != "0" {
		t.Errorf("got %v teams, want 0", n)
	}
}
