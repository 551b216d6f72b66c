package mail

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// TestPausedWebhookIsMailed pauses a webhook whose receiver has gone: the administrators are mailed why, once.
func TestPausedWebhookIsMailed(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	defer receiver.Close()
	g := gatewaytest.Start(t, fixture.ShortLeases, server.withMail(), func(c *config.Config, _ *gateway.Options) {
		c.Webhooks.AllowNetworks = []string{"127.0.0.0/8"}
	})
	acme := open(t, g, "acme")
	as := fixture.As(acme.Org, gatewaytest.Cookie(acme.admin))
	account := as.Create(t, "/api/service-accounts", `{"name":"crm","permissions":["contacts"]}`)
	hook := as.Create(t, "/api/webhooks", `{"name":"CRM\\r\\nBcc: x@example.com","url":"`+receiver.URL+`","account":"`+account+`","kinds":["contact"]}`)
	as.Create(t, "/api/contacts", `{"first_name":"Ada"}`)
	m := server.next()
	if m.Subject != "A webhook was paused" || !strings.Contains(m.Text, "The receiver answered 410 Gone.") ||
		!strings.Contains(m.Text, "/webhooks/"+hook) || m.Header.Get("Bcc") != "" {
		t.Errorf("got the mail %+v", m)
	}
	fixture.Await(t, "the webhook is paused, which follows the mail", func() bool {
		return strings.Contains(as.Want(t, http.MethodGet, "/api/webhooks/"+hook, "", 200, "").Text(), "410 Gone")
	})
	server.none()
}
