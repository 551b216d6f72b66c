package webhooks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// inside is an Option that allows webhooks on this machine.
func inside(cfg *config.Config, o *gateway.Options) {
	cfg.Webhooks.AllowNetworks = []string{"127.0.0.0/8"}
	fixture.ShortLeases(cfg, o)
}

// event is an event as receivers and callers see it.
type event struct {
	ID, Kind, Record, Actor, At string
	Revision                    int64
}

// message is what a receiver got.
type message struct {
	Type, Timestamp string
	Data            event
	header          http.Header
	path            string
	body            []byte
}

// receiver takes deliveries. answer, if set, answers one of them; otherwise it is accepted.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	changed  chan struct{} // closed at the next delivery
	accepted []message
	all      []message
	answer   func(n int, m message, w http.ResponseWriter) (accepts bool)
	patience time.Duration // how long to await something; 0: patience
}

// receive starts a receiver.
func receive(t testing.TB) *receiver {
	t.Helper()
	r := &receiver{changed: make(chan struct{})}
	r.Server = httptest.NewServer(http.HandlerFunc(r.take))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) take(w http.ResponseWriter, req *http.Request) {
	m := message{header: req.Header, path: req.URL.Path}
	m.body, _ = io.ReadAll(req.Body)
	if err := json.Unmarshal(m.body, &m); err != nil {
		http.Error(w, "no JSON", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, m)
	if r.answer == nil || r.answer(len(r.all), m, w) {
		r.accepted = append(r.accepted, m)
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// answering sets how deliveries are answered.
func (r *receiver) answering(f func(n int, m message, w http.ResponseWriter) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// refuse answers a code to all deliveries.
func refuse(code int) func(int, message, http.ResponseWriter) bool {
	return func(_ int, _ message, w http.ResponseWriter) bool {
		http.Error(w, "not now", code)
		return false
	}
}

const patience = time.Minute

// await waits until ready reports true of what was accepted and of all tries.
func (r *receiver) await(t testing.TB, what string, ready func(accepted, all []message) bool) (accepted []message) {
	t.Helper()
	for end := time.After(cmp.Or(r.patience, patience)); ; {
		r.mu.Lock()
		changed, done := r.changed, ready(r.accepted, r.all)
		accepted = append([]message(nil), r.accepted...)
		tries := len(r.all)
		r.mu.Unlock()
		if done {
			return accepted
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("waiting for %s: got %d accepted deliveries of %d tries", what, len(accepted), tries)
		}
	}
}

// awaitSome waits for n accepted deliveries.
func (r *receiver) awaitSome(t testing.TB, n int) []message {
	t.Helper()
	return r.await(t, fmt.Sprintf("%d deliveries", n), func(accepted, _ []message) bool { return len(accepted) >= n })
}

// awaitEvents waits until n events were accepted, each counted once for each path.
func (r *receiver) awaitEvents(t testing.TB, n int) []message {
	t.Helper()
	return r.await(t, fmt.Sprintf("%d events", n), func(accepted, _ []message) bool {
		events := map[string]bool{}
		for i := range accepted {
			events[accepted[i].path+" "+accepted[i].Data.ID] = true
		}
		return len(events) >= n
	})
}

// verify fails unless the message is signed with the secret.
func (m *message) verify(t testing.TB, secret string) {
	t.Helper()
	w, err := standard.NewWebhook(secret)
	if err == nil {
		err = w.VerifyIgnoringTimestamp(m.body, m.header)
	}
	if err != nil {
		t.Errorf("verifying %s: %v", m.Data.ID, err)
	}
}

// hook is a webhook as its creation answers it.
type hook struct{ ID, Secret, State string }

// account makes a service account and returns its identifier.
func account(t *testing.T, c fixture.Client, name, rest string) string {
	t.Helper()
	return c.Create(t, "/api/service-accounts", fmt.Sprintf(`{"name":%q%s}`, name, rest))
}

// create makes a webhook.
func create(t *testing.T, c fixture.Client, name, url, account, rest string) (h hook) {
	t.Helper()
	body := fmt.Sprintf(`{"name":%q,"url":%q,"account":%q%s}`, name, url, account, rest)
	a := c.Want(t, http.MethodPost, "/api/webhooks", body, 200, "whsec_")
	if err := json.Unmarshal([]byte(a.DataJSON()), &h); err != nil {
		t.Fatal(err)
	}
	return h
}

// state returns a webhook as its row answers it.
func state(t *testing.T, c fixture.Client, id string) (h struct {
	State        string
	PausedReason string `json:"paused_reason"`
}) {
	t.Helper()
	a := c.Want(t, http.MethodGet, "/api/webhooks/"+id, "", 200, id)
	if err := json.Unmarshal([]byte(a.DataJSON()), &h); err != nil {
		t.Fatal(err)
	}
	return h
}

// admin returns an administrator of the organization.
func admin(t *testing.T, o *gatewaytest.Org) fixture.Client {
	t.Helper()
	_, cookie := o.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	return fixture.As(o, gatewaytest.Cookie(cookie))
}

// decode reads the data of an answer.
func decode(t testing.TB, a *gatewaytest.Answer, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.DataJSON()), into); a.Code != http.StatusOK || err != nil {
		t.Fatalf("got %d %s, want data", a.Code, a.Body)
	}
}
