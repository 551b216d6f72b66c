package backup

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// eventsAfter returns the answer to a cursor.
func eventsAfter(t *testing.T, o *gatewaytest.Org, key, cursor string) *gatewaytest.Answer {
	t.Helper()
	return o.Get(t, key, "/api/events?after="+url.QueryEscape(cursor))
}

// TestRestore_Events checks that whoever follows an organization notices that it was set back, alone or with the whole
// installation: their cursors end, and new ones work.
func TestRestore_Events(t *testing.T) {
	t.Parallel()
	s := newSite(t, gatewaytest.SharedFiles, quickly)
	acme := s.Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	begin := eventsAfter(t, acme, key, "").Field("next").(string)
	c := fixture.WithToken(acme, key)
	c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"Then"}`)
	m := s.backUp(t, nil)
	c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"Since"}`)
	a := eventsAfter(t, acme, key, begin)
	if found := a.Field("results").([]any); len(found) != 2 {
		t.Fatalf("got %s, want two events", a.Body)
	}
	last := a.Field("next").(string)

	followed := func(what string, o *gatewaytest.Org) {
		t.Helper()
		for _, cursor := range []string{begin, last} {
			if a := eventsAfter(t, o, key, cursor); a.Code != http.StatusGone {
				t.Errorf("%s: got %d %s for a cursor from before, want 410", what, a.Code, a.Body)
			}
		}
		next := eventsAfter(t, o, key, "").Field("next").(string)
		id := fixture.WithToken(o, key).Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"New"}`).Field("id")
		a := eventsAfter(t, o, key, next)
		if found, _ := a.Field("results").([]any); len(found) != 1 || found[0].(map[string]any)["record"] != id {
			t.Errorf("%s: got %s, want the new contact %s", what, a.Body, id)
		}
	}
	if _, err := s.restoreOrg(t, confirmed); err != nil {
		t.Fatal(err)
	}
	followed("one organization", acme)
	whole := s.mustRestore(t, m.Name)
	followed("the installation", at(whole, acme))
}

// TestRestore_Webhooks checks that a webhook that a restoration brings back, after the organization had none for long, says
// that events were lost, and sends what happens once it is resumed.
func TestRestore_Webhooks(t *testing.T) {
	t.Parallel()
	sent := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent <- string(body)
	}))
	t.Cleanup(server.Close)
	clock := new(fixture.Clock)
	s := newSite(t, gatewaytest.SharedFiles, quickly, clock.Option, func(c *config.Config, _ *gateway.Options) {
		c.Webhooks.AllowNetworks = []string{"127.0.0.0/8"}
	})
	acme := s.Org(t, "acme")
	c := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
	account := c.Want(t, http.StatusOK, http.MethodPost, "/api/service-accounts", `{"name":"crm","permissions":["contacts"]}`).Field("id")
	c.Want(t, http.StatusOK, http.MethodPost, "/api/webhooks", fmt.Sprintf(`{"name":"CRM","url":%q,"account":%q}`, server.URL, account))
	s.backUp(t, nil)
	c.Want(t, http.StatusOK, http.MethodDelete, "/api/webhooks/CRM", "")
	clock.Advance(2 * time.Hour)
	if err := acme.App.Directory().ForgetSending(t.Context(), &acme.Tenant(t).Org); err != nil {
		t.Fatal(err)
	}
	if _, err := s.restoreOrg(t, confirmed); err != nil {
		t.Fatal(err)
	}
	fixture.Await(t, "the webhook says that events were lost", func() bool {
		reason, _ := c.Want(t, http.StatusOK, http.MethodGet, "/api/webhooks/CRM", "").Field("paused_reason").(string)
		return strings.Contains(reason, "Events were lost")
	})
	c.Want(t, http.StatusOK, http.MethodPost, "/api/webhooks/CRM/resume", "")
	id, _ := c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"New"}`).Field("id").(string)
	select {
	case body := <-sent:
		if !strings.Contains(body, id) {
			t.Errorf("got %s, want what happened to %s", body, id)
		}
	case <-time.After(time.Minute):
		t.Error("nothing was sent")
	}
}
