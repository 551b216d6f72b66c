package mail

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

const mailVariable = "TENANTRY_TEST_MAIL"

// TestKilledWhileSending kills the process at moments of storing and sending alerts about submissions. Each submission
// that was answered is told at least once, and what is told twice has the same Message-ID.
func TestKilledWhileSending(t *testing.T) {
	t.Parallel()
	if address := os.Getenv(mailVariable); address != "" && fixture.ServeAsVictim(t, (&mailServer{t: t, address: address}).withMail()) {
		return
	}
	server := newServer(t).start()
	folder := t.TempDir()
	var clock fixture.Clock
	start := func() *gatewaytest.Gateway {
		return gatewaytest.Start(t, fixture.InFolder(folder), server.withMail(), clock.Option)
	}
	g := start()
	acme := open(t, g, "acme")
	form := acme.form(t, map[string]any{"enabled": true, "recipients": []string{"one@example.com"}, "fields": []string{"name"}})
	g.Stop(t)

	answered := map[string]bool{}
	for round, step := range []string{"MAIL", "DATA", "TAKEN", "TAKEN", "RCPT", "DATA"} {
		victim := fixture.StartVictim(t, folder, mailVariable+"="+server.address)
		steps, killed := atomic.Int64{}, make(chan struct{})
		server.refusing(func(at, _ string) error {
			if at == step {
				if steps.Add(1) == int64(3+round) {
					victim.Kill()
					close(killed)
				}
			}
			return nil
		})
		for n := 0; ; n++ {
			name := fmt.Sprintf("submission %d-%d.", round, n)
			body := fmt.Sprintf(`{"values":{"form_name":"Application","name":%q}}`, name)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+victim.Addr+"/api/form/collections/"+form+"/submissions", bytes.NewReader([]byte(body)))
			if err != nil {
				t.Fatal(err)
			}
			r.Host = acme.Host
			r.Header.Set("Content-Type", "application/json")
			gatewaytest.WithKey(acme.key)(r)
			a, err := http.DefaultClient.Do(r)
			if err != nil {
				break // it was killed
			}
			_ = a.Body.Close()
			if a.StatusCode == http.StatusOK {
				answered[name] = true
			}
			time.Sleep(2 * time.Millisecond) // time for sending
		}
		<-killed
		victim.Wait()
		server.refusing(nil)
	}
	clock.Advance(10 * time.Minute) // no process that lives has claimed a mail
	g = start()
	again := &mailbox{Org: &gatewaytest.Org{Gateway: g, Slug: "acme", Host: acme.Host}}
	fixture.Await(t, "all mails sent", func() bool {
		again.send(t)
		for _, m := range again.list(t) {
			if m.State != "sent" {
				return false
			}
		}
		return true
	})
	g.Stop(t)
	server.stop()
	close(server.mails)
	ids := map[string]string{}
	mails := 0
	for m := range server.mails {
		mails++
		name := nameIn.FindString(m.Text)
		if id, twice := ids[name]; twice && id != m.Header.Get("Message-Id") {
			t.Errorf("%s was told as %s and %s, want one Message-ID", name, id, m.Header.Get("Message-Id"))
		}
		ids[name] = m.Header.Get("Message-Id")
	}
	for name := range answered {
		if ids[name] == "" {
			t.Errorf("%s was answered, but nobody was told", name)
		}
	}
	if len(answered) < 20 || mails < len(ids)+1 {
		t.Errorf("%d submissions were answered and %d mails about %d arrived, want at least 20, and one told twice", len(answered), mails, len(ids))
	}
	t.Logf("%d submissions were answered, %d mails about %d arrived", len(answered), mails, len(ids))
}
