package mail

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"tenantry/config"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/mail"
)

// TestMailWaitsForItsServer checks that mails wait while the server is away, are sent when it is back, and fail after three
// days.
func TestMailWaitsForItsServer(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	server.stop()
	var clock fixture.Clock
	g := gatewaytest.Start(t, server.withMail(), clock.Option)
	acme := open(t, g, "acme")
	acme.invite(t, "ada@example.com")
	fixture.Await(t, "a line about the server", func() bool { return strings.Contains(g.Log.String(), "mail cannot be sent and waits") })
	if got := acme.only(t); got.State != "waiting" {
		t.Fatalf("got %+v, want it waiting", got)
	}
	server.start()
	clock.Advance(time.Hour)
	acme.settled(t, 1)
	if m := server.next(); m.To != "ada@example.com" {
		t.Errorf("got a mail to %s", m.To)
	}
	acme.await(t, told{"invitation", "a***@example.com", "sent", 0, 1})

	server.stop()
	clock.Advance(time.Minute)
	acme.invite(t, "bob@example.com")
	clock.Advance(71 * time.Hour)
	acme.send(t)
	clock.Advance(2 * time.Hour)
	fixture.Await(t, "the other mail failed after three days", func() bool {
		acme.send(t)
		got := acme.list(t)[1]
		return got.State == "failed" && got.To == "b***@example.com"
	})
	server.start()
	acme.send(t)
	server.none()
}

// TestRefusedMail checks that a mail which the server refuses for good has failed with the code, that one which it does
// not take for now is tried again, later each time, that a server which refuses the sender only delays mails, and that no
// address is logged.
func TestRefusedMail(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	var clock fixture.Clock
	g := gatewaytest.Start(t, server.withMail(), clock.Option)
	for i, test := range []struct {
		step     string
		code     int
		state    string // of the mail after the first try
		pauses   []time.Duration
		delivers bool
	}{
		{"RCPT", 550, "failed", nil, false},
		{"DATA", 554, "failed", nil, false},
		{"RCPT", 450, "waiting", []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute}, true},
		{"DATA", 421, "waiting", []time.Duration{time.Minute}, true},
		{"MAIL", 550, "waiting", []time.Duration{time.Minute}, true},
	} {
		server.refusing(func(step, address string) error {
			if step != test.step {
				return nil
			}
			return &smtp.SMTPError{Code: test.code, Message: "no such thing as " + address}
		})
		org := open(t, g, fmt.Sprintf("org%d", i))
		org.invite(t, "ada@example.com")
		want := told{"invitation", "a***@example.com", test.state, test.code, 1}
		org.await(t, want)
		for _, pause := range test.pauses {
			clock.Advance(pause - 10*time.Second)
			org.send(t)
			if got := org.only(t); got != want {
				t.Errorf("%s %d: got %+v before the pause is over, want %+v", test.step, test.code, got, want)
			}
			clock.Advance(11 * time.Second)
			want.Tries++
			org.send(t)
			org.await(t, want)
		}
		server.refusing(nil)
		clock.Advance(24 * time.Hour)
		org.send(t)
		if test.delivers {
			want.State, want.Code, want.Tries = "sent", 0, want.Tries+1
			if m := server.next(); m.To != "ada@example.com" {
				t.Errorf("%s %d: got a mail to %s", test.step, test.code, m.To)
			}
		}
		org.await(t, want)
		server.none()
	}
	if log := g.Log.String(); strings.Contains(log, "ada@example.com") || strings.Contains(log, "no such thing") {
		t.Errorf("the log holds an address, or a text of the server:\n%s", log)
	}
}

// TestMailLimits checks that an organization sends no more mails in an hour than it may, and no more to one address, that
// the others wait, and that another organization is not affected.
func TestMailLimits(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	var clock fixture.Clock
	g := gatewaytest.Start(t, server.withMail(func(m *config.Mail) { m.PerOrganization, m.PerAddress = 5, 2 }), clock.Option)
	acme, birch := open(t, g, "acme"), open(t, g, "birch")
	for i := range 8 {
		acme.invite(t, fmt.Sprintf("person%d@example.com", i))
	}
	birch.invite(t, "ada@example.com")
	got := map[string]int{}
	for range 7 {
		m := server.next()
		_, domain, _ := strings.Cut(m.Header.Get("From"), "<")
		got[strings.TrimPrefix(strings.Split(m.Header.Get("From"), `"`)[1], "Organization ")+domain[:0]]++
	}
	if got["acme"] != 6 || got["birch"] != 1 { // one of acme is of the reserve for mails that somebody waits for
		t.Errorf("mails = %v, want 6 of acme and 1 of birch", got)
	}
	acme.settled(t, 6)
	server.none()
	clock.Advance(61 * time.Minute)
	acme.settled(t, 8)
	server.next()
	server.next()

	id := birch.invite(t, "eve@example.com").Field("id")
	for range 3 {
		if a := birch.Do(t, "POST", fmt.Sprintf("/api/users/%v/invite", id), gatewaytest.WithKey(birch.key)); a.Code != 200 {
			t.Fatalf("inviting again: %d %s", a.Code, a.Body)
		}
	}
	birch.settled(t, 3)
	server.next()
	server.next()
	server.none()
	clock.Advance(61 * time.Minute)
	birch.settled(t, 5)
	server.next()
	server.next()
}

// TestMailIsSentOnce checks that the senders of several replicas, which know nothing of each other, send each mail once.
func TestMailIsSentOnce(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	g := gatewaytest.Start(t, server.withMail())
	acme := open(t, g, "acme")
	const mails = 60
	var senders sync.WaitGroup
	stop := make(chan struct{})
	tenant := acme.Tenant(t)
	for range 4 {
		replica := mail.New(g.App.Mails().Options)
		replica.Kinds = g.App.Mails().Kinds
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := replica.Turn(t.Context(), tenant); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range mails {
		acme.invite(t, fmt.Sprintf("person%d@example.com", i))
	}
	seen := map[string]int{}
	for range mails {
		seen[server.next().To]++
	}
	close(stop)
	senders.Wait()
	acme.send(t)
	server.none()
	if len(seen) != mails {
		t.Errorf("got mails to %d people, want %d", len(seen), mails)
	}
}

// TestHangingUpIsAboutOneConnection: a server that hangs up after some refusals keeps nobody else's mail waiting.
func TestHangingUpIsAboutOneConnection(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	var refused atomic.Int64
	server.refusing(func(step, address string) error {
		if step != "RCPT" || !strings.HasPrefix(address, "bad") {
			return nil
		}
		if refused.Add(1)%4 == 0 {
			return &smtp.SMTPError{Code: 421, Message: "too many errors"}
		}
		return &smtp.SMTPError{Code: 550, Message: "no such user"}
	})
	g := gatewaytest.Start(t, server.withMail())
	evil, acme := open(t, g, "evil"), open(t, g, "acme")
	var bad []string
	for i := range 40 {
		bad = append(bad, fmt.Sprintf("bad%d@example.com", i))
	}
	evil.submit(t, evil.form(t, map[string]any{"enabled": true, "recipients": bad}), map[string]any{"name": "Ada"})
	for i := range 5 {
		acme.invite(t, fmt.Sprintf("ada%d@example.com", i))
		server.next()
		evil.send(t)
	}
	if strings.Contains(g.Log.String(), "mail cannot be sent and waits") {
		t.Error("the server was taken to be away")
	}
}

// TestUrgentMailsComeFirst: a link for a forgotten password is mailed although so many alerts wait that the organization
// has used up its mails of the hour.
func TestUrgentMailsComeFirst(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	acme := open(t, gatewaytest.Start(t, server.withMail(func(m *config.Mail) { m.PerOrganization = 5 })), "acme")
	var all []string
	for i := range 60 {
		all = append(all, fmt.Sprintf("to%d@example.com", i))
	}
	acme.submit(t, acme.form(t, map[string]any{"enabled": true, "recipients": all}), map[string]any{"name": "Ada"})
	acme.settled(t, 5)
	for range 5 {
		server.next()
	}
	server.none()
	fixture.As(acme.Org, func(*http.Request) {}).Want(t, http.MethodPost, "/auth/password/forgot", `{"email":"root@acme.example"}`, 200, "")
	if m := server.next(); m.To != "root@acme.example" {
		t.Errorf("got a mail to %s, want the link", m.To)
	}
	acme.send(t)
	server.none()
}
