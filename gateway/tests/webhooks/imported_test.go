package webhooks

import (
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// TestImportedWebhooksSend: a webhook that was imported into an organization without any sends what happens from the
// moment its secret is rotated.
func TestImportedWebhooksSend(t *testing.T) {
	t.Parallel()
	r := receive(t)
	g := gatewaytest.Start(t, inside)
	acme, birch := g.Org(t, "acme"), g.Org(t, "birch")
	from, root := admin(t, acme), admin(t, birch)
	h := create(t, from, "CRM", r.URL, account(t, from, "crm", contactsOnly), "")
	var lines []string
	for line := range strings.Lines(fixture.Export(t, acme)) {
		if strings.Contains(line, `"kind":"webhook"`) || strings.Contains(line, `"kind":"service_account"`) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	birch.Import(t, lines...)
	root.Create(t, "/api/contacts", `{"first_name":"Before"}`)
	if s := state(t, root, h.ID); s.State != "paused" || !strings.Contains(s.PausedReason, "no secret") {
		t.Errorf("imported: got %+v, want it paused without a secret", s)
	}
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/rotate", "{}", 200, `"state":"active"`)
	id := root.Create(t, "/api/contacts", `{"first_name":"After"}`)
	if got := r.awaitSome(t, 1); len(got) != 1 || got[0].Data.Record != id {
		t.Errorf("got %+v, want what happened to %s after the rotation", got, id)
	}
}
