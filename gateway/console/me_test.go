package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/demo"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

// TestOwnSessionsAndPassword ends the session of another browser, then all others, and changes the password.
func TestOwnSessionsAndPassword(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	_, cookie := acme.Person(t, "root@example.com", func(n *control.NewUser) { n.Name, n.Roles = "Root", []string{"admin"} })
	signedIn := func(password string) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": "root@example.com", "password": password}), gatewaytest.Header("User-Agent", firefox))
	}
	session := func(a *gatewaytest.Answer) person {
		c, err := http.ParseSetCookie(a.Header.Get("Set-Cookie"))
		if err != nil {
			t.Fatalf("%d %s: %v", a.Code, a.Body, err)
		}
		return person{t, acme, c}
	}
	p, left := person{t, acme, cookie}, session(signedIn(gatewaytest.Password))
	me := p.open("/me")
	checkPage(t, me, 200)
	if !strings.Contains(me.Text(), `href="/me/sessions"`) {
		t.Fatal("the profile has no link to the sessions")
	}
	list := p.open("/me/sessions")
	checkPage(t, list, 200, "Firefox on Linux", "2 entries")
	row := links.FindStringSubmatch(list.Text()[strings.Index(list.Text(), "<tbody>"):])
	if !strings.Contains(list.Text()[:strings.Index(list.Text(), "Firefox on Linux")], row[1]) {
		t.Fatalf("the list begins with %s, want the latest session", row[1])
	}
	one := p.open(row[1])
	checkPage(t, one, 200, "Firefox on Linux", firefox, "127.0.0.1")
	p.follows(p.send("/do/sessions.end", formTo(t, one, "/do/sessions.end")))
	if a := left.open("/"); a.Code != http.StatusSeeOther {
		t.Errorf("the session that was ended opens pages: %d", a.Code)
	}
	if a := p.open(row[1]); a.Code != http.StatusNotFound {
		t.Errorf("the session that was ended: %d", a.Code)
	}
	// All others at once.
	left = session(signedIn(gatewaytest.Password))
	p.follows(p.send("/do/sessions.end_others", formTo(t, p.open("/me"), "/do/sessions.end_others")))
	if a := left.open("/"); a.Code != http.StatusSeeOther {
		t.Errorf("another session goes on: %d", a.Code)
	}
	// Changing the password takes the present one.
	left = session(signedIn(gatewaytest.Password))
	values := formTo(t, p.open("/me"), "/do/passwords.change")
	values.Set("present_password", "not this one")
	values.Set("password", "four words of mine")
	wrong := p.send("/do/passwords.change", values)
	checkPage(t, wrong, 422, "The present password is wrong.")
	values.Set("present_password", gatewaytest.Password)
	values.Set("password", "short")
	checkPage(t, p.send("/do/passwords.change", values), 422, "The password is too short")
	values.Set("password", "four words of mine")
	p.follows(p.send("/do/passwords.change", values))
	if a := left.open("/"); a.Code != http.StatusSeeOther {
		t.Errorf("a session of before the new password goes on: %d", a.Code)
	}
	if a := signedIn(gatewaytest.Password); a.Code != http.StatusForbidden {
		t.Errorf("the password before: %d %s", a.Code, a.Body)
	}
	if a := signedIn("four words of mine"); a.Status != "ok" {
		t.Errorf("the new password: %d %s", a.Code, a.Body)
	}
}

// TestRevealForAReason reveals an encrypted value. The reason is recorded in the audit log, and only the page of the
// answer shows the value.
func TestRevealForAReason(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	page := p.open("/contacts/" + demo.ContactID)
	if !strings.Contains(page.Text(), `<option value="`+demo.SecretField+`"`) {
		t.Fatalf("the encrypted field is none to choose:\n%s", page.Text())
	}
	values := formTo(t, page, "/do/contacts.disclose")
	values.Set("field", demo.SecretField)
	checkPage(t, p.send("/do/contacts.disclose", values), 422, "Reason must not be empty")
	values.Set("reason", "A question of the bank <b>")
	revealed := p.send("/do/contacts.disclose", values)
	checkPage(t, revealed, 200, "This is shown once", "Field value")
	secret := acme.Get(t, acme.Key(t, tenants.Contacts), "/api/contacts/"+demo.ContactID+"/reveal-secret?field="+demo.SecretField).Field("field_value")
	if !strings.Contains(revealed.Text(), fmt.Sprint(secret)) || secret == nil {
		t.Errorf("the page does not show %v", secret)
	}
	if got := revealed.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control = %q, want no-store", got)
	}
	if again := p.open("/contacts/" + demo.ContactID); strings.Contains(again.Text(), fmt.Sprint(secret)) {
		t.Error("the contact's page shows it")
	}
	records := acme.Do(t, http.MethodGet, "/api/audit?filters[operation]=contacts.disclose", gatewaytest.Cookie(cookie)).DataJSON()
	if !strings.Contains(records, "A question of the bank") || strings.Contains(records, fmt.Sprint(secret)) || strings.Count(records, `"outcome":`) != 2 {
		t.Errorf("recorded: %s", records)
	}
	empty := acme.Do(t, http.MethodPost, "/api/contacts/"+demo.ContactID+"/disclose", gatewaytest.Cookie(cookie), gatewaytest.JSON(map[string]string{"field": demo.SecretField, "reason": "A lost key", "public_key": ""}))
	if empty.Code != http.StatusUnprocessableEntity || strings.Contains(empty.Text(), fmt.Sprint(secret)) {
		t.Errorf("for an empty key: %d %s", empty.Code, empty.Body)
	}
	// If the organization requires a public key, no value is shown in clear text.
	setting := map[string]any{"settings": map[string]any{tenants.SettingRequirePublicEncryptionKey: true}}
	if a := acme.Do(t, http.MethodPut, "/api/organization", gatewaytest.Cookie(cookie), gatewaytest.JSON(setting)); a.Status != "ok" {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	values.Set("_once", "another")
	refused := p.send("/do/contacts.disclose", values)
	checkPage(t, refused, 422, "Public key is required")
	values.Set("public_key", "CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	sealed := p.send("/do/contacts.disclose", values)
	checkPage(t, sealed, 200, "X25519")
	if strings.Contains(sealed.Text()+refused.Text(), fmt.Sprint(secret)) {
		t.Error("a page shows the value in clear text")
	}
	// A person who may not see contacts may not call the operation.
	_, other := acme.Person(t, "ed@example.com", func(n *control.NewUser) { n.Permissions = []string{"manage_files"} })
	if a := (person{t, acme, other}).send("/do/contacts.disclose", values); a.Code != http.StatusForbidden {
		t.Errorf("without the permission: %d", a.Code)
	}
}

// TestLinkChecksAreLimited checks that a valid link cannot be checked without limit, because each check is recorded.
func TestLinkChecksAreLimited(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	user, err := control.Call[control.User](t.Context(), g.Commands, "user.create", control.NewUser{Org: acme.Slug, UserFields: control.UserFields{Name: "Ann", Email: "ann@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	rate := "3/h"
	if _, err := control.Call[control.RequestLimits](t.Context(), g.Commands, "org.limits", control.LimitsChange{Org: acme.Slug, Rate: &rate}); err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(user.Link, "#")
	codes := map[int]int{}
	for range 5 {
		codes[acme.Do(t, http.MethodPost, "/auth/password/check", gatewaytest.JSON(map[string]string{"token": token})).Code]++
	}
	if codes[http.StatusOK] == 0 || codes[http.StatusTooManyRequests] == 0 {
		t.Errorf("codes of 5 checks = %v, want some 200 and some 429", codes)
	}
	a := acme.Do(t, http.MethodPost, "/auth/password", gatewaytest.JSON(map[string]string{"token": token, "password": "four words of mine"}))
	if a.Status != "ok" {
		t.Errorf("the link itself: %d %s", a.Code, a.Body)
	}
}

// TestSignInLinkIsSingleUse checks that a link works once, and in one organization only.
func TestSignInLinkIsSingleUse(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	other := g.Org(t, "other")
	user, cookie := acme.Person(t, "ada@example.com", nil)
	link, err := g.App.SignInLink(t.Context(), "acme", "ada@example.com", "http://acme.localhost", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	path, token, _ := strings.Cut(strings.TrimPrefix(link, "http://acme.localhost"), "#")
	p := person{t, acme, cookie}
	values := formTo(t, acme.Page(t, path), "/enter")
	values.Set("token", link) // the form accepts the whole link
	enter := func(o *gatewaytest.Org, token string) *gatewaytest.Answer {
		return o.Do(t, http.MethodPost, "/auth/link", gatewaytest.JSON(map[string]string{"token": token}))
	}
	for what, a := range map[string]*gatewaytest.Answer{
		"at another organization": enter(other, token), "made up": enter(acme, "sin_"+strings.Repeat("a", 43)),
		"as an invitation":  acme.Do(t, http.MethodPost, "/auth/password", gatewaytest.JSON(map[string]string{"token": token, "password": gatewaytest.Password})),
		"from another site": p.send("/enter", values, gatewaytest.Header("Sec-Fetch-Site", "cross-site")),
	} {
		if a.Code != http.StatusForbidden || a.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s", what, a.Code, a.Body)
		}
	}
	in := acme.Do(t, http.MethodPost, "/enter", gatewaytest.Header("Origin", "http://"+acme.Host), gatewaytest.Body("application/x-www-form-urlencoded", values.Encode()))
	if in.Code != http.StatusSeeOther || in.Header.Get("Location") != "/" {
		t.Fatalf("%d %s", in.Code, in.Text())
	}
	checkPage(t, acme.Page(t, "/", gatewaytest.Cookie(sessionOf(t, in))), 200, "Overview")
	again := p.send("/enter", values)
	checkPage(t, again, 403, "The link was used already or has expired")
	// An expired link, and a link that was replaced.
	for what, spoil := range map[string]func(){
		"ended": func() { link, err = g.App.SignInLink(t.Context(), "acme", "ada@example.com", "", -time.Second) },
		"replaced by an invitation": func() {
			if link, err = g.App.SignInLink(t.Context(), "acme", "ada@example.com", "", time.Hour); err == nil {
				_, err = g.App.People().Invite(t.Context(), acme.Tenant(t), user.ID, nil)
			}
		},
	} {
		if spoil(); err != nil {
			t.Fatal(err)
		}
		if a := enter(acme, strings.TrimPrefix(link, "/enter#")); a.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", what, a.Code, a.Body)
		}
	}
	if strings.Contains(g.Log.String(), token) {
		t.Error("the log has the token")
	}
}
