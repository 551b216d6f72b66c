package webhooks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

const contactsOnly = `,"permissions":["contacts"]`

// TestEventsAreSent: a receiver gets what happens after the webhook was made, signed, and as the event log has it;
// deliveries are listed, and nothing shows the secret again.
func TestEventsAreSent(t *testing.T) {
	t.Parallel()
	r := receive(t)
	g := gatewaytest.Start(t, inside)
	acme := g.Org(t, "acme")
	root := admin(t, acme)
	root.Create(t, "/api/contacts", `{"first_name":"Before"}`)
	h := create(t, root, "CRM", r.URL+"/in", account(t, root, "crm", contactsOnly), `,"kinds":["contact.created","contact.deleted"]`)
	var ids []string
	for i := range 20 {
		ids = append(ids, root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"N%d"}`, i)))
	}
	root.Want(t, http.MethodPut, "/api/contacts/"+ids[0], `{"first_name":"Other"}`, 200, "")
	root.Want(t, http.MethodDelete, "/api/contacts/"+ids[0], "", 200, "")

	got := r.awaitEvents(t, 21)
	seen := map[string]bool{}
	for _, m := range got {
		m.verify(t, h.Secret)
		if m.header.Get("webhook-id") != m.Data.ID || m.Type != m.Data.Kind || m.Timestamp != m.Data.At {
			t.Errorf("got %s with the headers %v, want the id of the event, its kind and time", m.body, m.header)
		}
		seen[m.Data.ID] = true
	}
	for _, id := range ids {
		if !slices.ContainsFunc(got, func(m message) bool { return m.Data.Record == id && m.Type == "contact.created" }) {
			t.Errorf("the creation of %s was not sent", id)
		}
	}
	if n := slices.IndexFunc(got, func(m message) bool { return m.Type == "contact.deleted" }); n < 0 || got[n].Data.Record != ids[0] {
		t.Errorf("the deletion of %s was not sent", ids[0])
	}
	list := func() (page struct {
		Count   int
		Results []struct {
			ID, State string
			Status    int
			Event     event
			FirstAt   time.Time `json:"first_at"`
			LastAt    time.Time `json:"last_at"`
		}
	}) {
		t.Helper()
		a := root.Want(t, http.MethodGet, "/api/webhooks/CRM/deliveries?per_page=1000", "", 200, "")
		if err := json.Unmarshal([]byte(a.DataJSON()), &page); err != nil {
			t.Fatal(err)
		}
		return page
	}
	page := list()
	for end := time.Now().Add(patience); page.Count < 21 && time.Now().Before(end); page = list() {
		time.Sleep(10 * time.Millisecond) // they are noted after they were sent
	}
	for _, d := range page.Results {
		if d.State != "delivered" || d.Status != 200 || !seen[d.Event.ID] || d.FirstAt.After(d.LastAt) {
			t.Errorf("got the note %+v, want one of a delivered event", d)
		}
	}
	if page.Count != 21 {
		t.Errorf("got %d notes, want 21", page.Count)
	}
	for _, path := range []string{"/api/webhooks", "/api/webhooks/" + h.ID, "/api/webhooks/CRM/deliveries", "/api/audit", "/api/export"} {
		if a := acme.Do(t, http.MethodGet, path, root.As); strings.Contains(string(a.Body), h.Secret) || a.Code != 200 {
			t.Errorf("%s answers %d, and shows the secret: %t", path, a.Code, strings.Contains(string(a.Body), h.Secret))
		}
	}
	if log := g.Log.String(); strings.Contains(log, h.Secret) || strings.Contains(log, "/in") {
		t.Errorf("the log has the secret or the address")
	}
}

// TestSecretsRotate: after a rotation both secrets sign until the overlap ends, and then only the new one. A test is
// signed as well, and sent while the webhook is paused.
func TestSecretsRotate(t *testing.T) {
	t.Parallel()
	r, clock := receive(t), newClock()
	acme := gatewaytest.Start(t, inside, clock.option).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/pause", "", 200, `"state":"paused"`)
	a := root.Want(t, http.MethodPost, "/api/webhooks/CRM/rotate", `{"overlap":3600}`, 200, "whsec_")
	next, _ := a.Field("secret").(string)
	test := func(n int) message {
		root.Want(t, http.MethodPost, "/api/webhooks/CRM/test", "", 200, `"state":"delivered"`)
		return r.awaitSome(t, n)[n-1]
	}
	m := test(1)
	m.verify(t, h.Secret)
	m.verify(t, next)
	if m.Type != "webhook.test" || next == h.Secret {
		t.Errorf("got the type %q, and the same secret: %t", m.Type, next == h.Secret)
	}
	clock.add(2 * time.Hour)
	m = test(2)
	m.verify(t, next)
	if n := len(strings.Fields(m.header.Get("webhook-signature"))); n != 1 {
		t.Errorf("got %d signatures after the overlap, want 1", n)
	}
}

// clock is a clock that tests move.
type clock struct{ ahead atomic.Int64 }

func newClock() *clock { return &clock{} }

func (c *clock) option(_ *config.Config, o *gateway.Options) {
	o.Now = func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
}

func (c *clock) add(d time.Duration) { c.ahead.Add(int64(d)) }

// TestReceiverAway: while a receiver is away for an hour, tries become rare; when it is back, all is delivered, in order
// for each record. One that stays away for three days has its webhook paused, and resuming delivers what waits.
func TestReceiverAway(t *testing.T) {
	t.Parallel()
	r, clock := receive(t), newClock()
	acme := gatewaytest.Start(t, inside, clock.option).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	r.answering(refuse(http.StatusInternalServerError))
	id := root.Create(t, "/api/contacts", `{"first_name":"One"}`)
	for i := range 5 {
		root.Want(t, http.MethodPut, "/api/contacts/"+id, fmt.Sprintf(`{"first_name":"N%d"}`, i), 200, "")
	}
	tries := 0
	for range 60 {
		r.await(t, "another try, or a long pause", func(_, all []message) bool { tries = len(all); return tries > 0 })
		awaitFailing(t, root, h.ID)
		clock.add(time.Minute)
	}
	if r.awaitSome(t, 0); tries > 60 {
		t.Errorf("got %d tries in an hour, want few", tries)
	}
	r.answering(nil)
	clock.add(time.Hour)
	if got := r.awaitRecord(t, id, 6); !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6}) {
		t.Errorf("got the revisions %v, want 1 to 6 in order", got)
	}
	awaitState(t, root, h.ID, "active")

	r.answering(refuse(http.StatusInternalServerError))
	root.Create(t, "/api/contacts", `{"first_name":"Two"}`)
	awaitState(t, root, h.ID, "failing")
	clock.add(4 * 24 * time.Hour)
	root = again(t, acme)
	awaitState(t, root, h.ID, "paused")
	if s := state(t, root, h.ID); !strings.Contains(s.PausedReason, "three days") {
		t.Errorf("paused because: %q, want three days", s.PausedReason)
	}
	r.answering(nil)
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/resume", "", 200, `"state":"active"`)
	r.awaitEvents(t, 7)
}

// again signs the administrator in again, after their session has expired.
func again(t *testing.T, o *gatewaytest.Org) fixture.Client {
	t.Helper()
	return fixture.As(o, gatewaytest.Cookie(o.SignIn(t, "ada@example.com")))
}

// awaitState waits until the webhook has a state.
func awaitState(t *testing.T, c fixture.Client, id, want string) {
	t.Helper()
	var got string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got = state(t, c, id).State; got == want {
			return
		}
	}
	t.Fatalf("the webhook is %s, want %s", got, want)
}

func awaitFailing(t *testing.T, c fixture.Client, id string) {
	t.Helper()
	awaitState(t, c, id, "failing")
}

// TestPauses: a receiver that is gone, and an account that ended, pause the webhook; what it says is honoured.
func TestPauses(t *testing.T) {
	t.Parallel()
	r, clock := receive(t), newClock()
	acme := gatewaytest.Start(t, inside, clock.option).Org(t, "acme")
	root := admin(t, acme)
	crm := account(t, root, "crm", contactsOnly)
	h := create(t, root, "CRM", r.URL, crm, "")
	r.answering(refuse(http.StatusGone))
	before := root.Create(t, "/api/contacts", `{"first_name":"One"}`)
	awaitState(t, root, h.ID, "paused")
	if s := state(t, root, h.ID); !strings.Contains(s.PausedReason, "410") {
		t.Errorf("paused because: %q, want 410", s.PausedReason)
	}
	r.answering(func(_ int, _ message, w http.ResponseWriter) bool {
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(http.StatusServiceUnavailable)
		return false
	})
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/resume", "", 200, `"active"`)
	awaitState(t, root, h.ID, "failing")
	a := root.Want(t, http.MethodGet, "/api/webhooks/CRM", "", 200, "")
	text, _ := a.Field("next_try").(string)
	if at, err := time.Parse(time.RFC3339, text); err != nil || time.Until(at) < 110*time.Minute {
		t.Errorf("the next try is at %q, want about two hours later", text)
	}
	r.answering(nil)
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/resume", "", 200, "")
	r.awaitSome(t, 1)
	root.Want(t, http.MethodPut, "/api/service-accounts/"+crm, `{"active":false}`, 200, "")
	root.Create(t, "/api/contacts", `{"first_name":"Two"}`)
	awaitState(t, root, h.ID, "paused")
	if s := state(t, root, h.ID); !strings.Contains(s.PausedReason, "service account") {
		t.Errorf("paused because: %q, want the account", s.PausedReason)
	}
	for _, m := range r.awaitSome(t, 1) {
		if m.Data.Record != before {
			t.Errorf("got what happened to %s, want nothing more: the account had ended", m.Data.Record)
		}
	}
}

// TestSendingAgain: an event is sent again with its identifier, one by one or with all that followed it, as far as the
// account may read it now.
func TestSendingAgain(t *testing.T) {
	t.Parallel()
	r := receive(t)
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	crm := account(t, root, "crm", contactsOnly)
	create(t, root, "CRM", r.URL, crm, "")
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/pause", "", 200, "")
	const n = 24 // more than are sent side by side, so that another than the first is often sent first
	since := time.Now().UTC().Add(-time.Minute).Format(time.RFC3339)
	for i := range n {
		root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"N%d"}`, i))
	}
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/resume", "", 200, "")
	first := r.awaitSome(t, n)
	var page struct {
		Results []struct {
			ID, State string
			Event     event
		}
	}
	for end := time.Now().Add(patience); len(page.Results) < n && time.Now().Before(end); {
		a := root.Want(t, http.MethodGet, "/api/webhooks/CRM/deliveries?sort=created_at", "", 200, "")
		if err := json.Unmarshal([]byte(a.DataJSON()), &page); err != nil {
			t.Fatal(err)
		}
	}
	one := page.Results[0]
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/deliveries/"+one.ID+"/resend", "", 200, `"tries":2`)
	if got := r.awaitSome(t, n+1); got[n].Data != one.Event {
		t.Errorf("got %+v again, want %+v", got[n].Data, one.Event)
	}
	a := root.Want(t, http.MethodPost, "/api/webhooks/CRM/resend", fmt.Sprintf(`{"since":%q}`, since), 200, "")
	if from := a.Field("from"); !slices.ContainsFunc(first, func(m message) bool { return m.Data.ID == from }) {
		t.Errorf("sending again from %v, want one of the events", from)
	}
	all := r.awaitSome(t, 2*n+1)
	for i := range n {
		if !slices.ContainsFunc(all[n+1:], func(m message) bool { return m.Data == first[i].Data }) {
			t.Errorf("%s was not sent again", first[i].Data.ID)
		}
	}
	root.Want(t, http.MethodPut, "/api/service-accounts/"+crm, `{"permissions":[]}`, 200, "")
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/deliveries/"+one.ID+"/resend", "", 404, "Delivery not found")
}

// TestSendingAgainWhatWasPassedOver: events that an account lost the right to read are passed over, and sent again once it
// has the right again.
func TestSendingAgainWhatWasPassedOver(t *testing.T) {
	t.Parallel()
	r := receive(t)
	var reads atomic.Int64 // of the log
	observe := func(_ *config.Config, o *gateway.Options) {
		o.Observe = func(c store.Call) {
			if c.Operation == "find" && c.Collection == "events" {
				reads.Add(1)
			}
		}
	}
	acme := gatewaytest.Start(t, inside, observe).Org(t, "acme")
	root := admin(t, acme)
	crm := account(t, root, "crm", `,"permissions":["contacts","manage_forms"]`)
	create(t, root, "CRM", r.URL, crm, `,"kinds":["contact.*","form_collection.*"]`)
	since := time.Now().UTC().Add(-time.Minute).Format(time.RFC3339)
	resend := func() {
		t.Helper()
		fixture.Await(t, "a note of the delivery", func() bool {
			a := root.Want(t, http.MethodPost, "/api/webhooks/CRM/resend", fmt.Sprintf(`{"since":%q}`, since), 200, "")
			return a.Field("from") != ""
		})
	}
	root.Create(t, "/api/contacts", `{"first_name":"One"}`)
	first := r.awaitSome(t, 1)[0].Data
	root.Want(t, http.MethodPut, "/api/service-accounts/"+crm, `{"permissions":["manage_forms"]}`, 200, "")
	before := reads.Load()
	resend()
	fixture.Await(t, "the log was read once more", func() bool { return reads.Load() > before })
	root.Want(t, http.MethodPut, "/api/service-accounts/"+crm, `{"permissions":["contacts","manage_forms"]}`, 200, "")
	resend()
	if got := r.awaitSome(t, 2); got[1].Data != first {
		t.Errorf("got %+v again, want %s", got[1], first.ID)
	}
}

// TestOrganizationKeepsItsETag: what the gateway notes about an organization that has webhooks is no change of it.
func TestOrganizationKeepsItsETag(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	before := root.Want(t, http.MethodGet, "/api/organization", "", 200, "")
	create(t, root, "CRM", receive(t).URL, account(t, root, "crm", contactsOnly), "")
	after := root.Want(t, http.MethodGet, "/api/organization", "", 200, "")
	version := func(a *gatewaytest.Answer) string {
		number, _, _ := strings.Cut(a.Header.Get("ETag"), "-")
		return number + fmt.Sprint(a.Field("updated_at"))
	}
	if version(after) != version(before) {
		t.Errorf("got %s, want %s as before", version(after), version(before))
	}
	change := func() *gatewaytest.Answer {
		match := gatewaytest.Header("If-Match", before.Header.Get("ETag"))
		return acme.Do(t, http.MethodPut, "/api/organization", root.As, match, fixture.JSONText(`{"color":"#123456"}`))
	}
	if a := change(); a.Code != http.StatusOK || version(a) == version(before) {
		t.Errorf("got %d %s, want the change, and another ETag", a.Code, a.Body)
	}
	if a := change(); a.Code != http.StatusPreconditionFailed {
		t.Errorf("got %d %s, want 412 after a change", a.Code, a.Body)
	}
}

// TestKindsThatTheAccountLacks: an answer warns of kinds whose records the account may not read.
func TestKindsThatTheAccountLacks(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	crm := account(t, root, "crm", contactsOnly)
	for kinds, want := range map[string]string{
		`["contact"]`: "", `["contact.created","submission.*"]`: "nothing is sent of submission.* until the service account may read these records",
	} {
		body := fmt.Sprintf(`{"name":%q,"url":%q,"account":%q,"kinds":%s}`, kinds, receive(t).URL, crm, kinds)
		if a := root.Want(t, http.MethodPost, "/api/webhooks", body, 200, ""); a.Header.Get("X-Warning") != want {
			t.Errorf("%s: got the warning %q, want %q", kinds, a.Header.Get("X-Warning"), want)
		}
	}
}

// TestNobodySendsWhatTheyLack: nobody can have events sent, or change or see what is sent, with rights that they lack.
func TestNobodySendsWhatTheyLack(t *testing.T) {
	t.Parallel()
	r := receive(t)
	acme := gatewaytest.Start(t, inside).Org(t, "acme", tenants.FeatureTeams)
	root := admin(t, acme)
	crm := account(t, root, "crm", contactsOnly)
	weak := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.ManageWebhooks)))
	body := fmt.Sprintf(`{"name":"weak","url":%q,"account":%q}`, r.URL, crm)
	const lacks = "the caller lacks contacts, which the service account holds"
	weak.Want(t, http.MethodPost, "/api/webhooks", body, 422, lacks)
	h := create(t, root, "CRM", r.URL, crm, "")
	root.Create(t, "/api/contacts", `{"first_name":"One"}`)
	r.awaitSome(t, 1)
	own := account(t, root, "own", "")
	for _, c := range []struct{ method, path, body string }{
		{http.MethodPut, "", `{"url":"https://other.example.com/"}`}, {http.MethodPut, "", fmt.Sprintf(`{"account":%q}`, own)},
		{http.MethodDelete, "", ""}, {http.MethodPost, "/rotate", "{}"}, {http.MethodPost, "/pause", ""}, {http.MethodPost, "/resume", ""},
		{http.MethodPost, "/test", ""}, {http.MethodPost, "/resend", `{"since":"2026-01-01T00:00:00Z"}`}, {http.MethodGet, "/deliveries", ""},
	} {
		weak.Want(t, c.method, "/api/webhooks/"+h.ID+c.path, c.body, 403, "lacks contacts, which the service account holds")
	}
	w := create(t, weak, "weak", r.URL, own, "")
	weak.Want(t, http.MethodPut, "/api/webhooks/"+w.ID, fmt.Sprintf(`{"account":%q}`, crm), 422, lacks)
	team := root.Create(t, "/api/teams", `{"name":"Red"}`)
	red := account(t, root, "red", fmt.Sprintf(`,"teams":[%q],"permissions":["contacts","manage_webhooks"]`, team))
	a := root.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"red","kind":"server_full","account":%q}`, red), 200, "token")
	fixture.TokenClient(acme, a).Want(t, http.MethodPost, "/api/webhooks", body, 422, "the caller lacks teams")
	a = root.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"brief","kind":"server_full","account":%q,"expires_in":60}`, red), 200, "token")
	mine := fmt.Sprintf(`{"name":"mine","url":%q,"account":%q}`, r.URL, red)
	fixture.TokenClient(acme, a).Want(t, http.MethodPost, "/api/webhooks", mine, 403, "A key that expires or is bound")
	reader := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.Contacts)))
	reader.Want(t, http.MethodGet, "/api/webhooks", "", 403, "manage_webhooks")
}

// TestNotesOfFormerRights: whoever may not read a record is not told of its events by notes from a time in which the account
// of the webhook could.
func TestNotesOfFormerRights(t *testing.T) {
	t.Parallel()
	r := receive(t)
	r.answering(func(_ int, _ message, w http.ResponseWriter) bool {
		fmt.Fprint(w, "taken")
		return true
	})
	acme := gatewaytest.Start(t, inside).Org(t, "acme", tenants.FeatureTeams)
	root := admin(t, acme)
	team := root.Create(t, "/api/teams", `{"name":"Red"}`)
	crm := account(t, root, "crm", contactsOnly)
	create(t, root, "CRM", r.URL, crm, "")
	ours := root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"Ours","teams":[%q]}`, team))
	blue := root.Create(t, "/api/teams", `{"name":"Blue"}`)
	theirs := root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"Theirs","teams":[%q]}`, blue))
	r.awaitSome(t, 2)
	notes := func(c fixture.Client, want ...string) {
		t.Helper()
		var page struct {
			Results []struct {
				Answer string
				Event  event
			}
		}
		fixture.Await(t, "two notes", func() bool {
			decode(t, c.Want(t, http.MethodGet, "/api/webhooks/CRM/deliveries", "", 200, ""), &page)
			return len(page.Results) == 2
		})
		for _, note := range page.Results {
			e := note.Event
			shown := e.Record != "" && e.Kind != "" && e.Actor != "" && e.At != "" && note.Answer == "taken"
			hidden := e.Record == "" && e.Kind == "" && e.Actor == "" && e.At == "" && note.Answer == "" && e.ID != ""
			if !shown && !hidden || shown && !slices.Contains(want, e.Record) {
				t.Errorf("got %+v, want only what happened to %v", note, want)
			}
			want = slices.DeleteFunc(want, func(id string) bool { return id == e.Record })
		}
		if len(want) > 0 {
			t.Errorf("got no note of what happened to %v", want)
		}
	}
	notes(root, ours, theirs)
	root.Want(t, http.MethodPut, "/api/service-accounts/"+crm, fmt.Sprintf(`{"permissions":["contacts"],"teams":[%q]}`, team), 200, "")
	red := account(t, root, "red", fmt.Sprintf(`,"teams":[%q],"permissions":["contacts","manage_webhooks"]`, team))
	a := root.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"red","kind":"server_full","account":%q}`, red), 200, "token")
	notes(fixture.TokenClient(acme, a), ours)
	root.Want(t, http.MethodPut, "/api/service-accounts/"+crm, `{"permissions":[]}`, 200, "")
	notes(fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.ManageWebhooks))))
	notes(root, ours, theirs)
}

// TestAddressesOfWebhooks: only addresses with TLS are taken, and none inside.
func TestAddressesOfWebhooks(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t, fixture.ShortLeases).Org(t, "acme")
	root := admin(t, acme)
	crm := account(t, root, "crm", contactsOnly)
	for _, c := range []struct{ url, want string }{
		{"http://example.com/", "must begin with https://"}, {"ftp://example.com/", "must begin with https://"}, {"https://", "must be an address"},
		{"https://user:pw@example.com/", "user name"}, {"https://example.com/#x", "fragment"}, {"https://127.0.0.1/", "nothing is sent"},
		{"https://[::1]/", "nothing is sent"}, {"https://169.254.169.254/latest", "nothing is sent"}, {"https://[::ffff:10.0.0.1]/", "nothing is sent"},
	} {
		body := fmt.Sprintf(`{"name":"x","url":%q,"account":%q}`, c.url, crm)
		root.Want(t, http.MethodPost, "/api/webhooks", body, 422, c.want)
	}
	root.Want(t, http.MethodPost, "/api/webhooks", fmt.Sprintf(`{"name":"x","url":"https://example.com","account":%q,"kinds":["moon.risen"]}`, crm), 422, "there are no events of")
	create(t, root, "local", "https://localhost:1/", crm, "")
	root.Want(t, http.MethodPost, "/api/webhooks/local/test", "", 200, "the address is in a network to which nothing is sent")
}

// TestPlainHTTP: addresses without TLS lead only into networks that are allowed, however their scheme is written.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	crm := account(t, root, "crm", contactsOnly)
	for i, url := range []string{"http://1.1.1.1:9/", "HTTP://1.1.1.1:9/", "hTTp://1.1.1.1:9/"} {
		name := fmt.Sprintf("w%d", i)
		create(t, root, name, url, crm, "")
		root.Want(t, http.MethodPost, "/api/webhooks/"+name+"/test", "", 200, "the address is in a network to which nothing is sent")
	}
}

// TestRedirectsAreNotFollowed: a redirect is a failure, and of an endless answer only the beginning is read and kept.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	r := receive(t)
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	r.answering(func(_ int, _ message, w http.ResponseWriter) bool {
		w.Header().Set("Location", r.URL+"/elsewhere")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return false
	})
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/test", "", 200, "redirects are not followed")
	r.await(t, "one request", func(_, all []message) bool { return len(all) == 1 })
	r.answering(func(_ int, _ message, w http.ResponseWriter) bool {
		for range 100 {
			if _, err := w.Write(slices.Repeat([]byte("a"), 64<<10)); err != nil {
				break
			}
		}
		return true
	})
	a := root.Want(t, http.MethodPost, "/api/webhooks/CRM/test", "", 200, `"delivered"`)
	if text, _ := a.Field("answer").(string); len(text) > 1100 {
		t.Errorf("got %d bytes of the answer, want its beginning", len(text))
	}
}

// TestFailingEndsWithItsEvent: a webhook fails no longer once the event that its receiver did not accept is gone, because
// the record was deleted for good.
func TestFailingEndsWithItsEvent(t *testing.T) {
	t.Parallel()
	r := receive(t)
	r.answering(refuse(http.StatusInternalServerError))
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), `,"kinds":["contact.created"]`)
	id := root.Create(t, "/api/contacts", `{"first_name":"One"}`)
	awaitState(t, root, h.ID, "failing")
	root.Want(t, http.MethodDelete, "/api/contacts/"+id+"?purge=true", "", 200, "")
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/resume", "", 200, "")
	awaitState(t, root, h.ID, "active")
}
