package webhooks

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/webhooks"
)

// TestQuietOrganizationIsSentTo: an organization in which nothing happens for longer than events are kept goes on to be
// sent what happens next.
func TestQuietOrganizationIsSentTo(t *testing.T) {
	t.Parallel()
	r, clock := receive(t), newClock()
	acme := gatewaytest.Start(t, inside, clock.option).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	root.Create(t, "/api/contacts", `{"first_name":"One"}`)
	r.awaitEvents(t, 1)
	for range 3 {
		clock.add(10 * 24 * time.Hour)
		fixture.EmptyTrash(t, acme.App)
	}
	root = again(t, acme)
	root.Create(t, "/api/contacts", `{"first_name":"Two"}`)
	r.awaitEvents(t, 2)
	awaitState(t, root, h.ID, "active")
}

// TestNotesOfTheLastWebhook: what was sent to a webhook is forgotten, also after an organization has none any more.
func TestNotesOfTheLastWebhook(t *testing.T) {
	t.Parallel()
	r, clock := receive(t), newClock()
	acme := gatewaytest.Start(t, inside, clock.option).Org(t, "acme")
	root := admin(t, acme)
	create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/test", "", 200, "delivered")
	root.Want(t, http.MethodDelete, "/api/webhooks/CRM", "", 200, "")
	clock.add(2 * time.Hour)
	tenant := acme.Tenant(t)
	if err := acme.App.Directory().ForgetSending(t.Context(), &tenant.Org); err != nil {
		t.Fatal(err)
	}
	left := func() int {
		n, err := acme.App.Webhooks().Deliveries.In(tenant.Workspace()).Count(t.Context(), store.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	fixture.EmptyTrash(t, acme.App)
	if left() != 1 {
		t.Errorf("got %d notes after two hours, want one", left())
	}
	clock.add(8 * 24 * time.Hour)
	fixture.EmptyTrash(t, acme.App)
	if left() != 0 {
		t.Errorf("got %d notes after eight days, want none", left())
	}
}

// TestSlowReceiverKeepsNoOtherWaiting: what happens while one webhook of an organization has a lot to send to a receiver
// that takes long is sent to another meanwhile.
func TestSlowReceiverKeepsNoOtherWaiting(t *testing.T) {
	t.Parallel()
	var slow atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		slow.Add(1)
		select {
		case <-r.Context().Done():
		case <-time.After(time.Second):
		}
	}))
	t.Cleanup(server.Close)
	r := receive(t)
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	crm := account(t, root, "crm", contactsOnly)
	create(t, root, "slow", server.URL, crm, "")
	root.Want(t, http.MethodPost, "/api/webhooks/slow/pause", "", 200, "") // until all is there
	create(t, root, "quick", r.URL, crm, `,"kinds":["contact.updated"]`)
	var last string
	for i := range 400 {
		last = root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"N%d"}`, i))
	}
	root.Want(t, http.MethodPost, "/api/webhooks/slow/resume", "", 200, "")
	fixture.Await(t, "the slow receiver is at work", func() bool { return slow.Load() > 0 })
	root.Want(t, http.MethodPut, "/api/contacts/"+last, `{"first_name":"M"}`, 200, "")
	r.awaitEvents(t, 1)
	if n := slow.Load(); n > 350 {
		t.Errorf("the other was sent to after %d of 400 slow deliveries, want it sent to meanwhile", n)
	}
}

// TestLostEventsEndWithResuming: a webhook that lost events is sent all that happens after the call that resumed it, however
// late this process comes to it.
func TestLostEventsEndWithResuming(t *testing.T) {
	t.Parallel()
	r := receive(t)
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	ws := acme.Tenant(t).Workspace()
	hooks, progress := acme.App.Webhooks().Hooks.In(ws), acme.App.Webhooks().Progress.In(ws)
	var made []string
	for i := range 20 {
		made = append(made, root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"N%d"}`, i)))
		r.await(t, "the contact is sent", func(_, all []message) bool {
			return slices.ContainsFunc(all, func(m message) bool { return m.Data.Record == made[i] })
		})
		_, err := hooks.Update(t.Context(), h.ID, func(h *webhooks.Hook) error { h.Paused = true; return nil })
		if err == nil {
			_, err = progress.Update(t.Context(), h.ID, func(p *webhooks.Progress) error { p.Cursor = ""; return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		root.Want(t, http.MethodPost, "/api/webhooks/CRM/resume", "", 200, `"state":"active"`)
	}
}
