package access

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
)

// TestSlowSharedReportsEndWithTheirRight checks that a slow shared report is withheld, at each of its addresses, from a
// caller whose right ended meanwhile. A deleted organization answers like an unknown host.
func TestSlowSharedReportsEndWithTheirRight(t *testing.T) {
	t.Parallel()
	held := fixture.NewStoreGate()
	w := fixture.NewWorld(t, held.Option)
	p := w.A
	report := "/api/custom-reports/" + p.IDs[fixture.RefReport]
	for i, e := range []struct {
		name      string
		end, back func()
		gone      bool // it answers as if there were no such report
	}{
		{"nothing ended", func() {}, func() {}, false},
		{"tokens revoked", func() { asAdmin(p).Want(t, http.MethodDelete, report+"/shares", "", 200, "") }, func() {}, false},
		{
			"not to be shared any more", func() { asAdmin(p).Want(t, http.MethodPut, report, `{"shareable":false}`, 200, "") },
			func() { asAdmin(p).Want(t, http.MethodPut, report, `{"shareable":true}`, 200, "") }, true,
		},
		{"the organization suspended", func() { setState(t, p, "org.suspend") }, func() { setState(t, p, "org.resume") }, true},
	} {
		for j, door := range []string{"/api/reports/shared/", "/shared/reports/"} {
			token, _ := p.Share(t, p.IDs[fixture.RefReport], map[string]any{})
			at := fmt.Sprintf("%s%s?data=1&token=%s&params[country]=X%d%d", door, p.IDs[fixture.RefPID], token, i, j)
			if j > 0 {
				at = strings.Replace(at, "data=1&", "", 1)
			}
			get := func() *gatewaytest.Answer {
				if j > 0 {
					return p.Page(t, at)
				}
				return p.Get(t, "", at)
			}
			a := held.During(t, "find contacts", 0, get, func() {
				e.end()
				time.Sleep(700 * time.Millisecond) // so it has taken long
			})
			now := get() // as it is answered from now on
			same := a.Code == now.Code && bytes.Equal(a.Body, now.Body)
			if i > 0 && !same || i == 0 && a.Code != http.StatusOK {
				t.Errorf("%s: %s: got %d %.300s, and then %d %.300s, want 200 before the end and the same refusal after it",
					e.name, door, a.Code, a.Body, now.Code, now.Body)
			}
			if e.gone && j == 0 && !strings.Contains(a.Text(), "Shared Report not found") || i == 1 && a.Code != http.StatusForbidden {
				t.Errorf("%s: %s: got %d %.300s, want a refusal", e.name, door, a.Code, a.Body)
			}
			e.back()
		}
	}
}

// TestFormUploadsEndWithTheirRight checks that an upload by a page's form ends as soon as one by a program.
func TestFormUploadsEndWithTheirRight(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, func(c *config.Config, _ *gateway.Options) { c.Timeouts.Read = time.Hour })
	p := w.A
	for n, rows := 0, w.App.Operations(); n < len(rows); n++ {
		op := &rows[n]
		if op.Upload == nil || op.ForPrograms() {
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
			h := p.HoldBody(t, op, fixture.Call{Method: http.MethodPost, Target: "/do/" + op.Name, Changes: []gatewaytest.Request{gatewaytest.Body(parts.FormDataContentType(), form.String())}}, as)
			fixture.Send(t, h.Conn, string(h.Body[:sent]))
			end()
			if code, body := h.Answer(t); code < 400 || code >= 500 || strings.Contains(body, "could not be read") { // though nothing more is sent
				t.Errorf(`%s: got %s: %d %.300s, want code >= 400 and code < 500 and nothing containing "could not be read"`,
					op.Name, e.name, code, body)
			}
			if e.open {
				setState(t, p, "org.resume")
			}
		}
	}
}

// TestSlowPagesEndWithTheirRight checks that a slow page is withheld from a caller whose rights ended after its content
// was read.
func TestSlowPagesEndWithTheirRight(t *testing.T) {
	t.Parallel()
	held := fixture.NewStoreGate()
	now := time.Now()
	still := func(_ *config.Config, o *gateway.Options) { // so that finding never takes too long
		o.Now = func() time.Time { return now }
	}
	p := fixture.PartyOf(gatewaytest.Start(t, held.Option, still).Org(t, "acme"))
	_, p.AdminCookie = p.Person(t, "root@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	p.Import(t, `{"kind":"contact","id":"`+fixture.DocID(1)+`","email":"ada@classified.example"}`)
	nothing := personEndings()[0]
	nothing.name, nothing.begin = "nothing ended", func(t *testing.T, p *fixture.Party) (gatewaytest.Request, func()) {
		as, _ := personEndings()[0].begin(t, p)
		return as, func() {}
	}
	for i, e := range append([]ending{nothing}, personEndings()...) {
		for _, path := range []string{"/contacts", "/contacts/" + fixture.DocID(1), "/find?q=classified"} {
			as, end := e.begin(t, p)
			what := map[bool]string{true: "find roles", false: "find users"}[strings.HasPrefix(path, "/find")] // once contacts were found
			a := held.During(t, what, 0, func() *gatewaytest.Answer { return p.Page(t, path, as) }, func() {
				end()
				time.Sleep(700 * time.Millisecond) // so it has taken long
			})
			if told := strings.Contains(a.Text(), "classified.example"); told != (i == 0) || a.Code >= 500 {
				t.Errorf("%s: got %s: %d %.200s, want told = %v and a.Code < 500", e.name, path, a.Code, a.Text(), (i == 0))
			}
			if e.open {
				setState(t, p, "org.resume")
			}
		}
	}
}

// TestAuditedReadsEndWithTheirRight checks that the result of an audited call is withheld from a caller whose rights
// ended while the audit record was written.
func TestAuditedReadsEndWithTheirRight(t *testing.T) {
	t.Parallel()
	held := fixture.NewStoreGate()
	w := fixture.NewWorld(t, held.Option)
	p := w.A
	tried := 0
	for _, op := range w.App.Operations() {
		if op.Audit != operation.AuditAlways || op.Credentials == operation.Open || op.Streams != nil || op.Method != http.MethodGet && !op.Reads {
			continue
		}
		e := personEndings()[0]
		if op.Credentials&operation.Key != 0 {
			e = keyEndings()[0]
		}
		q := w.Build(&op, op.Path, fixture.SampleFor(&op), p.Own, func(name string) bool { return name != "public_key" && name != "teams[]" && name != "teams" })
		for i := range 2 {
			as, end := e.begin(t, p)
			a := held.During(t, "write audit_log", 0, func() *gatewaytest.Answer {
				return p.Do(t, q.Method, q.Target, append(q.Changes, as)...)
			}, func() {
				if i > 0 {
					end()
				}
				time.Sleep(700 * time.Millisecond) // so it has taken long
			})
			if i > 0 {
				fixture.WantDenied(t, op.Name, a)
			} else if a.Code != http.StatusOK {
				t.Errorf("%s: nothing ended: got %d %.200s, want 200", op.Name, a.Code, a.Body)
			}
		}
		tried++
	}
	if tried < 2 {
		t.Errorf("only %d rows are recorded and read, want at least 2", tried)
	}
}

// TestContentsEndWithTheirRight checks that a content is cut off soon after the rights of its reader have ended, on any
// row that answers one, however slowly it is read.
func TestContentsEndWithTheirRight(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithDemoFiles)
	p := w.A
	tried := 0
	for n, rows := 0, w.App.Operations(); n < len(rows); n++ {
		op := &rows[n]
		if op.Content == nil || op.Credentials&(operation.Key|operation.Session) == 0 {
			continue
		}
		p.EnlargeContent(t, op)
		var endings []ending
		if op.Credentials&operation.Key != 0 {
			endings = keyEndings()
		}
		if op.Credentials&operation.Session != 0 {
			endings = append(endings, personEndings()...)
		}
		q := w.Build(op, op.Path, fixture.SampleFor(op), p.Own, func(name string) bool { return name != "teams[]" && name != "teams" })
		for i, e := range append([]ending{endings[0]}, endings...) {
			if i > 0 && e.keeps != nil && e.keeps(op) && !strings.Contains(e.name, "limited") { // what is limited to teams is narrowed
				continue
			}
			as, end := e.begin(t, p)
			resp, size := readHead(t, p, q, as)
			if resp.StatusCode != http.StatusOK || size < 32<<20 {
				t.Fatalf("%s: got %d and a content of %d bytes, want 200 and at least 32 MiB", op.Name, resp.StatusCode, size)
			}
			if i > 0 {
				end()
				time.Sleep(700 * time.Millisecond) // the access was confirmed at most half a second ago
			}
			got, err := io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close() // it was read as far as it goes
			if whole := err == nil && got == size; whole != (i == 0) {
				t.Errorf("%s: %s: got %d of %d bytes, %v, want all of them = %t", op.Name, e.name, got, size, err, i == 0)
			}
			if i > 0 && e.open {
				setState(t, p, "org.resume")
			}
			tried++
		}
	}
	if tried < 8 {
		t.Errorf("only %d contents were tried, want at least 8", tried)
	}
}

// readHead makes a call over a connection of its own and reads the head of the answer.
func readHead(t *testing.T, p *fixture.Party, q fixture.Call, as gatewaytest.Request) (resp *http.Response, size int64) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), q.Method, "http://"+p.Host+q.Target, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	as(r)
	conn := fixture.Dial(t, p.App.Addr())
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	if resp, err = http.ReadResponse(bufio.NewReader(conn), r); err != nil {
		t.Fatal(err)
	}
	return resp, resp.ContentLength
}
