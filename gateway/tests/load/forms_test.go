package load

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestFormsReserveRoom checks that a slowly arriving form takes room for bodies and none for work, that the page that
// shows it again reserves room for its content, and that a large form is not repeated as a command.
func TestFormsReserveRoom(t *testing.T) {
	t.Parallel()
	held := fixture.NewStoreGate()
	g := gatewaytest.Start(t, held.Option)
	p := fixture.PartyOf(g.Org(t, "acme"))
	_, cookie := p.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	const bytes = 1_000_000
	form := "_more=1&first_name=" + strings.Repeat("'", bytes)
	h := p.HoldBody(t, p.Row(t, "contacts.create"), fixture.Call{Method: http.MethodPost, Target: "/do/contacts.create", Changes: []gatewaytest.Request{
		gatewaytest.Body("application/x-www-form-urlencoded", form),
	}}, gatewaytest.Cookie(cookie))
	if n := fixture.Metric(t, g, "tenantry_bodies_bytes"); n != len(form) {
		t.Errorf("a form of %d bytes arrives, and %d have room, want %v", len(form), n, len(form))
	}
	if n := fixture.Metric(t, g, "tenantry_in_flight"); n != 0 {
		t.Errorf("while it arrives it takes %d of the work, want 0", n)
	}
	what := "find contact_fields"
	held.What.Store(&what)
	fixture.Send(t, h.Conn, form)
	<-held.Reached
	if n := fixture.Metric(t, g, "tenantry_answers_bytes"); n < 10*bytes {
		t.Errorf("%d bytes have room for a page of a form of %d, want at least %v", n, bytes, 10*bytes)
	}
	if n := fixture.Metric(t, g, "tenantry_bodies_bytes"); n != 0 {
		t.Errorf("it has arrived, and %d bytes of bodies have room, want 0", n)
	}
	held.GoOn <- struct{}{}
	code, page := h.Answer(t)
	if code != http.StatusOK || len(page) < 5*bytes || len(page) > 6*bytes {
		t.Errorf("got %d, a page of %d bytes, want 200, at least %v page and at most %v page",
			code, len(page), 5*bytes, 6*bytes)
	}
	fixture.Await(t, "all room was given back", func() bool {
		return fixture.Metric(t, g, "tenantry_answers_bytes") == 0 && fixture.Metric(t, g, "tenantry_in_flight") == 0
	})
}

// TestFormFieldsBeforeAFileAreBounded checks that the fields of a form before its file are bounded together.
func TestFormFieldsBeforeAFileAreBounded(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	for parts, code := range map[int]int{0: http.StatusSeeOther, 5: http.StatusBadRequest} {
		var form bytes.Buffer
		w := multipart.NewWriter(&form)
		for range parts {
			_ = w.WriteField("_more", strings.Repeat("x", 20_000)) // a buffer takes all
		}
		file, err := w.CreateFormFile("file", "all.ndjson")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(file, `{"kind":"team","name":"North"}`)
		_ = w.Close() // as above
		a := acme.Page(t, "/do/imports.create", gatewaytest.Cookie(cookie), gatewaytest.Body(w.FormDataContentType(), form.String()), func(r *http.Request) { r.Method = http.MethodPost })
		if a.Code != code {
			t.Errorf("%d parts before the file: got %d %.300s, want %d", parts, a.Code, a.Text(), code)
		}
	}
}

// TestAnonymousFormsAreBounded checks how much is read of an anonymous caller's form that waits for password checks.
func TestAnonymousFormsAreBounded(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	for _, path := range []string{"/sign-in", "/enter", "/welcome", "/sign-out"} {
		for more, refused := range map[int]bool{5: false, 3000: true} {
			form := "email=a%40example.com&password=x&token=t" + strings.Repeat("&a", more)
			a := acme.Page(t, path, gatewaytest.Body("application/x-www-form-urlencoded", form), func(r *http.Request) { r.Method = http.MethodPost })
			if told := a.Code == http.StatusBadRequest && strings.Contains(a.Text(), "did not arrive"); told != refused || a.Code >= 500 {
				t.Errorf("%s with %d fields more: got %d %.200s, want %v and a code below 500",
					path, more, a.Code, a.Text(), refused)
			}
		}
	}
}

// TestExplainedCallsReserveRoom checks that an explained call reserves room for its answer, although the answer is not
// sent.
func TestExplainedCallsReserveRoom(t *testing.T) {
	t.Parallel()
	held := fixture.NewStoreGate()
	g := gatewaytest.Start(t, held.Option)
	acme := g.Org(t, "acme")
	longTexts(t, acme, 5)
	key := acme.Key(t, tenants.AllPermissions()...)
	a := held.During(t, "count records", 0, func() *gatewaytest.Answer {
		return acme.Get(t, key, "/api/store/explain?call="+url.QueryEscape("/api/custom/objects/long/records?per_page=4"))
	}, func() {
		fixture.Await(t, "its page has room", func() bool { return fixture.Metric(t, g, "tenantry_answers_bytes") >= 4*longText }) // an engine may be asked for both at once
	})
	if a.Code != http.StatusOK {
		t.Errorf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
	}
}
