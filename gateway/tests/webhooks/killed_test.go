package webhooks

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestKilledProcessesLoseNothing kills the process again and again while it writes and sends to a receiver that refuses
// half of the tries. Every change that was answered is delivered, in order for each record, and a repeated delivery has
// the identifier of the first. What is sent is what the event log shows the account.
func TestKilledProcessesLoseNothing(t *testing.T) {
	t.Parallel()
	if fixture.ServeAsVictim(t, inside) {
		return
	}
	kills := 4
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		kills = 50
	}
	folder, r := t.TempDir(), receive(t)
	half := rand.New(rand.NewPCG(33, 1))
	r.answering(func(_ int, m message, w http.ResponseWriter) bool {
		if half.IntN(2) == 0 {
			return refuse(http.StatusBadGateway)(0, m, w)
		}
		return true
	})
	start := func() *gatewaytest.Org {
		return &gatewaytest.Org{Gateway: gatewaytest.Start(t, fixture.InFolder(folder), inside), Slug: "acme", Host: "acme.localhost"}
	}
	acme := start()
	acme.Gateway.Org(t, "acme")
	root := admin(t, acme)
	create(t, root, "CRM", r.URL, account(t, root, "crm", contactsOnly), `,"kinds":["contact"]`)
	begin, _ := root.Want(t, http.MethodGet, "/api/events", "", 200, "").Field("next").(string)
	token := acme.Key(t, tenants.Contacts)
	acme.Stop(t)
	for kill := range kills {
		killed(t, folder, token, kill)
	}
	r.answering(nil)
	r.patience = 5 * time.Minute // with 50 kills, thousands wait, and the next try may be minutes away
	acme = start()
	events := eventsSince(t, acme, gatewaytest.WithKey(token), begin)
	tries := 0
	delivered := r.await(t, "all events", func(accepted, all []message) bool {
		tries = len(all)
		ids := map[string]bool{}
		for i := range accepted {
			ids[accepted[i].Data.ID] = true
		}
		return len(ids) >= len(events)
	})
	checkDeliveries(t, events, delivered)
	t.Logf("%d kills, %d events, %d accepted deliveries of %d tries", kills, len(events), len(delivered), tries)
}

// killed writes through a process of its own, and kills it.
func killed(t *testing.T, folder, token string, n int) {
	t.Helper()
	victim := fixture.StartVictim(t, folder)
	var writers sync.WaitGroup
	enough := make(chan struct{}, 1000)
	for writer := range 3 {
		writers.Go(func() {
			id := ""
			for i := 0; ; i++ {
				method, path := http.MethodPost, "/api/contacts"
				if i%4 > 0 {
					method, path = http.MethodPut, path+"/"+id
				}
				code, made := write(t, victim.Addr, token, method, path, fmt.Sprintf(`{"first_name":"K%dW%dN%d"}`, n, writer, i))
				if code == 0 {
					return // it was killed
				}
				if i%4 == 0 {
					if id = made; code != http.StatusOK {
						i--
						time.Sleep(20 * time.Millisecond) // it has just begun
					}
				}
				select {
				case enough <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 30 + 11*(n%5) {
		<-enough
	}
	victim.Kill()
	writers.Wait()
	victim.Wait()
}

// write makes one call, and returns its code and the identifier in its answer; 0 if there was no answer.
func write(t *testing.T, address, token, method, path, body string) (code int, id string) {
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	req.Host = "acme.localhost"
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(fixture.KeyHeader, token)
	a, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, ""
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		return 0, ""
	}
	if _, after, ok := strings.Cut(string(text), `"id":"`); ok && len(after) >= fixture.IDLength {
		id = after[:fixture.IDLength]
	}
	return a.StatusCode, id
}

// eventsSince returns the events that a caller is shown after a cursor.
func eventsSince(t *testing.T, o *gatewaytest.Org, as gatewaytest.Request, after string) (all []event) {
	t.Helper()
	for {
		a := o.Do(t, http.MethodGet, "/api/events?per_page=1000&after="+after, as)
		var page struct {
			Next    string
			More    bool
			Results []event
		}
		decode(t, a, &page)
		if all, after = append(all, page.Results...), page.Next; !page.More {
			return all
		}
	}
}

// checkDeliveries fails unless exactly the events were delivered, those of each record in their order.
func checkDeliveries(t *testing.T, events []event, delivered []message) {
	t.Helper()
	of, got := map[string]event{}, map[string]bool{}
	for _, e := range events {
		of[e.ID] = e
	}
	last := map[string]int64{}
	for i := range delivered {
		d := &delivered[i].Data
		if of[d.ID] != *d {
			t.Errorf("got %+v, want %+v", *d, of[d.ID])
		}
		if !got[d.ID] {
			if d.Revision <= last[d.Record] {
				t.Errorf("%s: revision %d was first delivered after %d", d.Record, d.Revision, last[d.Record])
			}
			last[d.Record] = d.Revision
		}
		got[d.ID] = true
	}
	for id, e := range of {
		if !got[id] {
			t.Errorf("%+v was not delivered", e)
		}
	}
}
