package webhooks

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestAccountsDecideWhatIsSent: accounts with different rights and teams are sent exactly the events that the log shows
// to a key of theirs, while records of many kinds change at random.
func TestAccountsDecideWhatIsSent(t *testing.T) {
	t.Parallel()
	r := receive(t)
	acme := gatewaytest.Start(t, inside).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, fixture.TeamLines()...)
	root := admin(t, acme)
	begin, _ := root.Want(t, http.MethodGet, "/api/events", "", 200, "").Field("next").(string)
	rights := []string{
		`,"permissions":["contacts"]`, `,"permissions":["contacts"],"teams":["` + fixture.TeamA + `"]`, `,"permissions":["manage_forms"]`, "",
		`,"permissions":["contacts","manage_files","manage_campaigns"],"teams":["` + fixture.TeamB + `"]`,
	}
	sent := map[string]int{} // the webhook, by its path
	keys := make([]gatewaytest.Request, len(rights))
	for i, held := range rights {
		id := account(t, root, fmt.Sprintf("a%d", i), held)
		a := root.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k%d","kind":"server_full","account":%q}`, i, id), 200, "token")
		keys[i] = fixture.TokenClient(acme, a).As
		create(t, root, fmt.Sprintf("h%d", i), fmt.Sprintf("%s/%d", r.URL, i), id, "")
		sent[fmt.Sprintf("/%d", i)] = i
	}
	random := rand.New(rand.NewPCG(33, 2))
	var made []string
	for n := range 200 {
		teams := []string{`[]`, `["` + fixture.TeamA + `"]`, `["` + fixture.TeamB + `"]`}[random.IntN(3)]
		switch random.IntN(5) {
		case 0:
			made = append(made, "/api/contacts/"+root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"N%d","teams":%s}`, n, teams)))
		case 1:
			made = append(made, "/api/files/folders/"+root.Create(t, "/api/files/folders", fmt.Sprintf(`{"name":"N%d","teams":%s}`, n, teams)))
		case 2:
			made = append(made, "/api/campaigns/"+root.Create(t, "/api/campaigns", fmt.Sprintf(`{"name":"N%d","teams":%s}`, n, teams)))
		default:
			if len(made) > 0 {
				i := random.IntN(len(made))
				root.Want(t, http.MethodDelete, made[i], "", 200, "")
				made = append(made[:i], made[i+1:]...)
			}
		}
	}
	want := make([][]event, len(rights))
	all := 0
	for i, as := range keys {
		want[i] = eventsSince(t, acme, as, begin)
		all += len(want[i])
	}
	r.awaitEvents(t, all)
	time.Sleep(200 * time.Millisecond) // for what should not be sent
	got := r.awaitEvents(t, all)
	by := make([][]message, len(rights))
	for _, m := range got {
		i := sent[m.path]
		by[i] = append(by[i], m)
	}
	for i := range rights {
		checkDeliveries(t, want[i], by[i])
	}
	if len(want[0]) <= len(want[1]) || len(want[1]) == 0 {
		t.Errorf("got %d and %d events, want more without a limit to a team", len(want[0]), len(want[1]))
	}
}

// TestReplicasShareWebhooks: three replicas on one store send what happens on each of them, once, and in order for each
// record.
func TestReplicasShareWebhooks(t *testing.T) {
	t.Parallel()
	trio := fixture.StartTrio(t, inside)
	r := receive(t)
	first := trio.Replicas[0].Org(t, "acme")
	root := admin(t, first)
	create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), `,"kinds":["contact"]`)
	token := first.Key(t, tenants.Contacts)
	begin, _ := root.Want(t, http.MethodGet, "/api/events", "", 200, "").Field("next").(string)
	var ids []string
	for n := range 60 {
		on := fixture.As(trio.On(n%fixture.ReplicaCount, first), gatewaytest.WithKey(token))
		if n < 12 {
			ids = append(ids, on.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"N%d"}`, n)))
		} else {
			on.Want(t, http.MethodPut, "/api/contacts/"+ids[n%12], fmt.Sprintf(`{"first_name":"M%d"}`, n), 200, "")
		}
	}
	got := r.awaitEvents(t, 60)
	checkDeliveries(t, eventsSince(t, first, gatewaytest.WithKey(token), begin), got)
	if len(got) >= 120 { // a slow machine may lose the lease of a round; then it is sent again
		t.Errorf("got %d deliveries of 60 events, want one replica to send each", len(got))
	}
}

// TestReceiversAreShared: an organization whose deliveries hang at a receiver takes half of the places there, and those of
// another are delivered meanwhile.
func TestReceiversAreShared(t *testing.T) {
	t.Parallel()
	const half = 8
	var hanging, most atomic.Int64
	var late atomic.Bool // a try has timed out, and its place was free before that was seen here
	arrived, done := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/quick" {
			close(arrived)
			return
		}
		for n := hanging.Add(1); !late.Load(); {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		defer hanging.Add(-1)
		select {
		case <-r.Context().Done():
			late.Store(true)
		case <-done:
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(sync.OnceFunc(func() { close(done) }))
	g := gatewaytest.Start(t, inside)
	loud, quiet := g.Org(t, "loud"), g.Org(t, "quiet")
	root, other := admin(t, loud), admin(t, quiet)
	crm := account(t, root, "a", contactsOnly)
	for i := range 4 {
		create(t, root, fmt.Sprintf("h%d", i), server.URL+"/hang", crm, "")
	}
	create(t, other, "h", server.URL+"/quick", account(t, other, "a", contactsOnly), "")
	for i := range 40 {
		root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"L%d"}`, i))
	}
	fixture.Await(t, "many deliveries hang", func() bool { return most.Load() >= half || late.Load() })
	time.Sleep(100 * time.Millisecond) // for those that would take more places
	other.Create(t, "/api/contacts", `{"first_name":"Q"}`)
	select {
	case <-arrived:
		if n := most.Load(); n > half {
			t.Errorf("%d deliveries of one organization hung, want at most %d", n, half)
		}
	case <-time.After(patience):
		t.Error("nothing was delivered")
	}
}
