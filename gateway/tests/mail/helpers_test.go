package mail

import (
	"context"
	"net/http"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/mail"
	"tenantry/tenants"
)

// mailbox is an organization whose mail a test looks at.
type mailbox struct {
	*gatewaytest.Org
	key   string // that may manage users
	admin *http.Cookie
}

// open makes an organization with an administrator, who has signed in from one place, and reads what is mailed for that.
func open(t *testing.T, g *gatewaytest.Gateway, slug string) *mailbox {
	t.Helper()
	b := &mailbox{Org: g.Org(t, slug)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log says:\n%s", g.Log)
		}
	})
	b.key = b.Key(t, tenants.AllPermissions()...)
	_, b.admin = b.Person(t, "root@"+slug+".example", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	return b
}

// invite invites somebody.
func (b *mailbox) invite(t *testing.T, email string) *gatewaytest.Answer {
	t.Helper()
	a := b.Do(t, http.MethodPost, "/api/users", gatewaytest.WithKey(b.key),
		gatewaytest.JSON(map[string]any{"name": "Somebody", "email": email}))
	if a.Code != http.StatusOK || a.Field("mailed") != true {
		t.Fatalf("inviting: got %d %s", a.Code, a.Body)
	}
	return a
}

// told is a mail in the list.
type told struct {
	Topic, To, State string
	Code, Tries      int
}

// list returns the mails of the organization, the oldest first.
func (b *mailbox) list(t *testing.T) []told {
	t.Helper()
	found, err := b.App.Mails().Mails.In(b.Tenant(t).Workspace()).Find(t.Context(), store.Query{Sort: []store.Order{store.Asc("created_at")}})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]told, len(found))
	for i, m := range found {
		if m.State != mail.Waiting && m.Message != "" {
			t.Errorf("a mail that is %s still has its message", m.State)
		}
		all[i] = told{m.Topic, m.To, m.State, m.Code, m.Tries}
	}
	return all
}

// only returns the only mail of the list.
func (b *mailbox) only(t *testing.T) told {
	t.Helper()
	all := b.list(t)
	if len(all) != 1 {
		t.Fatalf("got the mails %+v, want one", all)
	}
	return all[0]
}

// await waits until the only mail of the list is as wanted.
func (b *mailbox) await(t *testing.T, want told) {
	t.Helper()
	var got told
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if got = b.only(t); got == want {
			return
		}
	}
	t.Fatalf("got the mail %+v, want %+v", got, want)
}

// send sends all mails that are due.
func (b *mailbox) send(t *testing.T) {
	t.Helper()
	if err := b.App.SendMail(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// settled sends what is due until that many mails of the list are sent and no other one is due.
func (b *mailbox) settled(t *testing.T, sent int) {
	t.Helper()
	fixture.Await(t, "as many mails as may be sent", func() bool {
		b.send(t)
		n := 0
		for _, m := range b.list(t) {
			if m.State == mail.Sent {
				n++
			}
		}
		return n >= sent
	})
	b.send(t)
}

// fill stores mails of a topic that wait and are not due for a year, and returns a function that removes them.
func (b *mailbox) fill(t *testing.T, n int, topic string) (empty func()) {
	t.Helper()
	mails := b.App.Mails().Mails.In(b.Tenant(t).Workspace())
	all := make([]*mail.Mail, n)
	for i := range all {
		all[i] = &mail.Mail{Topic: topic, State: mail.Waiting, Due: time.Now().AddDate(1, 0, 0).UnixMilli()}
	}
	inPortions := func(do func(context.Context, ...*mail.Mail) error) {
		t.Helper()
		for left := all; len(left) > 0; {
			some := mails.Portion(left)
			if err := do(t.Context(), left[:some]...); err != nil {
				t.Fatal(err)
			}
			left = left[some:]
		}
	}
	inPortions(mails.Insert)
	return func() { t.Helper(); inPortions(mails.Delete) }
}

// waiting sends what is due and waits until that many mails are left.
func (b *mailbox) waiting(t *testing.T, n int64) {
	t.Helper()
	mails, got := b.App.Mails().Mails.In(b.Tenant(t).Workspace()), int64(-1)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		b.send(t)
		var err error
		if got, err = mails.Count(t.Context(), store.Eq("state", mail.Waiting)); err != nil || got == n {
			break
		}
	}
	if got != n {
		t.Fatalf("%d mails wait, want %d", got, n)
	}
}
