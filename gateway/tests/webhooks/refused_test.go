package webhooks

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/webhooks"
)

// refusing has the receiver answer the code to what happens to the records, and accept all else.
func (r *receiver) refusing(code int, records ...string) {
	r.answering(func(_ int, m message, w http.ResponseWriter) bool {
		if slices.Contains(records, m.Data.Record) {
			w.Header().Set("Retry-After", "7200") // of an answer about the event, not about the receiver
			w.WriteHeader(code)
			return false
		}
		return true
	})
}

// awaitRecord waits until n events of a record were accepted, and returns their revisions.
func (r *receiver) awaitRecord(t *testing.T, id string, n int) (revisions []int64) {
	t.Helper()
	r.await(t, fmt.Sprintf("%d events of %s", n, id), func(accepted, _ []message) bool {
		revisions = nil
		for i := range accepted {
			if accepted[i].Data.Record == id && !slices.Contains(revisions, accepted[i].Data.Revision) {
				revisions = append(revisions, accepted[i].Data.Revision)
			}
		}
		return len(revisions) >= n
	})
	return revisions
}

// progressOf returns how far a webhook has come.
func progressOf(t *testing.T, o *gatewaytest.Org, id string) *webhooks.Progress {
	t.Helper()
	p, err := o.App.Webhooks().Progress.In(o.Tenant(t).Workspace()).Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRefusedEventsDelayTheirRecordsAlone: events that a receiver refuses, with little and with a lot happening besides, keep
// only later events of their records waiting, which arrive in order once the receiver accepts them.
func TestRefusedEventsDelayTheirRecordsAlone(t *testing.T) {
	t.Parallel()
	r, clock := receive(t), newClock()
	acme := gatewaytest.Start(t, inside, clock.option).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	r.answering(refuse(http.StatusInternalServerError))
	refused := []string{root.Create(t, "/api/contacts", `{"first_name":"A"}`), root.Create(t, "/api/contacts", `{"first_name":"B"}`)}
	awaitFailing(t, root, h.ID)
	r.refusing(http.StatusInternalServerError, refused...)
	others := 0
	other := func() string {
		t.Helper()
		others++
		id := root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"N%d"}`, others))
		r.awaitRecord(t, id, 1)
		return id
	}
	clock.add(20 * time.Minute) // for a receiver that seemed to be away
	other()
	for i, id := range refused {
		for n := range 3 {
			root.Want(t, http.MethodPut, "/api/contacts/"+id, fmt.Sprintf(`{"first_name":"M%d%d"}`, i, n), 200, "")
		}
	}
	for range 12 { // tries become rare meanwhile
		clock.add(3 * time.Hour)
		root = again(t, acme)
		awaitFailing(t, root, h.ID)
		other()
	}
	for i := range 1200 { // more than wait at most
		root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"L%d"}`, i))
	}
	other()
	fixture.Await(t, "only events of the refused records wait", func() bool { return len(progressOf(t, acme, h.ID).Waiting) <= 8 })
	r.answering(nil)
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/resume", "", 200, "")
	for _, id := range refused {
		if got := r.awaitRecord(t, id, 4); !slices.Equal(got, []int64{1, 2, 3, 4}) {
			t.Errorf("got the revisions %v, want 1 to 4 in order", got)
		}
	}
	awaitState(t, root, h.ID, "active")
}

// TestManyRefusedRecords: what a receiver accepts is found among many records that it refuses, or fails at, and what happens
// while these wait arrives at once.
func TestManyRefusedRecords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code, records, rests int
		wait                 time.Duration // for each rest
	}{
		"refused": {http.StatusUnprocessableEntity, 100, 20, 2 * time.Second},
		"failed":  {http.StatusInternalServerError, 40, 100, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, clock := receive(t), newClock()
			acme := gatewaytest.Start(t, inside, clock.option).Org(t, "acme")
			root := admin(t, acme)
			h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
			root.Want(t, http.MethodPost, "/api/webhooks/CRM/pause", "", 200, "")
			var refused []string
			for i := range c.records {
				refused = append(refused, root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"R%d"}`, i)))
			}
			r.refusing(c.code, refused...)
			good := root.Create(t, "/api/contacts", `{"first_name":"G"}`)
			root.Want(t, http.MethodPost, "/api/webhooks/CRM/resume", "", 200, "")
			for n := 0; !r.arrives(good, c.wait); n++ {
				if n >= c.rests {
					t.Fatalf("what is accepted did not arrive after %d rests", n)
				}
				clock.add(10 * time.Minute)
			}
			for n := 0; ; n++ {
				p := progressOf(t, acme, h.ID)
				if !slices.ContainsFunc(p.Waiting, func(w webhooks.Waiting) bool { return w.Since == 0 }) {
					break
				}
				if n == 1000 {
					t.Fatalf("%+v wait, want all of them refused", p.Waiting)
				}
				clock.add(10 * time.Minute)
				time.Sleep(300 * time.Millisecond) // for a round
			}
			for range 6 {
				clock.add(time.Hour) // they come due together
				root = again(t, acme)
				r.wantSoon(t, root)
			}
		})
	}
}

// soon is how long an event may take on a busy machine while the receiver fails at others. It is shorter than the rests of a
// receiver that is thought to be away.
const soon = time.Minute

// wantSoon fails unless what happens now arrives soon.
func (r *receiver) wantSoon(t *testing.T, root fixture.Client) {
	t.Helper()
	if !r.arrives(root.Create(t, "/api/contacts", `{"first_name":"H"}`), soon) {
		t.Errorf("what happens while many records are refused did not arrive within %s", soon)
	}
}

// TestRefusedAfterAnOutage: what was refused while the receiver was away, and is refused after it, keeps nothing waiting.
func TestRefusedAfterAnOutage(t *testing.T) {
	t.Parallel()
	r, clock := receive(t), newClock()
	acme := gatewaytest.Start(t, inside, clock.option).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	r.answering(refuse(http.StatusForbidden))
	var refused []string
	for i := range 300 {
		refused = append(refused, root.Create(t, "/api/contacts", fmt.Sprintf(`{"first_name":"R%d"}`, i)))
	}
	awaitFailing(t, root, h.ID)
	for n := 0; slices.ContainsFunc(progressOf(t, acme, h.ID).Waiting, func(w webhooks.Waiting) bool { return w.Tries == 0 }) ||
		len(progressOf(t, acme, h.ID).Waiting) < len(refused); n++ {
		if n == 3000 {
			t.Fatal("not all of what happened was tried")
		}
		clock.add(time.Minute)
		time.Sleep(100 * time.Millisecond) // for a round
	}
	root = again(t, acme)
	r.refusing(http.StatusInternalServerError, refused...)
	clock.add(10 * time.Minute)
	for range 5 {
		r.wantSoon(t, root)
	}
	r.answering(nil)
	clock.add(8 * time.Hour)
	r.patience = 5 * time.Minute
	r.await(t, "all that was refused", func(accepted, _ []message) bool {
		arrived := map[string]bool{}
		for i := range accepted {
			arrived[accepted[i].Data.Record] = true
		}
		return !slices.ContainsFunc(refused, func(id string) bool { return !arrived[id] })
	})
}

// TestTestEndsAnOutage: what waits for hours, because the receiver was away, is sent after a test that is accepted.
func TestTestEndsAnOutage(t *testing.T) {
	t.Parallel()
	r, clock := receive(t), newClock()
	acme := gatewaytest.Start(t, inside, clock.option).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	r.answering(refuse(http.StatusInternalServerError))
	id := root.Create(t, "/api/contacts", `{"first_name":"A"}`)
	awaitFailing(t, root, h.ID)
	for progressOf(t, acme, h.ID).Waiting[0].Tries < 7 { // the next try is after an hour
		clock.add(time.Minute)
		time.Sleep(20 * time.Millisecond)
	}
	r.answering(nil)
	root = again(t, acme)
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/test", "", 200, `"delivered"`)
	if !r.arrives(id, soon) {
		t.Error("what waited did not arrive after a test that was accepted")
	}
}

// TestReceiverIsBack: a wait ends with a test that the receiver accepts, and with a new address.
func TestReceiverIsBack(t *testing.T) {
	t.Parallel()
	r, elsewhere := receive(t), receive(t)
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	for name, c := range map[string]struct {
		to   *receiver
		does func()
	}{
		"a test": {r, func() {
			r.answering(nil)
			root.Want(t, http.MethodPost, "/api/webhooks/CRM/test", "", 200, `"delivered"`)
		}},
		"an address": {elsewhere, func() {
			root.Want(t, http.MethodPut, "/api/webhooks/CRM", fmt.Sprintf(`{"url":%q}`, elsewhere.URL), 200, elsewhere.URL)
		}},
	} {
		root.Want(t, http.MethodPut, "/api/webhooks/CRM", fmt.Sprintf(`{"url":%q}`, r.URL), 200, r.URL)
		r.answering(func(_ int, _ message, w http.ResponseWriter) bool {
			w.Header().Set("Retry-After", "7200")
			w.WriteHeader(http.StatusServiceUnavailable)
			return false
		})
		id := root.Create(t, "/api/contacts", `{"first_name":"A"}`)
		awaitFailing(t, root, h.ID)
		if c.does(); !c.to.arrives(id, soon) {
			t.Errorf("what waited did not arrive after %s", name)
		}
		awaitState(t, root, h.ID, "active")
	}
}

// arrives reports whether an event of the record is accepted within the time.
func (r *receiver) arrives(record string, within time.Duration) bool {
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		there := slices.ContainsFunc(r.accepted, func(m message) bool { return m.Data.Record == record })
		r.mu.Unlock()
		if there {
			return true
		}
	}
	return false
}

// TestWaitingIsBounded: of a refused record that changes often, only so much waits, and all of it arrives later. All of it can
// be sent again, before what happens then.
func TestWaitingIsBounded(t *testing.T) {
	t.Parallel()
	const changes = 1200
	r := receive(t)
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	r.answering(refuse(http.StatusInternalServerError))
	id := root.Create(t, "/api/contacts", `{"first_name":"A"}`)
	for i := range changes {
		root.Want(t, http.MethodPut, "/api/contacts/"+id, fmt.Sprintf(`{"first_name":"M%d"}`, i), 200, "")
	}
	fixture.Await(t, "a thousand events wait", func() bool {
		return len(progressOf(t, acme, h.ID).Waiting) == 1000
	})
	r.answering(nil)
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/resume", "", 200, "")
	if got := r.awaitRecord(t, id, changes+1); !slices.IsSorted(got) {
		t.Errorf("got the revisions out of order: %v", got)
	}
	fixture.Await(t, "nothing waits", func() bool { return len(progressOf(t, acme, h.ID).Waiting) == 0 })

	since := time.Now().UTC().Add(-time.Hour)
	r.answering(func(_ int, _ message, w http.ResponseWriter) bool {
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(http.StatusServiceUnavailable)
		return false
	})
	root.Want(t, http.MethodPut, "/api/contacts/"+id, `{"first_name":"Z"}`, 200, "")
	awaitFailing(t, root, h.ID)
	r.answering(nil)
	for i := range 2 { // the second begins anew
		begin := since.Add(time.Duration(i) * time.Minute).Format(time.RFC3339)
		root.Want(t, http.MethodPost, "/api/webhooks/CRM/resend", fmt.Sprintf(`{"since":%q}`, begin), 200, "")
	}
	r.awaitRecord(t, id, changes+2)
	var got []int64
	for _, m := range r.awaitSome(t, 0)[changes+1:] {
		switch {
		case m.Data.Revision == 1:
			got = []int64{1}
		case len(got) == 0 || got[len(got)-1] != m.Data.Revision:
			got = append(got, m.Data.Revision)
		}
	}
	if len(got) != changes+2 || !slices.IsSorted(got) {
		t.Errorf("got %d events again, in order: %t; want all, and then the new one", len(got), slices.IsSorted(got))
	}
}

// TestRefusedEventsAreLost: an event that is refused for longer than events are kept is told to be lost, although deliveries
// have gone on, and what is not lost is sent after that.
func TestRefusedEventsAreLost(t *testing.T) {
	t.Parallel()
	r, clock := receive(t), newClock()
	keep := func(c *config.Config, _ *gateway.Options) { c.Events.Keep = 24 * time.Hour }
	acme := gatewaytest.Start(t, inside, clock.option, keep).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	refused := ""
	r.answering(func(_ int, m message, w http.ResponseWriter) bool {
		if refused == "" || refused == m.Data.Record {
			refused = m.Data.Record
			w.WriteHeader(http.StatusInternalServerError)
			return false
		}
		return true
	})
	root.Create(t, "/api/contacts", `{"first_name":"A"}`)
	awaitFailing(t, root, h.ID)
	r.awaitRecord(t, root.Create(t, "/api/contacts", `{"first_name":"B"}`), 1)
	clock.add(30 * time.Hour)
	root = again(t, acme)
	r.awaitRecord(t, root.Create(t, "/api/contacts", `{"first_name":"C"}`), 1)
	fixture.EmptyTrash(t, acme.App)
	clock.add(9 * time.Hour)
	awaitState(t, root, h.ID, "paused")
	if s := state(t, root, h.ID); !strings.Contains(s.PausedReason, "Events were lost") {
		t.Errorf("paused because: %q, want that events were lost", s.PausedReason)
	}
	kept := root.Create(t, "/api/contacts", `{"first_name":"D"}`)
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/resume", "", 200, "")
	r.awaitRecord(t, kept, 1)
	awaitState(t, root, h.ID, "active")
	if p := progressOf(t, acme, h.ID); len(p.Waiting) > 0 {
		t.Errorf("%+v wait, want nothing that was lost", p.Waiting)
	}
}

// TestDeliveredByHand: a refused event that is sent again by hand, and accepted, waits no longer, and later ones of its record
// follow.
func TestDeliveredByHand(t *testing.T) {
	t.Parallel()
	r := receive(t)
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	r.answering(func(_ int, _ message, w http.ResponseWriter) bool {
		w.Header().Set("Retry-After", "7200")
		w.WriteHeader(http.StatusServiceUnavailable)
		return false
	})
	id := root.Create(t, "/api/contacts", `{"first_name":"A"}`)
	root.Want(t, http.MethodPut, "/api/contacts/"+id, `{"first_name":"B"}`, 200, "")
	awaitFailing(t, root, h.ID)
	r.answering(nil)
	a := root.Want(t, http.MethodGet, "/api/webhooks/CRM/deliveries", "", 200, "")
	var page struct{ Results []struct{ ID string } }
	decode(t, a, &page)
	root.Want(t, http.MethodPost, "/api/webhooks/CRM/deliveries/"+page.Results[0].ID+"/resend", "", 200, `"delivered"`)
	r.awaitRecord(t, id, 2) // the receiver is there, so it is left alone no longer
	awaitState(t, root, h.ID, "active")
}

// TestFormerAddressPausesNothing: an answer of 410 that arrives after the address was changed is not about the new one.
func TestFormerAddressPausesNothing(t *testing.T) {
	t.Parallel()
	r, elsewhere := receive(t), receive(t)
	acme := gatewaytest.Start(t, inside).Org(t, "acme")
	root := admin(t, acme)
	h := create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), "")
	asked, moved := make(chan struct{}), make(chan struct{})
	r.answering(func(_ int, _ message, w http.ResponseWriter) bool {
		close(asked)
		<-moved
		w.WriteHeader(http.StatusGone)
		return false
	})
	id := root.Create(t, "/api/contacts", `{"first_name":"A"}`)
	<-asked
	root.Want(t, http.MethodPut, "/api/webhooks/CRM", fmt.Sprintf(`{"url":%q}`, elsewhere.URL), 200, elsewhere.URL)
	close(moved)
	elsewhere.awaitRecord(t, id, 1)
	awaitState(t, root, h.ID, "active")
}
