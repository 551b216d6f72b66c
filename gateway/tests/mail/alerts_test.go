package mail

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/mail"
	"tenantry/tenants"
)

// form makes a form with alerts and returns its identifier.
func (b *mailbox) form(t *testing.T, alerts map[string]any) string {
	t.Helper()
	a := b.Do(t, http.MethodPost, "/api/form/collections", gatewaytest.WithKey(b.key), gatewaytest.JSON(map[string]any{
		"name": "application", "label": "Application", "label_plural": "Applications", "email_alerts": alerts,
		"schema": map[string]any{
			"name":   map[string]string{"title": "Name", "type": "Text"},
			"mail":   map[string]string{"title": "Mail", "type": "Text"},
			"text":   map[string]string{"title": "Text", "type": "LongText"},
			"secret": map[string]string{"title": "Secret", "type": "Encrypted"},
			"tags":   map[string]string{"title": "Tags", "type": "Text"},
		},
	}))
	id, _ := a.Field("id").(string)
	if a.Code != http.StatusOK {
		t.Fatalf("creating a form: got %d %s", a.Code, a.Body)
	}
	return id
}

func (b *mailbox) submit(t *testing.T, form string, values map[string]any) string {
	t.Helper()
	all := map[string]any{"form_name": "Application"}
	maps.Copy(all, values)
	a := b.Do(t, http.MethodPost, "/api/form/collections/"+form+"/submissions", gatewaytest.WithKey(b.key), gatewaytest.JSON(map[string]any{"values": all}))
	id, _ := a.Field("id").(string)
	if a.Code != http.StatusOK {
		t.Fatalf("submitting: got %d %s", a.Code, a.Body)
	}
	return id
}

// TestFormAlertsWarn: answers say why alerts will reach nobody, or lack what they name.
func TestFormAlertsWarn(t *testing.T) {
	t.Parallel()
	silent, mailed := gatewaytest.Start(t).Org(t, "acme"), gatewaytest.Start(t, newServer(t).start().withMail()).Org(t, "acme")
	const nobody = "email_alerts have no recipients, so nobody is mailed"
	for _, test := range []struct {
		o            *gatewaytest.Org
		alerts, want string
	}{
		{mailed, `{"enabled":true,"recipients":["a@example.com"],"fields":["name"],"reply_to_field":"name"}`, ""},
		{mailed, `{"enabled":false,"fields":["gone"]}`, ""},
		{mailed, `{"enabled":true,"recipient":["a@example.com"]}`, nobody},
		{mailed, `{"enabled":true,"recipients":["a@example.com"],"fields":["name","gone"]}`, `email_alerts name "gone", and the form has no such field`},
		{silent, `{"enabled":true,"recipients":["a@example.com"]}`, mail.Nobody},
	} {
		key := gatewaytest.WithKey(test.o.Key(t, tenants.ManageForms, tenants.ViewFormSubmissions))
		body := fmt.Sprintf(`{"name":"f%[1]s","label":"%[1]s","label_plural":"%[1]ss","schema":{"name":{"title":"Name","type":"Text"}},"email_alerts":%[2]s}`, strings.ToLower(rand.Text()), test.alerts)
		made := test.o.Do(t, http.MethodPost, "/api/form/collections", key, fixture.JSONText(body))
		changed := test.o.Do(t, http.MethodPut, "/api/form/collections/"+fmt.Sprint(made.Field("id")), key, fixture.JSONText(`{"email_alerts":`+test.alerts+`}`))
		for _, a := range []*gatewaytest.Answer{made, changed} {
			if got := a.Header.Get("X-Warning"); a.Code != http.StatusOK || got != test.want {
				t.Errorf("%s: got %d and the warning %q, want %q", test.alerts, a.Code, got, test.want)
			}
		}
	}
}

// TestFormAlerts checks that each recipient gets a mail of its own with the values that the form marks and no others,
// that hostile values begin no headers, no tags and no recipients, and that answers go to the address in the named field.
func TestFormAlerts(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	g := gatewaytest.Start(t, server.withMail())
	acme := open(t, g, "acme")
	form := acme.form(t, map[string]any{
		"enabled": true, "recipients": []string{"one@example.com", "two@example.com", "ONE@example.com"}, "subject": "Neue Bewerbung: Größe",
		"reply_to_field": "mail", "fields": []string{"name", "secret", "text", "gone"},
	})
	id := acme.submit(t, form, map[string]any{
		"name": "<script>alert(1)</script> Ada", "mail": "ada@example.com", "text": "a line\r\nBcc: victim@example.com\r\n\r\n.\r\nQUIT", "secret": "the secret", "tags": "unmarked",
	})
	got := map[string]received{}
	for range 2 {
		m := server.next()
		got[m.To] = m
	}
	acme.settled(t, 2)
	server.none()
	if to := slices.Sorted(maps.Keys(got)); !slices.Equal(to, []string{"one@example.com", "two@example.com"}) {
		t.Errorf("got mails to %v", to)
	}
	for _, m := range got {
		if m.Subject != "Neue Bewerbung: Größe" || m.Header.Get("Reply-To") != "<ada@example.com>" || m.Header.Get("Bcc") != "" {
			t.Errorf("got the headers %v", m.Header)
		}
		for part, text := range map[string]string{"text": m.Text, "HTML": m.HTML} {
			if !strings.Contains(text, "Ada") || !strings.Contains(text, "Bcc: victim@example.com") || strings.Contains(text, "the secret") ||
				strings.Contains(text, "unmarked") || !strings.Contains(text, "/form/collections/"+form+"/submissions/"+id) {
				t.Errorf("the %s is %q", part, text)
			}
		}
		if strings.Contains(m.HTML, "<script") {
			t.Errorf("the HTML has a tag of the value: %s", m.HTML)
		}
	}
	m := got["two@example.com"]
	leave := strings.Trim(m.Header.Get("List-Unsubscribe"), "<>")
	_, path, _ := strings.Cut(leave, acme.Host)
	if _, path, _ = strings.Cut(path, "/"); !strings.HasPrefix(path, "unsubscribe?token=") || strings.Contains(path, "two") || !strings.Contains(m.Text, leave) {
		t.Errorf("List-Unsubscribe = %q, want a page that does not name the address, and the same in the text", leave)
	}
	if a := acme.Do(t, http.MethodGet, "/"+path); a.Code != http.StatusOK || !strings.Contains(a.Text(), "Receive no more of them") {
		t.Errorf("the page: got %d %s", a.Code, a.Body)
	}
	for range 2 { // as programs do that read mail
		a := acme.Do(t, http.MethodPost, "/"+path, gatewaytest.Body("application/x-www-form-urlencoded", "List-Unsubscribe=One-Click"))
		if a.Code != http.StatusOK || !strings.Contains(a.Text(), "You get no more of these mails") {
			t.Errorf("unsubscribing: got %d %s", a.Code, a.Body)
		}
	}
	acme.submit(t, form, map[string]any{"name": "Bob"})
	acme.settled(t, 3)
	if m := server.next(); m.To != "one@example.com" {
		t.Errorf("after two@example.com has left: got a mail to %s", m.To)
	}
	server.none()
	birch := open(t, g, "birch")
	if a := birch.Do(t, http.MethodPost, "/"+path, gatewaytest.Body("application/x-www-form-urlencoded", "")); a.Code != http.StatusForbidden {
		t.Errorf("the token at another organization: got %d %s", a.Code, a.Body)
	}
	page := acme.Do(t, http.MethodGet, "/form/collections/"+form+"/submissions/"+id, gatewaytest.Cookie(acme.admin))
	if page.Code != http.StatusOK {
		t.Errorf("the link of the mail: got %d, want a page", page.Code)
	}
}

// TestFormAlertsTellWhatTheirAuthorMayView checks that alerts set by somebody who may not view submissions tell nothing of
// them, until somebody who may sets them.
func TestFormAlertsTellWhatTheirAuthorMayView(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	acme := open(t, gatewaytest.Start(t, server.withMail()), "acme")
	full := acme.key
	blind := acme.Key(t, tenants.ManageForms)
	const warning = "email_alerts tell only that there is a submission"
	alerts := func(subject string) string {
		const rest = `"enabled":true,"recipients":["one@example.com"],"fields":["name"],"reply_to_field":"mail"`
		return fmt.Sprintf(`{"email_alerts":{"subject":%q,%s}}`, subject, rest)
	}
	acme.key = blind
	form := acme.form(t, map[string]any{
		"enabled": true, "recipients": []string{"one@example.com"}, "subject": "first", "fields": []string{"name"}, "reply_to_field": "mail",
	})
	acme.key = full
	put := func(key, body string, warns bool) {
		t.Helper()
		a := acme.Do(t, http.MethodPut, "/api/form/collections/"+form, gatewaytest.WithKey(key), fixture.JSONText(body))
		if a.Code != 200 || strings.Contains(a.Header.Get("X-Warning"), warning) != warns {
			t.Errorf("%s: got %d and the warning %q, want one: %t", body, a.Code, a.Header.Get("X-Warning"), warns)
		}
	}
	for i, step := range []struct {
		key, body    string
		warns, tells bool
	}{
		{"", "", true, false},
		{full, alerts("second"), false, true},
		{blind, `{"label":"Applied"}`, false, true},
		{blind, alerts("second"), false, true}, // as they are
		{blind, alerts("third"), true, false},
		{full, alerts("third"), true, false}, // as they are
		{full, alerts("fourth"), false, true},
	} {
		if step.body != "" {
			put(step.key, step.body, step.warns)
		}
		id := acme.submit(t, form, map[string]any{"name": "Ada Lovelace", "mail": "ada@example.com"})
		acme.settled(t, i+1)
		m := server.next()
		if reply := m.Header.Get("Reply-To"); (reply != "") != step.tells {
			t.Errorf("%d: answers go to %q, want an address: %t", i, reply, step.tells)
		}
		for part, text := range map[string]string{"text": m.Text, "HTML": m.HTML} {
			if strings.Contains(text, "Ada") != step.tells || strings.Contains(text, id) != step.tells {
				t.Errorf("%d: the %s is %q, want it to tell of the submission: %t", i, part, text, step.tells)
			}
		}
	}
}

// TestFormAlertsFollowTheForm checks that there is no alert if the form has none, if alerts are switched off or the
// submission is deleted before it is sent, and for the submissions of an import.
func TestFormAlertsFollowTheForm(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	server.stop()
	var clock fixture.Clock
	g := gatewaytest.Start(t, server.withMail(), clock.Option)
	acme := open(t, g, "acme")
	alerts := map[string]any{"enabled": true, "recipients": []string{"one@example.com"}}
	form := acme.form(t, alerts)
	change := func(alerts map[string]any) {
		t.Helper()
		if a := acme.Do(t, http.MethodPut, "/api/form/collections/"+form, gatewaytest.WithKey(acme.key), gatewaytest.JSON(map[string]any{"email_alerts": alerts})); a.Code != 200 {
			t.Fatalf("changing the form: got %d %s", a.Code, a.Body)
		}
	}
	acme.submit(t, form, map[string]any{"name": "before it is switched off"})
	change(map[string]any{"enabled": false, "recipients": []string{"one@example.com"}})
	acme.submit(t, form, map[string]any{"name": "without alerts"})
	server.start()
	clock.Advance(time.Hour)
	fixture.Await(t, "the alert dropped", func() bool { acme.send(t); return len(acme.list(t)) == 0 })
	server.none()

	server.stop()
	change(alerts)
	kept, gone := acme.submit(t, form, map[string]any{"name": "kept"}), acme.submit(t, form, map[string]any{"name": "gone"})
	if a := acme.Do(t, http.MethodDelete, "/api/form/collections/"+form+"/submissions/"+gone, gatewaytest.WithKey(acme.key)); a.Code != 200 {
		t.Fatalf("deleting: got %d %s", a.Code, a.Body)
	}
	acme.Import(t, `{"kind":"submission","form":"`+form+`","values":{"form_name":"Application","name":"imported"}}`)
	server.start()
	clock.Advance(time.Hour)
	acme.settled(t, 1)
	if m := server.next(); !strings.Contains(m.Text, kept) {
		t.Errorf("got %s", m.Text)
	}
	fixture.Await(t, "the other alert dropped", func() bool { acme.send(t); return len(acme.list(t)) == 1 })
	server.none()
}

// TestLeavingAFormThatChanges checks that leaving a form succeeds and changes nothing if its recipients are removed between
// the read and the write.
func TestLeavingAFormThatChanges(t *testing.T) {
	t.Parallel()
	for name, alerts := range map[string]string{
		"no alerts":       `{}`,
		"no recipients":   `{"enabled":true}`,
		"other ones":      `{"enabled":true,"recipients":["two@example.com"]}`,
		"an empty list":   `{"enabled":true,"recipients":[]}`,
		"another subject": `{"enabled":true,"recipients":["two@example.com"],"subject":"Ours"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var between fixture.StoreHook
			server := newServer(t).start()
			acme := open(t, gatewaytest.Start(t, server.withMail(), between.Option), "acme")
			form := acme.form(t, map[string]any{"enabled": true, "recipients": []string{"one@example.com"}})
			acme.submit(t, form, map[string]any{"name": "Ada"})
			m := server.next()
			acme.settled(t, 1)
			_, token, _ := strings.Cut(strings.Trim(m.Header.Get("List-Unsubscribe"), "<>"), "token=")
			token, err := url.QueryUnescape(token)
			if err != nil {
				t.Fatal(err)
			}
			as, path := fixture.As(acme.Org, gatewaytest.WithKey(acme.key)), "/api/form/collections/"+form
			tag := ""
			on := func(c store.Call) {
				if c.Operation == "find" && c.Collection == "form_collections" {
					between.On.Store(nil)
					as.Want(t, http.MethodPut, path, `{"email_alerts":`+alerts+`}`, 200, "")
					tag = as.Want(t, http.MethodGet, path, "", 200, "").Header.Get("ETag")
				}
			}
			between.On.Store(&on)
			anybody := fixture.As(acme.Org, func(*http.Request) {})
			anybody.Want(t, http.MethodPost, "/auth/unsubscribe", fmt.Sprintf(`{"token":%q}`, token), 200, `"form":"Application"`)
			a := as.Want(t, http.MethodGet, path, "", 200, `"email_alerts":`+alerts)
			if got := a.Header.Get("ETag"); tag == "" || got != tag {
				t.Errorf("the form has the tag %s, want %s, as before leaving", got, tag)
			}
		})
	}
}

// TestOthersLeaveRoomForUrgentMails checks that alerts and reports fill nine tenths of the mails that may wait, so that links
// for a password and invitations are mailed, and that the answer says what to do once even these are too many, the same and
// after the same time whether or not somebody has the address.
func TestOthersLeaveRoomForUrgentMails(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	g := gatewaytest.Start(t, fixture.ShortLeases, server.withMail())
	acme := open(t, g, "acme")
	as := fixture.As(acme.Org, gatewaytest.WithKey(acme.key))
	_, schedule, _ := acme.weekly(t, "", "")
	form := acme.form(t, map[string]any{"enabled": true, "recipients": []string{"a@example.com", "b@example.com", "c@example.com"}})
	acme.fill(t, 8_997, mail.FormAlert)
	acme.submit(t, form, map[string]any{"name": "the last one"}) // one mail, and then three
	to := []string{server.next().To, server.next().To, server.next().To}
	if slices.Sort(to); !slices.Equal(to, []string{"a@example.com", "b@example.com", "c@example.com"}) {
		t.Errorf("got mails to %v", to)
	}
	acme.waiting(t, 8_997)
	acme.fill(t, 1, mail.FormAlert)
	acme.submit(t, form, map[string]any{"name": "three would be too many"})
	acme.waiting(t, 8_998)
	acme.fill(t, 1, mail.FormAlert)
	as.Want(t, http.MethodPost, "/api/report-schedules/"+schedule+"/run", "", 503, "queue was not available") // two mails
	acme.fill(t, 1, mail.FormAlert)
	acme.submit(t, form, map[string]any{"name": "there is no room"})
	acme.waiting(t, 9_000)
	server.none()

	ask := func(email string) (*gatewaytest.Answer, time.Duration) {
		began := time.Now()
		a := acme.Do(t, http.MethodPost, "/auth/password/forgot", gatewaytest.JSON(map[string]string{"email": email}))
		return a, time.Since(began)
	}
	if a, _ := ask("root@acme.example"); a.Code != http.StatusOK {
		t.Errorf("asking for a password: got %d %s", a.Code, a.Body)
	}
	acme.invite(t, "ada@example.com")
	to = []string{server.next().To, server.next().To}
	if slices.Sort(to); !slices.Equal(to, []string{"ada@example.com", "root@acme.example"}) {
		t.Errorf("got urgent mails to %v", to)
	}
	acme.waiting(t, 9_000)

	acme.fill(t, 1_000, mail.Invitation)
	known, took := ask("root@acme.example")
	const advice = "Please retry later, or ask an administrator"
	if known.Code != http.StatusServiceUnavailable || known.Header.Get("Retry-After") != "60" || !strings.Contains(known.Text(), advice) ||
		strings.Contains(known.Text(), "10000") {
		t.Errorf("got %d %v %s, want a 503 with advice", known.Code, known.Header, known.Body)
	}
	unknown, alsoTook := ask("nobody@example.com")
	if unknown.Code != known.Code || unknown.Text() != known.Text() || fixture.Canonical(unknown, "", nil) != fixture.Canonical(known, "", nil) {
		t.Errorf("an address that nobody has: got %d %s, want as for a person", unknown.Code, unknown.Body)
	}
	if least := 250 * time.Millisecond; took < least || alsoTook < least {
		t.Errorf("answered after %s, and after %s for an address that nobody has, want at least %s", took, alsoTook, least)
	}
	page := acme.Do(t, http.MethodPost, "/forgot", gatewaytest.Body("application/x-www-form-urlencoded", "email=root%40acme.example"),
		gatewaytest.Header("Sec-Fetch-Site", "same-origin"))
	if page.Code != http.StatusServiceUnavailable || !strings.Contains(page.Text(), advice) {
		t.Errorf("the page: got %d %s", page.Code, page.Body)
	}
}

// TestExpiringKeysAreTold checks that administrators are mailed a week before a key expires, once, and nobody about keys
// that are revoked or expire later; and the same of a webhook that was paused.
func TestExpiringKeysAreTold(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	var clock fixture.Clock
	g := gatewaytest.Start(t, server.withMail(), clock.Option)
	acme := open(t, g, "acme")
	acme.Person(t, "second@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	acme.Person(t, "member@example.com", nil)
	for name, life := range map[string]time.Duration{"soon": 10 * 24 * time.Hour, "later": 20 * 24 * time.Hour, "revoked": 10 * 24 * time.Hour} {
		key := acme.KeyWith(t, func(k *control.NewKey) { k.Name, k.Expires = name, life })
		if name == "revoked" {
			if a := acme.Do(t, http.MethodDelete, "/api/keys/"+key.ID, gatewaytest.Cookie(acme.admin)); a.Code != 200 {
				t.Fatalf("revoking: got %d %s", a.Code, a.Body)
			}
		}
	}
	round := func() {
		t.Helper()
		clock.Advance(2 * time.Hour)
		if taken, err := g.App.EmptyTrash(t.Context()); !taken || err != nil {
			t.Fatalf("got %t %v, want a turn", taken, err)
		}
	}
	round()
	server.none()
	clock.Advance(4 * 24 * time.Hour)
	round()
	acme.settled(t, 2)
	var to []string
	for range 2 {
		m := server.next()
		if to = append(to, m.To); m.Subject != "An API key expires soon" || !strings.Contains(m.Text, "soon expires soon") {
			t.Errorf("got %s: %s", m.Subject, m.Text)
		}
	}
	if slices.Sort(to); !slices.Equal(to, []string{"root@acme.example", "second@example.com"}) {
		t.Errorf("got mails to %v, want the administrators", to)
	}
	round()
	acme.settled(t, 2)
	server.none()

	since := clock.Now()
	for range 2 {
		if err := g.App.Mails().TellWebhookPaused(t.Context(), acme.Tenant(t), "665f1c2ab4d3e2f1a0b9c8d7", "CRM", since, "500 Internal Server Error"); err != nil {
			t.Fatal(err)
		}
	}
	acme.settled(t, 4)
	for range 2 {
		if m := server.next(); m.Subject != "A webhook was paused" || !strings.Contains(m.Text, "500 Internal Server Error") {
			t.Errorf("got %s: %s", m.Subject, m.Text)
		}
	}
	server.none()
}

// TestMailsAreListed checks the list and the page of mails: administrators alone see them, with masked addresses.
func TestMailsAreListed(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	g, without := gatewaytest.Start(t, server.withMail()), gatewaytest.Start(t)
	acme := open(t, g, "acme")
	acme.invite(t, "ada@example.com")
	server.next()
	acme.settled(t, 1)
	a := acme.Do(t, http.MethodGet, "/api/mails?filters[topic]=invitation", gatewaytest.Cookie(acme.admin))
	if text := a.Text(); a.Code != http.StatusOK || !strings.Contains(text, `"to":"a***@example.com"`) || !strings.Contains(text, `"state":"sent"`) ||
		strings.Contains(text, "ada@") || strings.Contains(text, "message\":\"enc") || a.Header.Get("X-Warning") != "" {
		t.Errorf("got %d %v %s", a.Code, a.Header, text)
	}
	if a := acme.Do(t, http.MethodGet, "/api/mails", gatewaytest.WithKey(acme.key)); a.Code != http.StatusForbidden {
		t.Errorf("a key: got %d %s, want 403", a.Code, a.Body)
	}
	if page := acme.Do(t, http.MethodGet, "/mails", gatewaytest.Cookie(acme.admin)); !strings.Contains(page.Text(), "a***@example.com") {
		t.Errorf("the page: got %d %s", page.Code, page.Body)
	}
	birch := open(t, without, "birch")
	if a := birch.Do(t, http.MethodGet, "/api/mails", gatewaytest.Cookie(birch.admin)); a.Header.Get("X-Warning") != mail.Nobody {
		t.Errorf("without mail: got the warning %q, want %q", a.Header.Get("X-Warning"), mail.Nobody)
	}
	invited := birch.Do(t, http.MethodPost, "/api/users", gatewaytest.WithKey(birch.key), gatewaytest.JSON(map[string]any{"name": "Ada", "email": "ada@example.com"}))
	if invited.Field("mailed") != false || invited.Field("link") == "" || len(birch.list(t)) != 0 {
		t.Errorf("without mail: got %s, want a link and nothing stored", invited.Body)
	}
	for g, want := range map[*gatewaytest.Gateway]string{g: server.address + " answers and takes mail of " + mailSender, without: "nobody is mailed, because mail.url is not set"} {
		found := fixture.Findings(t, g, control.Examination{})
		if !slices.ContainsFunc(found, func(f control.Finding) bool { return f.Says == want }) {
			t.Errorf("doctor: got %+v, want %q", found, want)
		}
	}
}

// TestPublicFormAlerts checks that what anybody sends with a public form is told to the recipients, and what the trap for
// programs catches is not.
func TestPublicFormAlerts(t *testing.T) {
	t.Parallel()
	server := newServer(t).start()
	g := gatewaytest.Start(t, server.withMail())
	acme := open(t, g, "acme")
	form := acme.form(t, map[string]any{"enabled": true, "recipients": []string{"one@example.com"}, "fields": []string{"name"}})
	all := fixture.As(acme.Org, gatewaytest.WithKey(acme.key))
	all.Want(t, http.MethodPut, "/api/form/collections/"+form+"/public", `{"public":true,"pid":"application-form-01"}`, 200, "")
	anybody := fixture.As(acme.Org, func(*http.Request) {})
	anybody.Want(t, http.MethodPost, "/f/application-form-01?honeypot=x", `{"values":{"name":"A program"}}`, 200, "")
	anybody.Want(t, http.MethodPost, "/f/application-form-01", `{"values":{"name":"Ada"}}`, 200, "")
	if m := server.next(); m.To != "one@example.com" || !strings.Contains(m.Text, "Name: Ada") {
		t.Errorf("got %+v", m)
	}
	acme.settled(t, 1)
	server.none()
}
