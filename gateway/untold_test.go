package gateway_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// moved takes the files of a database away; what it returns brings them back.
func moved(t *testing.T, g *gatewaytest.Gateway, names string) (back func()) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(g.Config.Data, "db", names))
	if err != nil || len(found) == 0 {
		t.Error("nothing to move", err)
	}
	move := func(from, to string) {
		for _, file := range found {
			if err := os.Rename(file+from, file+to); err != nil {
				t.Error(err)
			}
		}
	}
	move("", ".away")
	return func() { move(".away", "") }
}

// bearer is a caller with the token of an answer.
func bearer(o *gatewaytest.Org, a *gatewaytest.Answer) actingAs {
	token, _ := a.Field("token").(string)
	return actingAs{o, gatewaytest.WithKey(token)}
}

// A secret that is told once reaches whoever asked, or nothing was done: here the control store answers, and what
// keeps the organization's audit log does not.
func TestSecretsThatCannotBeToldAreTakenBack(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.OwnFiles)
	acme := g.Org(t, "acme")
	root := actingAs{acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))}
	account := root.make(t, "/api/service-accounts", `{"name":"crm","permissions":["manage_keys"]}`)
	first := root.do(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q,"expires_in":3600}`, account), 200, "token")
	own, id := bearer(acme, first), fmt.Sprint(first.Field("id"))
	rotated := root.do(t, http.MethodPost, "/api/keys/"+id+"/rotate", `{"overlap":600}`, 200, "token") // the first goes on
	second := bearer(acme, rotated)
	ed := root.do(t, http.MethodPost, "/api/users", `{"name":"Ed","email":"ed@example.com"}`, 200, "link")
	_, invite, _ := strings.Cut(fmt.Sprint(ed.Field("link")), "#")
	bo := root.make(t, "/api/users", `{"name":"Bo","email":"bo@example.com","active":false}`)
	_, cookie := acme.Person(t, "ann@example.com", nil)
	used := regexp.MustCompile(`"(last_used_at|unused_since)":("[^"]*"|null)|"unused_permissions":\[[^\]]*\]`)
	state := func() string {
		return used.ReplaceAllString(root.do(t, http.MethodGet, "/api/keys?sort=id", "", 200, "").DataJSON()+root.do(t, http.MethodGet, "/api/users?sort=id", "", 200, "").DataJSON()+
			second.do(t, http.MethodGet, "/api/keys/"+id, "", 200, "").DataJSON()+own.do(t, http.MethodGet, "/api/keys/"+id, "", 200, "").DataJSON(), "")
	}
	before := state()
	type call struct{ name, path, body string }
	calls := []call{
		{"keys.create", "/api/keys", fmt.Sprintf(`{"name":"lost","kind":"server_full","account":%q}`, account)},
		{"keys.rotate", "/api/keys/" + id + "/rotate", `{}`},
		{"users.create", "/api/users", `{"name":"Lost","email":"lost@example.com"}`},
		{"users.invite", "/api/users/" + fmt.Sprint(ed.Field("id")) + "/invite", ""},
	}
	for _, op := range acme.App.Operations() {
		made := !slices.Contains([]string{"reports.share", "sessions.end_others", "passwords.change", "contacts.disclose"}, op.Name) // these leave nothing to take back
		if op.Once && made && !slices.ContainsFunc(calls, func(c call) bool { return c.name == op.Name }) {
			t.Errorf("%s tells a secret once, and is not tried here", op.Name)
		}
	}
	back := moved(t, g, "org-*")
	for _, c := range calls {
		root.do(t, http.MethodPost, c.path, c.body, 503, "The service is temporarily unavailable, please retry later")
	}
	// What cannot be taken back is said to be done.
	root.do(t, http.MethodPost, "/api/users/"+bo+"/reactivate", "", 503, "was done, but could not be recorded")
	changed := fmt.Sprintf(`{"present_password":%q,"password":"battery horse staple"}`, gatewaytest.Password)
	actingAs{acme, gatewaytest.Cookie(cookie)}.do(t, http.MethodPost, "/api/me/password", changed, 503, "was done, but could not be recorded")
	back()
	inTime(t, "the organization back", 10*time.Second, func() bool { return acme.Do(t, http.MethodGet, "/api/audit", root.as).Code == 200 })
	if after := state(); after != strings.Replace(before, `"active":false`, `"active":true`, 1) {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	if a := acme.Do(t, http.MethodPost, "/auth/password", jsonText(fmt.Sprintf(`{"token":%q,"password":"correct horse battery"}`, invite))); a.Status != "ok" {
		t.Errorf("the link before: %d %s", a.Code, a.Body)
	}
	for _, c := range calls[:3] {
		root.do(t, http.MethodPost, c.path, c.body, 200, `"status":"ok"`)
	}
}

// Where a rotation is stored and cannot be announced, its token is told all the same, with what may follow.
func TestTokenIsToldWithoutAnnouncement(t *testing.T) {
	t.Parallel()
	var cut interrupter
	g := gatewaytest.Start(t, gatewaytest.Embedded, cut.option)
	acme := g.Org(t, "acme")
	k := acme.KeyWith(t, func(k *control.NewKey) { k.Permissions = []string{"manage_keys"} })
	var back func()
	on := func(c store.Call) {
		if c.Operation == "write" && c.Collection == "keys" {
			cut.on.Store(nil)
			back = moved(t, g, "control*")
		}
	}
	cut.on.Store(&on)
	a := acme.Do(t, http.MethodPost, "/api/keys/"+k.ID+"/rotate", gatewaytest.WithKey(k.Token), jsonText(`{}`))
	back()
	if a.Code != 200 || !strings.Contains(a.Header.Get("X-Warning"), "the token before may be accepted for a few minutes more") {
		t.Fatalf("%d %s %v", a.Code, a.Body, a.Header)
	}
	inTime(t, "the new token accepted", 10*time.Second, func() bool {
		return acme.Do(t, http.MethodGet, "/api/keys", bearer(acme, a).as).Code == 200
	})
}

// A key that is bound lets nobody in who is not.
func TestBoundKeysInviteNobody(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	root := actingAs{acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))}
	account := root.make(t, "/api/service-accounts", `{"name":"crm","permissions":["manage_users"]}`)
	ed := root.make(t, "/api/users", `{"name":"Ed","email":"ed@example.com"}`)
	for n, bound := range []string{`,"expires_in":3600`, `,"allowed_ips":["127.0.0.0/8","::1"]`, ""} {
		own := bearer(acme, root.do(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q%s}`, account, bound), 200, "token"))
		code, says := 403, "lets nobody in"
		if bound == "" {
			code, says = 200, "/welcome#inv_"
		}
		own.do(t, http.MethodPost, "/api/users", fmt.Sprintf(`{"name":"X","email":"x%d@example.com"}`, n), code, says)
		own.do(t, http.MethodPost, "/api/users/"+ed+"/invite", "", code, says)
		off := own.make(t, "/api/users", fmt.Sprintf(`{"name":"Y","email":"y%d@example.com","active":false}`, n)) // nobody is let in by that
		own.do(t, http.MethodPost, "/api/users/"+off+"/reactivate", "", 200, "")
		own.do(t, http.MethodPost, "/api/users/"+off+"/invite", "", code, says)
	}
	if n := strings.Count(root.do(t, http.MethodGet, "/api/users", "", 200, "").Text(), "x0@example.com"); n != 0 {
		t.Error("a refused person was made")
	}
}

// What a service keeps is deleted as it was when the caller was held to the rule, or looked at anew.
func TestNobodyComesBetweenALookAndADeletion(t *testing.T) {
	t.Parallel()
	var cut interrupter
	acme := gatewaytest.Start(t, cut.option).Org(t, "acme")
	root := actingAs{acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))}
	keeper := actingAs{acme, gatewaytest.WithKey(acme.Key(t, tenants.ManageUsers))}
	for path, of := range map[string]string{"/api/roles": "roles", "/api/service-accounts": "accounts"} {
		id := root.make(t, path, `{"name":"mine"}`)
		at := path + "/" + id
		if of == "roles" {
			at = path + "/mine"
		}
		keeper.do(t, http.MethodGet, at, "", 200, "") // who asks is known from now on
		on := func(c store.Call) {
			if c.Operation == "find" && c.Collection == of {
				cut.on.Store(nil)
				root.do(t, http.MethodPut, at, `{"permissions":["manage_forms"]}`, 200, "")
			}
		}
		cut.on.Store(&on)
		keeper.do(t, http.MethodDelete, at, "", 403, "The caller lacks manage_forms")
		root.do(t, http.MethodGet, at, "", 200, `"manage_forms"`)
		root.do(t, http.MethodDelete, at, "", 200, "")
		root.do(t, http.MethodGet, at, "", 404, "")
	}
	// Nor is an account that is to be none ever active.
	on := func(c store.Call) {
		if c.Operation == "write" && c.Collection == "accounts" {
			cut.on.Store(nil)
			root.do(t, http.MethodGet, "/api/service-accounts?filters[name]=off", "", 200, `"active":false`)
		}
	}
	cut.on.Store(&on)
	root.make(t, "/api/service-accounts", `{"name":"off","active":false}`)
	if cut.on.Load() != nil {
		t.Error("nothing was looked at")
	}
}

// A person is read, and changed by who has seen the last of them.
func TestPeopleAreChangedConditionally(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	ada, cookie := acme.Person(t, "ada@example.com", nil)
	as := map[string]gatewaytest.Request{"/api/me": gatewaytest.Cookie(cookie), fmt.Sprint("/api/users/", ada.ID): gatewaytest.WithKey(acme.Key(t, tenants.ManageUsers))}
	for path, who := range as {
		tag := acme.Do(t, http.MethodGet, path, who).Header.Get("ETag")
		if a := acme.Do(t, http.MethodGet, path, who, ifNoneMatch(tag)); a.Code != http.StatusNotModified {
			t.Errorf("%s with the tag %s: %d", path, tag, a.Code)
		}
		change := func(name string) *gatewaytest.Answer {
			return acme.Do(t, http.MethodPut, path, who, jsonText(`{"name":"`+name+`"}`), ifMatch(tag))
		}
		first := change("One" + path[5:7])
		if first.Code != 200 || first.Header.Get("ETag") == "" || first.Header.Get("ETag") == tag {
			t.Errorf("%s: %d %s %v", path, first.Code, first.Body, first.Header)
		}
		wantStale(t, change("Two"))
	}
}

// TestInterruptedRequestIsNotReportedDone ends the process between the mark of a request and its other writes: a
// repetition is not told that it was carried out.
func TestInterruptedRequestIsNotReportedDone(t *testing.T) {
	t.Parallel()
	var c clock
	var cut interrupter
	acme := gatewaytest.Start(t, c.option, cut.option).Org(t, "acme")
	key := gatewaytest.WithKey(acme.Key(t, tenants.ManageUsers))
	marks := 0
	on := func(c store.Call) {
		if c.Operation != "write" || c.Collection != "kept_answers" {
			return
		}
		if marks++; marks == 2 { // the first claims it
			cut.on.Store(nil)
			panic("killed")
		}
	}
	send := func() *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/api/teams", key, jsonText(`{"name":"Red"}`), again("k"))
	}
	cut.on.Store(&on)
	if a := send(); a.Code != http.StatusInternalServerError {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	c.advance(time.Minute)
	if a := send(); a.Code != http.StatusConflict || !strings.Contains(a.Message, "may have been carried out") {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if n := acme.Do(t, http.MethodGet, "/api/teams", key).Field("count"); fmt.Sprint(n) != "0" {
		t.Errorf("%v teams", n)
	}
}
