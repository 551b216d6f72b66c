package mail

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// TestForgottenPassword checks that an address somebody has gets a link that works once, for half an hour, and leaves the
// old password until then; that other addresses and organizations get the same answer and no mail; and that nobody gets
// more than three in an hour.
func TestForgottenPassword(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	var clock fixture.Clock
	g := gatewaytest.Start(t, server.withMail(), clock.Option)
	acme := open(t, g, "acme")
	acme.Person(t, "Ada@Example.com", nil)
	ask := func(host, email string) (*gatewaytest.Answer, time.Duration) {
		began := time.Now()
		a := g.Do(t, http.MethodPost, host, "/auth/password/forgot", gatewaytest.JSON(map[string]string{"email": email}))
		return a, time.Since(began)
	}
	known, took := ask(acme.Host, "ada@EXAMPLE.com")
	for _, other := range []struct{ host, email string }{{acme.Host, "nobody@example.com"}, {"nowhere.localhost", "ada@example.com"}} {
		a, unknown := ask(other.host, other.email)
		if a.Code != known.Code || a.Text() != known.Text() || fixture.Canonical(a, "", nil) != fixture.Canonical(known, "", nil) {
			t.Errorf("%v: got %d %s, want as for a person %d %s", other, a.Code, a.Body, known.Code, known.Body)
		}
		if least := 250 * time.Millisecond; unknown < least || took < least {
			t.Errorf("%v: answered after %s, for a person after %s, want at least %s", other, unknown, took, least)
		}
	}
	m := server.next()
	if m.To != "Ada@Example.com" { // as it is stored
		t.Errorf("got a mail to %s", m.To)
	}
	fixture.Await(t, "no trace of the address that nobody has", func() bool { acme.send(t); return len(acme.list(t)) == 1 })
	server.none()

	token := func(m received) string {
		t.Helper()
		link := linkIn.FindStringSubmatch(m.Text)
		if link == nil || !strings.Contains(m.HTML, link[1]) {
			t.Fatalf("got %q and %q, want a link", m.Text, m.HTML)
		}
		return link[1]
	}
	choose := func(token string) int {
		return acme.Do(t, http.MethodPost, "/auth/password", gatewaytest.JSON(map[string]string{"token": token, "password": "another " + gatewaytest.Password})).Code
	}
	first := token(m)
	acme.SignIn(t, "ada@example.com") // with the password until now
	clock.Advance(31 * time.Minute)
	if code := choose(first); code != http.StatusForbidden {
		t.Errorf("the link after 31 minutes: got %d, want 403", code)
	}
	ask(acme.Host, "ada@example.com")
	second := token(server.next())
	ask(acme.Host, "ada@example.com")
	third := token(server.next())
	for i, want := range []int{403, 200, 403} { // the second is replaced by the third
		if code := choose([]string{second, third, third}[i]); code != want {
			t.Errorf("link %d: got %d, want %d", i+2, code, want)
		}
	}
	acme.settled(t, 3)
	ask(acme.Host, "ada@example.com")
	fixture.Await(t, "the fourth refused", func() bool { acme.send(t); all := acme.list(t); return all[len(all)-1].State == "failed" })
	server.none()
	if log := strings.ToLower(g.Log.String()); strings.Contains(log, "ada@example.com") || strings.Contains(log, "nobody@example.com") {
		t.Errorf("the log holds an address:\n%s", log)
	}
}

// TestForgottenPage checks the page on which people ask for a new password, with and without mail.
func TestForgottenPage(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	with, without := gatewaytest.Start(t, server.withMail()), gatewaytest.Start(t)
	for _, test := range []struct {
		g             *gatewaytest.Gateway
		before, after string
	}{
		{with, `action="/forgot"`, "If somebody has this address, a mail with a link is on its way"},
		{without, "Nobody is mailed by this installation", "Nobody is mailed by this installation"},
	} {
		acme := open(t, test.g, "acme")
		a := acme.Do(t, http.MethodGet, "/forgot")
		if a.Code != http.StatusOK || !strings.Contains(a.Text(), test.before) {
			t.Errorf("got %d %s, want %q", a.Code, a.Body, test.before)
		}
		a = acme.Do(t, http.MethodPost, "/forgot", gatewaytest.Body("application/x-www-form-urlencoded", "email=root%40acme.example"),
			gatewaytest.Header("Sec-Fetch-Site", "same-origin"))
		if a.Code != http.StatusOK || !strings.Contains(a.Text(), test.after) {
			t.Errorf("got %d %s, want %q", a.Code, a.Body, test.after)
		}
	}
	if m := server.next(); m.To != "root@acme.example" {
		t.Errorf("got a mail to %s", m.To)
	}
}

// TestNewSignInIsTold checks that a person is mailed about a sign-in from a browser or a network that they have not used,
// but not about the first one.
func TestNewSignInIsTold(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	var clock fixture.Clock
	g := gatewaytest.Start(t, server.withMail(), clock.Option)
	acme := open(t, g, "acme")
	acme.Person(t, "ada@example.com", nil) // signs in for the first time
	signIn := func(browser string) {
		t.Helper()
		a := acme.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": "ada@example.com", "password": gatewaytest.Password}),
			gatewaytest.Header("User-Agent", browser))
		if a.Code != http.StatusOK {
			t.Fatalf("signing in: got %d %s", a.Code, a.Body)
		}
	}
	acme.SignIn(t, "ada@example.com")
	const firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:%d.0) Gecko/20100101 Firefox/140.0"
	signIn(firefox)
	m := server.next()
	if m.To != "ada@example.com" || m.Subject != "New sign-in to Organization acme" || !strings.Contains(m.Text, "Firefox on Linux") || !strings.Contains(m.Text, "127.0.0.1") {
		t.Errorf("got a mail to %s: %s\n%s", m.To, m.Subject, m.Text)
	}
	signIn(strings.ReplaceAll(firefox, "140.0", "141.0")) // a new version is no new browser
	clock.Advance(25 * time.Hour)
	signIn(firefox)
	acme.settled(t, 1)
	server.none()
	places := g.App.Mails().Places.In(acme.Tenant(t).Workspace())
	n, err := places.Count(t.Context(), store.Filter{})
	if err != nil || n != 3 { // two of Ada, one of the administrator
		t.Errorf("places = %d %v, want 3", n, err)
	}
	clock.Advance(200 * 24 * time.Hour)
	if _, err := g.App.EmptyTrash(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := places.Count(t.Context(), store.Filter{}); err != nil || n != 0 {
		t.Errorf("places after 200 days = %d %v, want none", n, err)
	}
	if all := acme.list(t); len(all) != 0 {
		t.Errorf("mails after 200 days = %+v, want none", all)
	}
}
