package mail

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

var (
	linkIn = regexp.MustCompile(`http://[^\s]+/welcome#(\S+)`)
	nameIn = regexp.MustCompile(`submission \d+-\d+\.`)
)

// TestInvitationIsMailed checks that the link of an invitation is answered and mailed, over an encrypted connection after
// signing in, that the mailed link works, and that nothing personal is logged or stored in clear.
func TestInvitationIsMailed(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	var authority string
	server.tls, authority = certificate(t)
	server.auth = true
	server.start()
	g := gatewaytest.Start(t, server.withMail(func(m *config.Mail) { m.TLSCAFile = authority }))
	org := g.Org(t, "acme")
	admin := org.Key(t, tenants.ManageUsers, tenants.ViewUsers)
	a := org.Do(t, http.MethodPost, "/api/users", gatewaytest.WithKey(admin),
		gatewaytest.JSON(map[string]any{"name": "Ada", "email": "ada@example.com"}))
	if a.Code != http.StatusOK || a.Field("mailed") != true {
		t.Fatalf("got %d %s, want the user invited and mailed", a.Code, a.Body)
	}
	m := server.next()
	if m.To != "ada@example.com" || m.From != mailSender || m.Subject != "Invitation to Organization acme" {
		t.Errorf("got a mail from %s to %s: %s", m.From, m.To, m.Subject)
	}
	if signed, clear := server.signed.Load(), server.clear.Load(); signed != 1 || clear != 0 {
		t.Errorf("sign-ins = %d, unencrypted mails = %d, want 1 and 0", signed, clear)
	}
	for name, want := range map[string]string{"Auto-Submitted": "auto-generated", "From": `"Organization acme" <` + mailSender + ">", "List-Unsubscribe": ""} {
		if got := m.Header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	link := linkIn.FindStringSubmatch(m.Text)
	if link == nil || !strings.Contains(m.HTML, link[1]) || a.Field("link") != link[0] {
		t.Fatalf("got %q and %q, want the link %v", m.Text, m.HTML, a.Field("link"))
	}
	chosen := org.Do(t, http.MethodPost, "/auth/password", gatewaytest.JSON(map[string]string{"token": link[1], "password": gatewaytest.Password}))
	if chosen.Code != http.StatusOK {
		t.Errorf("choosing a password: got %d %s", chosen.Code, chosen.Body)
	}
	if log := g.Log.String(); strings.Contains(log, "ada@example.com") || strings.Contains(log, link[1]) || strings.Contains(log, mailPassword) {
		t.Errorf("the log holds an address, a link or a password:\n%s", log)
	}
}

// TestMailsHaveTheColorOfTheOrganization checks that what an administrator sets colors the button of a mail.
func TestMailsHaveTheColorOfTheOrganization(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	acme := open(t, gatewaytest.Start(t, server.withMail()), "acme")
	as := fixture.As(acme.Org, gatewaytest.Cookie(acme.admin))
	as.Want(t, http.MethodPut, "/api/organization", `{"color":"red"}`, 422, "color must be # and six hexadecimal digits")
	as.Want(t, http.MethodPut, "/api/organization", `{"color":"#FFEE00"}`, 200, `"color":"#ffee00"`)
	acme.invite(t, "ada@example.com")
	if m := server.next(); !strings.Contains(m.HTML, "background:#ffee00;color:#1c2430") {
		t.Errorf("got the mail %s", m.HTML)
	}
}
