package gateway_test

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/api"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// pausing holds every call back that asks the store for something while it is on.
type pausing struct {
	goOn    atomic.Pointer[chan struct{}] // nil: it is off
	reached chan string                   // with the operation of the store
}

func (p *pausing) option(_ *config.Config, o *gateway.Options) {
	o.Observe = func(c store.Call) {
		goOn := p.goOn.Load()
		if goOn == nil || c.Collection == "usage" {
			return
		}
		p.reached <- c.Operation
		<-*goOn
	}
}

// pausedCall is one that is held back.
type pausedCall struct {
	op     *api.Operation
	at     string // operation of the store; empty: it was answered before
	answer chan *gatewaytest.Answer
}

// begin begins a call, and waits until it is held back.
func (p *pausing) begin(op *api.Operation, call func() *gatewaytest.Answer) pausedCall {
	c := pausedCall{op: op, answer: make(chan *gatewaytest.Answer, 1)}
	for len(p.reached) > 0 { // what the last one asked for at the same time
		<-p.reached
	}
	go func() { c.answer <- call() }()
	select {
	case c.at = <-p.reached:
	case a := <-c.answer:
		c.answer <- a
	}
	return c
}

// TestS8_LongCallsWithoutBody: a call that writes, and sends no body, ends soon after the rights of its caller have.
func TestS8_LongCallsWithoutBody(t *testing.T) {
	t.Parallel()
	held := &pausing{reached: make(chan string, 1000)}
	w := newWorld(t, withPlants, held.option)
	for of, endings := range map[api.Credentials][]ending{api.Key: keyEndings(), api.Session: personEndings()} {
		for _, e := range endings {
			rows := slices.DeleteFunc(w.asked(), func(op api.Operation) bool {
				// Who signs out has no session any more when the store is first asked, for the audit record.
				writes := op.Name != "sessions.delete" && op.Method != http.MethodGet && !op.Reads && op.Body == nil && op.Upload == nil
				return !writes || op.Credentials&of == 0 || of == api.Key && (!op.Kinds.Admits(tenants.ServerFull) || op.Rule.IsAdminOnly())
			})
			if !testing.Short() && len(rows) < 20 {
				t.Errorf("%s: only %d rows were tried", e.name, len(rows))
			}
			for some := range slices.Chunk(rows, 16) {
				w.pause(t, held, e, some)
			}
		}
	}
}

// pause ends rights while calls of the rows are held back.
func (w *world) pause(t *testing.T, held *pausing, e ending, rows []api.Operation) {
	t.Helper()
	p := w.a
	as, end := e.begin(t, p)
	p.Do(t, http.MethodGet, "/api/contacts?per_page=1", as) // so that the credential is known from now on
	goOn := make(chan struct{})
	held.goOn.Store(&goOn)
	var calls []pausedCall
	for n := range rows {
		op := &rows[n]
		q := w.build(op, op.Path, sampleFor(op), p.own, func(name string) bool { return name != "preview" })
		calls = append(calls, held.begin(op, func() *gatewaytest.Answer { return p.Do(t, q.method, q.target, append(q.changes, as)...) }))
	}
	time.Sleep(300 * time.Millisecond) // until the last one is held back, though an earlier one asked twice
	held.goOn.Store(nil)
	end()
	time.Sleep(1500 * time.Millisecond) // so they have taken long
	close(goOn)
	tried := 0
	for _, c := range calls {
		a := <-c.answer
		failed := a.Code != http.StatusForbidden
		if e.keeps != nil && e.keeps(c.op) {
			failed = a.Code >= 500 || a.Text() == deniedBody
		}
		if c.at == "" || c.at == "write" { // it was done before
			continue
		}
		if tried++; failed {
			t.Errorf("%s: %s: %d %.300s", e.name, c.op.Name, a.Code, a.Body)
		}
	}
	if tried < len(calls)/2 {
		t.Errorf("%s: only %d calls of %d were held back", e.name, tried, len(calls))
	}
	if e.open {
		p.setState(t, "org.resume")
	}
}

// TestS8_SlowSharedReports: a shared report that takes long is told to nobody who may not read it any more, by none of its
// doors, and where there is no organization any more the answer is that of an unknown host.
func TestS8_SlowSharedReports(t *testing.T) {
	t.Parallel()
	held := newBetween()
	w := newWorld(t, held.option)
	p := w.a
	report := "/api/custom-reports/" + p.ids[refReport]
	for i, e := range []struct {
		name      string
		end, back func()
		gone      bool // it answers as if there were no such report
	}{
		{"nothing ended", func() {}, func() {}, false},
		{"tokens revoked", func() { p.asAdmin().do(t, http.MethodDelete, report+"/shares", "", 200, "") }, func() {}, false},
		{
			"not to be shared any more", func() { p.asAdmin().do(t, http.MethodPut, report, `{"shareable":false}`, 200, "") },
			func() { p.asAdmin().do(t, http.MethodPut, report, `{"shareable":true}`, 200, "") }, true,
		},
		{"the organization suspended", func() { p.setState(t, "org.suspend") }, func() { p.setState(t, "org.resume") }, true},
	} {
		for j, door := range []string{"/api/reports/shared/", "/shared/reports/"} {
			token, _ := p.share(t, p.ids[refReport], map[string]any{})
			at := fmt.Sprintf("%s%s?data=1&token=%s&params[country]=X%d%d", door, p.ids[refPID], token, i, j)
			if j > 0 {
				at = strings.Replace(at, "data=1&", "", 1)
			}
			get := func() *gatewaytest.Answer {
				if j > 0 {
					return p.Page(t, at)
				}
				return p.Get(t, "", at)
			}
			a := held.asked(t, "find contacts", 0, get, func() {
				e.end()
				time.Sleep(700 * time.Millisecond) // so it has taken long
			})
			now := get() // as it is answered from now on
			same := a.Code == now.Code && bytes.Equal(a.Body, now.Body)
			if i > 0 && !same || i == 0 && a.Code != http.StatusOK {
				t.Errorf("%s: %s: %d %.300s, and then %d %.300s", e.name, door, a.Code, a.Body, now.Code, now.Body)
			}
			if e.gone && j == 0 && !strings.Contains(a.Text(), "Shared Report not found") || i == 1 && a.Code != http.StatusForbidden {
				t.Errorf("%s: %s: %d %.300s", e.name, door, a.Code, a.Body)
			}
			e.back()
		}
	}
}

// TestS8_UploadsByForm: a file that arrives by the form of a page ends as soon as one that a program sends.
func TestS8_UploadsByForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *config.Config, _ *gateway.Options) { c.Timeouts.Read = time.Hour })
	p := w.a
	for n, rows := 0, w.App.Operations(); n < len(rows); n++ {
		op := &rows[n]
		if op.Upload == nil {
			continue
		}
		for _, e := range personEndings() {
			var form bytes.Buffer
			parts := multipart.NewWriter(&form)
			file, err := parts.CreateFormFile("file", "all.ndjson")
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(file, `{"kind":"team","name":"North"}`+"\n")
			sent := form.Len() // to which the file has begun
			fmt.Fprint(file, strings.Repeat("\n", 10_000))
			_ = parts.Close() // a buffer takes all
			as, end := e.begin(t, p)
			h := p.hold(t, op, ask{method: http.MethodPost, target: "/do/" + op.Name, changes: []gatewaytest.Request{gatewaytest.Body(parts.FormDataContentType(), form.String())}}, as)
			send(t, h.conn, string(h.body[:sent]))
			end()
			if code, body := h.answer(t); code < 400 || code >= 500 || strings.Contains(body, "could not be read") { // though nothing more is sent
				t.Errorf("%s: %s: %d %.300s", op.Name, e.name, code, body)
			}
			if e.open {
				p.setState(t, "org.resume")
			}
		}
	}
}
