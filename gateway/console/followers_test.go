package console_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
)

// followersOf returns the part of the page of followers that is about a kind.
func followersOf(page, kind string) string {
	_, rest, _ := strings.Cut(page, `<section id="`+kind+`">`)
	rest, _, _ = strings.Cut(rest, "</section>")
	return rest
}

// TestFollowers_LastDelivery checks that the page tells when a webhook last accepted an event.
func TestFollowers_LastDelivery(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	_, acme, cookie := rich(t, nil, func(cfg *config.Config, _ *gateway.Options) {
		cfg.Webhooks.AllowNetworks = []string{"127.0.0.0/8", "::1/128"}
	})
	root := person{t, acme, cookie}
	account, _ := root.api(http.MethodPost, "/api/service-accounts", m{"name": "Sales", "permissions": []string{"contacts"}}).Field("id").(string)
	hook, _ := root.api(http.MethodPost, "/api/webhooks", m{
		"name": "CRM", "url": receiver.URL, "account": account, "kinds": []string{"campaign"},
	}).Field("id").(string)
	root.api(http.MethodPost, "/api/webhooks/"+hook+"/test", nil)
	if got := followersOf(root.open("/followers").Text(), "campaign"); !strings.Contains(got, "Not lately") {
		t.Errorf("after a test: %s", got)
	}
	root.api(http.MethodPost, "/api/campaigns", m{"name": "Spring"})
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		got := followersOf(root.open("/followers").Text(), "campaign")
		if strings.Contains(got, "<time datetime=") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after an event: %s", got)
		}
	}
}

// TestFollowers checks that the page tells of each webhook and each form with alerts under the kinds that they follow,
// and only people who may read those.
func TestFollowers(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	root := person{t, acme, cookie}
	account, _ := root.api(http.MethodPost, "/api/service-accounts", m{"name": "Sales", "permissions": []string{"contacts"}}).Field("id").(string)
	hook, _ := root.api(http.MethodPost, "/api/webhooks", m{
		"name": "CRM", "url": "https://localhost/crm", "account": account, "kinds": []string{"contact.created", "contact.deleted", "campaign"},
	}).Field("id").(string)
	form, _ := root.api(http.MethodPost, "/api/form/collections", m{
		"name": "visit", "label": "Visit", "label_plural": "Visits", "email_alerts": m{"enabled": true, "recipients": []string{"office@example.com"}},
	}).Field("id").(string)
	root.api(http.MethodPost, "/api/form/collections", m{
		"name": "quiet", "label": "Quiet", "label_plural": "Quiets", "email_alerts": m{"recipients": []string{"office@example.com"}},
	})
	page := root.open("/followers")
	checkPage(t, page, 200, "<h1>Who follows what</h1>", `data-kinds="webhook,form_collection"`)
	const shop = "all that its account may read"
	crm := `<a href="/webhooks/` + hook + `"><span dir="auto">CRM</span></a>`
	for kind, want := range map[string][]string{
		"any": {"Shop hook", shop}, "contact": {crm, "created, deleted", "Not lately"}, "campaign": {crm, ">all<"},
		"submission": {`<a href="/form/collections/` + form + `">`, "E-mail alerts: Visit", "/mails?filters%5Btopic%5D=form_alert"},
	} {
		got := followersOf(page.Text(), kind)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("the kind %s lacks %q: %s", kind, text, got)
			}
		}
		if strings.Contains(got, crm) != (kind == "contact" || kind == "campaign") || strings.Contains(got, "Quiet") ||
			kind != "any" && strings.Contains(got, "Shop hook") {
			t.Errorf("the kind %s has others: %s", kind, got)
		}
	}
	checkPage(t, root.open("/contacts"), 200, `<a href="/followers#contact">Who follows these</a>`)

	_, cookie = acme.Person(t, "ada@example.com", func(n *control.NewUser) { n.Permissions = []string{"manage_webhooks", "contacts"} })
	ada := person{t, acme, cookie}
	page = ada.open("/followers")
	checkPage(t, page, 200, "People who may manage forms see their e-mail alerts here")
	if text := page.Text(); !strings.Contains(followersOf(text, "contact"), crm) || followersOf(text, "submission") != "" || strings.Contains(text, "Visit") {
		t.Errorf("a person who may manage webhooks and read contacts sees %s", text)
	}
	_, cookie = acme.Person(t, "bob@example.com", func(n *control.NewUser) { n.Permissions = []string{"contacts"} })
	bob := person{t, acme, cookie}
	checkPage(t, bob.open("/followers"), 403, "You may not see this")
	if strings.Contains(bob.open("/contacts").Text(), "/followers") {
		t.Error("a list links to the followers for a person who may not see them")
	}
}
