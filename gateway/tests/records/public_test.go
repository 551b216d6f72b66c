package records

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/rate"
	"tenantry/tenants"
)

const publicPID = "public-form-0123456789"

// publicForm is a form that is open to everybody.
type publicForm struct {
	*gatewaytest.Org
	full, id, path string
}

const publicFields = `{"why":{"title":"Why","type":"LongText","required":true},"when":{"title":"When","type":"Date"},` +
	`"seats":{"title":"Seats","type":"Number"},"iban":{"title":"IBAN","type":"Encrypted"},"sure":{"title":"Sure","type":"Boolean"},` +
	`"paper":{"title":"Paper","type":"File","accept":["text/plain"],"max_files":2}}`

func newPublicForm(t *testing.T, settings string, options ...gatewaytest.Option) *publicForm {
	t.Helper()
	g := gatewaytest.Start(t, options...)
	p := &publicForm{Org: g.Org(t, "acme"), path: "/f/" + publicPID}
	p.full = p.Key(t, tenants.AllPermissions()...)
	a := fixture.PostJSON(t, p.Org, p.full, "/api/form/collections",
		`{"name":"visit","label":"Visit","label_plural":"Visits","pid":"`+publicPID+`","public":true,"schema":`+publicFields+settings+`}`)
	if a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want a form", a.Code, a.Body)
	}
	p.id = a.Field("id").(string)
	return p
}

// visitors is the limit of visitors, whose addresses a proxy tells.
func visitors(t *testing.T, text string) gatewaytest.Option {
	t.Helper()
	limit, err := rate.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *config.Config, _ *gateway.Options) {
		cfg.TrustedProxies, cfg.Limits.Visitor = []string{"127.0.0.1"}, limit
	}
}

func (p *publicForm) post(t *testing.T, body string, more ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	return p.Do(t, http.MethodPost, p.path, append([]gatewaytest.Request{gatewaytest.Body("application/json", body)}, more...)...)
}

// send sends what the page would.
func (p *publicForm) send(t *testing.T, values url.Values, more ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	return p.sendForm(t, append([]gatewaytest.Request{gatewaytest.Body("application/x-www-form-urlencoded", values.Encode())}, more...)...)
}

// sendForm posts to the page of the form.
func (p *publicForm) sendForm(t *testing.T, more ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	return p.Gateway.Page(t, http.MethodPost, p.Host, p.path, more...)
}

// set changes the settings of the public form.
func (p *publicForm) set(t *testing.T, settings string) *gatewaytest.Answer {
	t.Helper()
	return p.Do(t, http.MethodPut, "/api/form/collections/"+p.id+"/public", gatewaytest.WithKey(p.full), fixture.JSONText(settings))
}

// define changes the fields of the form.
func (p *publicForm) define(t *testing.T, fields string) *gatewaytest.Answer {
	t.Helper()
	return p.Do(t, http.MethodPut, "/api/form/collections/"+p.id, gatewaytest.WithKey(p.full), fixture.JSONText(`{"schema":`+fields+`}`))
}

func (p *publicForm) stored(t *testing.T) []any {
	t.Helper()
	list, _ := p.Get(t, p.full, "/api/form/collections/"+p.id+"/submissions?sort=created_at").Field("results").([]any)
	return list
}

func (p *publicForm) wantStored(t *testing.T, what string, want int) {
	t.Helper()
	if got := p.stored(t); len(got) != want {
		t.Errorf("%s: %d submissions are stored, want %d: %v", what, len(got), want, got)
	}
}

var onceOf = regexp.MustCompile(`name="_once" value="([A-Z0-9]+)"`)

// TestPublicFormTakesSubmissions: everybody reads a public form, as JSON and as a page, and sends a submission, which is
// stored with its name, encrypted values and an audit record.
func TestPublicFormTakesSubmissions(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, `,"thanks":"Come again."`)
	a := p.Get(t, "", p.path)
	if text := a.Text(); a.Code != http.StatusOK || a.Field("title") != "Visit" || strings.Contains(text, "form_name") || strings.Contains(text, p.id) {
		t.Errorf("got %d %s, want the form without form_name and its identifier", a.Code, text)
	}
	page := p.Page(t, p.path, gatewaytest.Header("Accept", "text/html,application/xhtml+xml"))
	for _, part := range []string{`name="values.why"`, `type="date"`, `type="file"`, `enctype="multipart/form-data"`, "<h1 dir=\"auto\">Visit</h1>"} {
		if !strings.Contains(page.Text(), part) {
			t.Errorf("got %d %s, want it to have %s", page.Code, page.Text(), part)
		}
	}
	if p.Page(t, p.path, gatewaytest.Header("Accept", "text/html")).Header.Get("Set-Cookie") != "" {
		t.Error("got a cookie, want none")
	}
	fixture.WantBody(t, p.post(t, `{"values":{"why":"to see","iban":"DE12canary","seats":2}}`), http.StatusOK,
		fixture.EnvelopeOK("Submission received", `{"thanks":"Come again.","thanks_url":""}`))
	stray := p.send(t, url.Values{"why": {"to look"}, "values.bogus": {"x"}})
	if stray.Code != http.StatusUnprocessableEntity || !strings.Contains(stray.Text(), "bogus") || !strings.Contains(stray.Text(), "to look") {
		t.Errorf("got %d %s, want the page with what was typed and a refusal of bogus", stray.Code, stray.Text())
	}
	p.wantStored(t, "a value of no field", 1)
	sent := p.send(t, url.Values{"_once": {onceOf.FindStringSubmatch(page.Text())[1]}, "values.why": {"to\r\nrest"}, "values.when": {"2026-05-01"}, "values.sure": {"true"}, "values.seats": {"3"}})
	if sent.Code != http.StatusOK || !strings.Contains(sent.Text(), "Come again.") {
		t.Errorf("got %d %s, want the thanks", sent.Code, sent.Text())
	}
	list := p.stored(t)
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`{"form_name":"Visit","seats":2,"why":"to see"}`, `{"form_name":"Visit","seats":3,"sure":true,"when":"2026-05-01","why":"to\nrest"}`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("got %s, want %s", text, part)
		}
	}
	if strings.Contains(string(text), "canary") {
		t.Errorf("got %s, want the encrypted value sealed", text)
	}
	records := 0
	for _, r := range fixture.AuditRecords(t, p.Org, 100) {
		if r.Operation == "forms.fill" && r.Subject == "anonymous" && r.Outcome == "ok" && r.Facts["form_collection"] == p.id && r.Facts["submission"] != "" {
			records++
		}
	}
	if records != 2 {
		t.Errorf("%d audit records of submissions, want 2", records)
	}
}

// TestPublicFormRefusesLikeOthers: the same values are refused as in other submissions, and the page shows what was
// typed with its faults.
func TestPublicFormRefusesLikeOthers(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, "")
	fixture.WantFaults(t, p.post(t, `{"values":{"when":"tomorrow","seats":"x"}}`), http.StatusUnprocessableEntity,
		"values.seats type", "values.when format", "values.why required")
	fixture.WantFaults(t, p.post(t, `{"values":{"why":"x","form_name":"Other"}}`), http.StatusUnprocessableEntity, "values.form_name forbidden")
	fixture.WantFaults(t, p.post(t, `{"values":{"why":"x","nothing":1}}`), http.StatusUnprocessableEntity, "values.nothing unknown")
	fixture.WantFaults(t, p.post(t, `{"values":{"why":"x"},"form":"`+fixture.DocID(9)+`"}`), http.StatusUnprocessableEntity, "form unknown")
	fixture.WantFaults(t, p.post(t, `{"values":{"why":"x","paper":["`+fixture.DocID(9)+`"]}}`), http.StatusUnprocessableEntity, "values.paper forbidden")
	for _, body := range []string{`{"values":[]}`, `{"values":"x"}`, `{}`, `{"values":null}`} {
		if a := p.post(t, body); a.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: got %d %s, want 422", body, a.Code, a.Body)
		}
	}
	a := p.send(t, url.Values{"values.when": {"tomorrow"}, "values.iban": {"<script>"}, "values.seats": {"7"}})
	text := a.Text()
	for _, part := range []string{"Why is required.", "&lt;script&gt;", `value="7"`, `href="#forms-fill-values-why"`, `value="tomorrow"`} {
		if a.Code != http.StatusUnprocessableEntity || !strings.Contains(text, part) {
			t.Errorf("got %d %s, want 422 and %s", a.Code, text, part)
		}
	}
	p.wantStored(t, "refused", 0)
}

// TestOtherFormsAreNotPublic: an unknown form, one that is not public, one in the trash, one of another organization and
// one of a suspended organization have the same answers, as JSON and as pages.
func TestOtherFormsAreNotPublic(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, "")
	other := p.Gateway.Org(t, "other")
	make := func(o *gatewaytest.Org, name, settings string) string {
		a := fixture.PostJSON(t, o, o.Key(t, tenants.AllPermissions()...), "/api/form/collections", fmt.Sprintf(`{"name":%[1]q,"label":%[1]q,"label_plural":%[1]q%[2]s}`, name, settings))
		if a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want a form", a.Code, a.Body)
		}
		return a.Field("id").(string)
	}
	make(p.Org, "closed", `,"pid":"closed-form-0123456789"`)
	trashed := make(p.Org, "trashed", `,"pid":"trashed-form-0123456789","public":true`)
	p.Do(t, http.MethodDelete, "/api/form/collections/"+trashed, gatewaytest.WithKey(p.full))
	make(other, "foreign", `,"pid":"foreign-form-0123456789","public":true`)
	if a := other.Do(t, http.MethodGet, "/f/foreign-form-0123456789"); a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want the other's form", a.Code, a.Body)
	}
	gone := p.Gateway.Org(t, "gone")
	make(gone, "left", `,"pid":"left-form-0123456789","public":true`)
	if err := p.Gateway.App.Directory().Suspend(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	type at struct{ host, pid string }
	for what, at := range map[string]at{
		"not public": {p.Host, "closed-form-0123456789"}, "in the trash": {p.Host, "trashed-form-0123456789"}, "foreign": {p.Host, "foreign-form-0123456789"},
		"an id": {p.Host, p.id}, "short": {p.Host, "x"}, "long": {p.Host, strings.Repeat("x", 500)}, "odd": {p.Host, "%00%2F..%f0%9f%98%80aaaaaaaaaa"},
		"suspended": {gone.Host, "left-form-0123456789"}, "of nobody": {"nobody.localhost", publicPID},
	} {
		for _, call := range []struct {
			method, more string
			with         []gatewaytest.Request
		}{
			{http.MethodGet, "", nil}, {http.MethodGet, "/challenge", nil},
			{http.MethodPost, "", []gatewaytest.Request{fixture.JSONText(`{"values":{"why":"x"}}`)}},
			{http.MethodPost, "/files?field=paper&filename=a.txt", []gatewaytest.Request{gatewaytest.Body("text/plain", "a")}},
			{http.MethodGet, "", []gatewaytest.Request{gatewaytest.Header("Accept", "text/html")}},
			{http.MethodPost, "", []gatewaytest.Request{gatewaytest.Body("application/x-www-form-urlencoded", "values.why=x")}},
		} {
			told := func(host, pid string) string {
				a := p.Gateway.As(t, call.method, host, "/f/"+pid+call.more, call.with...)
				return fmt.Sprint(a.Code, a.Header.Get("Content-Type"), a.Header.Get("Content-Security-Policy"), a.Header.Get("Access-Control-Allow-Origin"), a.Text())
			}
			if got, want := told(at.host, at.pid), told(p.Host, "unknown-form-0123456789"); got != want || !strings.HasPrefix(got, "404") {
				t.Errorf("%s, %s %s:\n%s\nwant as for an unknown form:\n%s", what, call.method, call.more, got, want)
			}
		}
	}
	if a := p.set(t, `{"public":false}`); a.Code != http.StatusOK || a.Field("public_url") != "" {
		t.Errorf("got %d %s, want no address", a.Code, a.Body)
	}
	fixture.WantFailure(t, p.post(t, `{"values":{"why":"x"}}`), http.StatusNotFound)
}

// TestPublicFormClosesMeanwhile: a form that is closed while a submission or a file is under way takes neither, and one
// that is changed takes it by its new fields.
func TestPublicFormClosesMeanwhile(t *testing.T) {
	t.Parallel()
	gate := fixture.NewStoreGate()
	p := newPublicForm(t, "", gate.Option)
	send := func() *gatewaytest.Answer { return p.post(t, `{"values":{"why":"x"}}`) }
	for skip := range int64(2) { // where the form is looked up, and where its fields are
		change := func(set func(*testing.T, string) *gatewaytest.Answer, settings string) func() {
			return func() {
				if a := set(t, settings); a.Code != http.StatusOK {
					t.Errorf("got %d %s, want 200", a.Code, a.Body)
				}
			}
		}
		fixture.WantFailure(t, gate.During(t, "find form_collections", skip, send, change(p.set, `{"public":false}`)), http.StatusNotFound)
		change(p.set, `{"public":true}`)()
		if a := gate.During(t, "find form_collections", skip, send, change(p.set, `{"thanks":"Again `+fmt.Sprint(skip)+`"}`)); a.Code != http.StatusOK || !strings.Contains(a.Text(), "Again") {
			t.Errorf("got %d %s, want 200 and the new thanks", a.Code, a.Body)
		}
		fixture.WantFaults(t, gate.During(t, "find form_collections", skip, send, change(p.define, `{"paper":{"title":"Paper","type":"File"}}`)), http.StatusUnprocessableEntity, "values.why unknown")
		change(p.define, publicFields)()
	}
	p.wantStored(t, "while the form changed", 2)

	upload := func() *gatewaytest.Answer {
		return p.Do(t, http.MethodPost, p.path+"/files?field=paper&filename=a.txt", gatewaytest.Body("text/plain", "a"))
	}
	closed := gate.During(t, "find form_collections", 1, upload, func() { p.set(t, `{"public":false}`) })
	fixture.WantFailure(t, closed, http.StatusNotFound)
}

// TestPublicFormHidesFolders: visitors do not learn where files are laid, which lie there all the same.
func TestPublicFormHidesFolders(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, "")
	p.Import(t, fixture.FolderLine(9, "Open", "", ""))
	if a := p.define(t, `{"paper":{"title":"Paper","type":"File","folder_id":"`+fixture.DocID(9)+`"}}`); a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want the folder", a.Code, a.Body)
	}
	for _, accept := range []string{"application/json", "text/html"} {
		if a := p.Gateway.As(t, http.MethodGet, p.Host, p.path, gatewaytest.Header("Accept", accept)); a.Code != http.StatusOK || strings.Contains(a.Text(), fixture.DocID(9)) {
			t.Errorf("got %d %s, want no folder", a.Code, a.Text())
		}
	}
	token := p.Do(t, http.MethodPost, p.path+"/files?field=paper&filename=a.txt", gatewaytest.Body("text/plain", "a")).Field("token")
	if a := p.post(t, fmt.Sprintf(`{"values":{"paper":%q}}`, token)); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.Code, a.Body)
	}
	if a := p.Get(t, p.full, "/api/files?filters[folder_id]="+fixture.DocID(9)); fmt.Sprint(a.Field("count")) != "1" {
		t.Errorf("got %s, want the file in the folder", a.Body)
	}
}

// TestPublicFormOrigins: pages of listed origins read the form and send submissions, others do not; browsers hear from
// the preflight which methods there are. The page may be shown in frames of listed origins alone.
func TestPublicFormOrigins(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, `,"origins":["https://WWW.example.com "],"frame_origins":["https://frame.example.com"]`)
	header := gatewaytest.Header
	const listed, body = "https://www.example.com", `{"values":{"why":"x"}}`
	cross := header("Sec-Fetch-Site", "cross-site")
	for origin, code := range map[string]int{listed: 200, "https://evil.example": 403, "null": 403, "https://www.example.com.evil.example": 403, "http://www.example.com": 403, "https://frame.example.com": 403} {
		a := p.post(t, body, header("Origin", origin), cross)
		allowed := a.Header.Get("Access-Control-Allow-Origin")
		if a.Code != code || (allowed == origin) != (code == 200) || code != 200 && allowed != "" || a.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: got %d %s, readable by %q, want %d", origin, a.Code, a.Body, allowed, code)
		}
		read := p.Get(t, "", p.path, header("Origin", origin), cross)
		if allowed := read.Header.Get("Access-Control-Allow-Origin"); read.Code != 200 || (allowed == listed) != (code == 200) {
			t.Errorf("%s: got %d, readable by %q", origin, read.Code, allowed)
		}
		if upload := p.Do(t, http.MethodPost, p.path+"/files?field=paper&filename=a.txt", gatewaytest.Body("text/plain", "a"), header("Origin", origin), cross); upload.Code != code {
			t.Errorf("a file from %s: got %d %s, want %d", origin, upload.Code, upload.Body, code)
		}
		page := p.send(t, url.Values{"values.why": {"y"}}, header("Origin", origin), cross)
		if page.Code != code {
			t.Errorf("a page of %s: got %d %s, want %d", origin, page.Code, page.Text(), code)
		}
	}
	if a := p.post(t, body, cross); a.Code != http.StatusForbidden {
		t.Errorf("another site without a name: got %d %s, want 403", a.Code, a.Body)
	}
	for _, own := range [][]gatewaytest.Request{{header("Sec-Fetch-Site", "same-origin"), header("Origin", "null")}, {header("Origin", "http://"+p.Host)}} {
		if a := p.send(t, url.Values{"values.why": {"own"}}, own...); a.Code != http.StatusOK {
			t.Errorf("its own page: got %d %s, want 200", a.Code, a.Text())
		}
	}
	p.wantStored(t, "from listed origins", 4)
	preflight := p.Do(t, http.MethodOptions, p.path, header("Origin", listed), header("Access-Control-Request-Method", "POST"), header("Access-Control-Request-Headers", "content-type"))
	if preflight.Code != http.StatusNoContent || preflight.Header.Get("Access-Control-Allow-Methods") != "GET, POST" {
		t.Errorf("got %d %v, want GET and POST", preflight.Code, preflight.Header)
	}
	page := p.Page(t, p.path, header("Accept", "text/html"))
	h := page.Header
	policy := h.Get("Content-Security-Policy")
	if !strings.HasSuffix(policy, "frame-ancestors https://frame.example.com") || !strings.Contains(policy, "form-action 'self';") || h.Get("X-Content-Type-Options") != "nosniff" ||
		h.Get("Referrer-Policy") != "same-origin" || h.Get("Cache-Control") != "no-store" || h.Get("X-Frame-Options") != "" || strings.Contains(page.Text(), listed) {
		t.Errorf("got %v, want the frames of the form", h)
	}
	p.set(t, `{"frame_origins":[],"thanks_url":"https://www.example.com:8443/thanks?a=b#c"}`)
	if policy := p.Page(t, p.path, header("Accept", "text/html")).Header.Get("Content-Security-Policy"); !strings.HasSuffix(policy, "frame-ancestors 'none'") || !strings.Contains(policy, "form-action 'self' https://www.example.com:8443;") {
		t.Errorf("got %s, want no frames, and the origin of the thanks", policy)
	}
}

// TestPublicFormSendsVisitorsOn: a form with an address for thanks sends visitors there, whatever they send.
func TestPublicFormSendsVisitorsOn(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, `,"thanks_url":"https://www.example.com/thanks"`)
	for _, name := range []string{"thanks_url", "next", "values.thanks_url"} {
		a := p.send(t, url.Values{"values.why": {"x"}, name: {"https://evil.example"}})
		if a.Code != http.StatusUnprocessableEntity || a.Header.Get("Location") != "" {
			t.Errorf("%s: got %d %v, want a refusal", name, a.Code, a.Header)
		}
	}
	a := p.send(t, url.Values{"values.why": {"x"}, "_next": {"https://evil.example"}})
	if a.Code != http.StatusSeeOther || a.Header.Get("Location") != "https://www.example.com/thanks" {
		t.Errorf("got %d %v, want the address of the form", a.Code, a.Header)
	}
	fixture.WantBody(t, p.post(t, `{"values":{"why":"x"}}`), http.StatusOK, fixture.EnvelopeOK("Submission received", `{"thanks":"","thanks_url":"https://www.example.com/thanks"}`))
}

// TestPublicFormIsSentOnce: what is sent twice at once is stored once, with proof of work or without, and what differs is
// stored.
func TestPublicFormIsSentOnce(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, `,"proof_of_work":4`, visitors(t, "1000/s"))
	twice := func(send func() *gatewaytest.Answer) {
		t.Helper()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if a := send(); a.Code != http.StatusOK {
					t.Errorf("got %d %s, want 200", a.Code, a.Text())
				}
			})
		}
		all.Wait()
	}
	proof, key := p.prove(t), gatewaytest.Header("Idempotency-Key", "click-1")
	twice(func() *gatewaytest.Answer { return p.post(t, `{"values":{"why":"json"}}`, key, proof) })
	p.wantStored(t, "JSON, four times", 1)
	sum := p.proof(t)
	page := url.Values{"_once": {onceOf.FindStringSubmatch(p.Page(t, p.path, gatewaytest.Header("Accept", "text/html")).Text())[1]}, "values.why": {"page"}, "_proof": {sum}}
	twice(func() *gatewaytest.Answer { return p.send(t, page) })
	p.wantStored(t, "a page, four times", 2)
	if a := p.post(t, `{"values":{"why":"json"}}`, key, p.prove(t), gatewaytest.Header("X-Forwarded-For", "192.0.2.7")); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.Code, a.Body)
	}
	p.wantStored(t, "from another address", 3)
	if a := p.post(t, `{"values":{"why":"json"}}`, key, p.prove(t)); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.Code, a.Body)
	}
	p.wantStored(t, "with another proof", 3)
	if a := p.post(t, `{"values":{"why":"other"}}`, key, p.prove(t)); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.Code, a.Body)
	}
	p.wantStored(t, "other values", 4)
	fixture.WantFaults(t, p.post(t, `{"values":{"why":"replayed"}}`, key, proof), http.StatusUnprocessableEntity, "proof duplicate")
	fixture.WantFaults(t, p.post(t, `{"values":{"why":"replayed"}}`, proof), http.StatusUnprocessableEntity, "proof duplicate")
	fixture.WantFaults(t, p.post(t, `{"values":{"why":"x"}}`), http.StatusUnprocessableEntity, "proof required")
	if a := p.send(t, url.Values{"values.why": {"x"}}); a.Code != http.StatusUnprocessableEntity || !strings.Contains(a.Text(), "Allow scripts") {
		t.Errorf("got %d %s, want the advice", a.Code, a.Text())
	}
	p.wantStored(t, "without work", 4)
}

// proof does the work of a submission.
func (p *publicForm) proof(t *testing.T) string {
	t.Helper()
	a := p.Get(t, "", p.path+"/challenge")
	for n := 0; ; n++ {
		proof := fmt.Sprintf("%s:%d", a.Field("challenge"), n)
		if sum := sha256.Sum256([]byte(proof)); sum[0] < 16 {
			return proof
		}
	}
}

func (p *publicForm) prove(t *testing.T) gatewaytest.Request {
	t.Helper()
	proof := p.proof(t)
	return func(r *http.Request) { r.URL.RawQuery = url.Values{"proof": {proof}}.Encode() }
}

// TestPublicChallengesAreForVisitors: a challenge of a public form is worth nothing to a browser key, nor the other way
// round, nor for another form.
func TestPublicChallengesAreForVisitors(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, `,"proof_of_work":4`)
	b := *p
	a := fixture.PostJSON(t, p.Org, p.full, "/api/form/collections", `{"name":"b","label":"B","label_plural":"B","public":true,"pid":"another-form-0123456789","proof_of_work":4,"schema":`+publicFields+`}`)
	if b.path = "/f/another-form-0123456789"; a.Code != http.StatusOK {
		t.Fatalf("got %d %s", a.Code, a.Body)
	}
	fixture.WantFaults(t, b.post(t, `{"values":{"why":"x"}}`, p.prove(t)), http.StatusUnprocessableEntity, "proof format")
	key := (&filesPage{Org: p.Org}).pageKey(t, 4)
	c := fixture.PostJSON(t, p.Org, key, "/api/form/collections/"+p.id+"/submissions", `{"values":{"form_name":"x","why":"x"}}`, p.prove(t), from(key))
	fixture.WantFaults(t, c, http.StatusUnprocessableEntity, "proof format")
}

// TestPublicFormTrap: a program that fills in the hidden field is answered as if its submission were stored.
func TestPublicFormTrap(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, `,"thanks":"Come again."`)
	honest := p.post(t, `{"values":{"why":"x"}}`).Text()
	trapped := p.Do(t, http.MethodPost, p.path+"?honeypot=x", fixture.JSONText(`{"values":{"why":"x"}}`)).Text()
	if honest != trapped {
		t.Errorf("got %s, want %s", trapped, honest)
	}
	page := func(trap string) string { return p.send(t, url.Values{"values.why": {"x"}, "_website": {trap}}).Text() }
	if trapped, honest := page("https://spam.example"), page(""); trapped != honest || !strings.Contains(honest, "Come again.") {
		t.Errorf("got %s, want %s", trapped, honest)
	}
	p.wantStored(t, "trapped", 2)
}

// TestPublicFormVisitorsAreLimited: the limit of visitors of the organization applies to each address, and to public
// forms that exist alone.
func TestPublicFormVisitorsAreLimited(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, "", visitors(t, "3/h"))
	from := func(address string) gatewaytest.Request { return gatewaytest.Header("X-Forwarded-For", address) }
	codes := func(address string) (codes []int) {
		for range 5 {
			codes = append(codes, p.post(t, `{"values":{"why":"x"}}`, from(address)).Code)
		}
		return codes
	}
	want := []int{200, 200, 200, 429, 429}
	for _, address := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"} {
		if got := codes(address); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", address, got, want)
		}
	}
	page := p.send(t, url.Values{"values.why": {"x"}}, from("192.0.2.1"))
	if page.Code != http.StatusTooManyRequests || !strings.Contains(page.Text(), "Nothing was saved") || page.Header.Get("Retry-After") == "" {
		t.Errorf("got %d %s, want 429", page.Code, page.Text())
	}
	if a := p.Get(t, "", p.path, from("192.0.2.1")); a.Code != http.StatusOK {
		t.Errorf("reading: got %d %s, want 200", a.Code, a.Body)
	}
	p.wantStored(t, "within the limit", 9)
}

// part adds a file to a form.
func part(t *testing.T, w *multipart.Writer, name, filename, media, content string) {
	t.Helper()
	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", fmt.Sprintf(`form-data; name=%q; filename=%q`, name, filename))
	h.Set("Content-Type", media)
	p, err := w.CreatePart(h)
	if err == nil {
		_, err = p.Write([]byte(content))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPublicFormTakesFiles: a page without scripts sends files with the form; they are stored with the submission, or
// kept while other values are corrected.
func TestPublicFormTakesFiles(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, "")
	send := func(values url.Values, files ...[3]string) *gatewaytest.Answer {
		t.Helper()
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		for name, all := range values {
			for _, value := range all {
				_ = w.WriteField(name, value)
			}
		}
		for _, f := range files {
			part(t, w, "values.paper", f[0], f[1], f[2])
		}
		_ = w.Close()
		return p.sendForm(t, gatewaytest.Body(w.FormDataContentType(), body.String()))
	}
	files := func() string { return fmt.Sprint(p.Get(t, p.full, "/api/files").Field("count")) }
	if a := send(url.Values{"values.why": {"x"}}, [3]string{"a.txt", "text/plain", "hello"}, [3]string{"b.txt", "text/plain", "there"}, [3]string{"", "application/octet-stream", ""}); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.Code, a.Text())
	}
	if got := files(); got != "2" {
		t.Errorf("%s files, want 2", got)
	}
	wrong := send(url.Values{"values.why": {"x"}}, [3]string{"a.png", "image/png", png})
	if wrong.Code != http.StatusUnprocessableEntity || !strings.Contains(wrong.Text(), "takes text/plain") {
		t.Errorf("got %d %s, want the type refused", wrong.Code, wrong.Text())
	}
	again := send(url.Values{"values.when": {"never"}}, [3]string{`a".txt`, "text/plain", "kept"})
	kept := regexp.MustCompile(`name="_kept" value="([^"]+)"`).FindStringSubmatch(again.Text())
	if again.Code != http.StatusUnprocessableEntity || kept == nil {
		t.Fatalf("got %d %s, want the file kept", again.Code, again.Text())
	}
	held := strings.ReplaceAll(kept[1], "&#34;", `"`)
	if a := send(url.Values{"values.why": {"x"}, "_kept": {held}}); a.Code != http.StatusOK || files() != "3" {
		t.Errorf("got %d %s and %s files, want 200 and 3", a.Code, a.Text(), files())
	}
	if a := send(url.Values{"values.why": {"x"}, "_kept": {held}}); a.Code != http.StatusUnprocessableEntity || strings.Contains(a.Text(), `name="_kept"`) {
		t.Errorf("a token twice: got %d %s, want 422", a.Code, a.Text())
	}
	if a := send(url.Values{"values.why": {strings.Repeat("x", 70<<10)}}); a.Code != http.StatusBadRequest {
		t.Errorf("got %d, want 400 for a long form", a.Code)
	}
	p.wantStored(t, "with files", 2)
}

// TestPublicFormWaitsForItsFiles: a page with more files than its visitor may send at once is stored all the same.
func TestPublicFormWaitsForItsFiles(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, "", visitors(t, "2/s"))
	p.define(t, `{"paper":{"title":"Paper","type":"File","max_files":5}}`)
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i := range 5 {
		part(t, w, "values.paper", fmt.Sprint(i, ".txt"), "text/plain", fmt.Sprint("file ", i))
	}
	_ = w.Close()
	if a := p.sendForm(t, gatewaytest.Body(w.FormDataContentType(), body.String())); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.Code, a.Text())
	}
	if got := fmt.Sprint(p.Get(t, p.full, "/api/files").Field("count")); got != "5" {
		t.Errorf("%s files, want 5", got)
	}
}

// TestPublicFormFlood: a flood of hostile requests from many addresses is refused, stores no more than the limits allow,
// and keeps nobody of the organization waiting.
func TestPublicFormFlood(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, "", visitors(t, "2/h"))
	const addresses, each = 20, 12
	bodies := []string{
		`{"values":{"why":"x"}}`, `{"values":{"why":` + strings.Repeat(`[`, 40) + strings.Repeat(`]`, 40) + `}}`, `{"values":{"why":"\u0000"}}`, `{"values":{"$where":"1","why":{"$gt":""}}}`,
		`{"values":{"why":"` + strings.Repeat("x", 300<<10) + `"}}`, `{"values":{"why":"x","why":"y"}}`, `{"values":{"__proto__":{},"constructor":1}}`, `not JSON`, `{"values":{"seats":1e999,"why":"x"}}`,
		`{"values":{"why":"x","form_name":{"a":1}}}`, `{"values":{"why":"\ud800"}}`, `{"values":{"why":"x","secrets":{"iban":"x"}},"secrets":{"iban":"x"},"once":"x","deleted":true}`,
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for n := range addresses {
		all.Go(func() {
			from := gatewaytest.Header("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", n))
			for i := range each {
				a := p.post(t, bodies[(n+i)%len(bodies)], from)
				page := p.send(t, url.Values{"values.why": {strings.Repeat("y", i<<10)}, "_proof": {bodies[i]}, "_kept": {"paper|att_x|<b>"}, "_once": {"x"}, "values.nothing": {"z"}}, from)
				mu.Lock()
				codes[a.Code]++
				codes[page.Code]++
				mu.Unlock()
			}
		})
	}
	slowest := time.Duration(0)
	for range 20 {
		began := time.Now()
		if a := p.Get(t, p.full, "/api/form/collections"); a.Code != http.StatusOK {
			t.Errorf("the organization: got %d %s, want 200", a.Code, a.Body)
		}
		slowest = max(slowest, time.Since(began))
	}
	all.Wait()
	t.Logf("codes %v, slowest call of the organization %s", codes, slowest)
	for code := range codes {
		if !slices.Contains([]int{200, 400, 413, 422, 429}, code) {
			t.Errorf("got %d answers with %d, want refusals", codes[code], code)
		}
	}
	if got := len(p.stored(t)); got > 2*addresses || got != codes[http.StatusOK] {
		t.Errorf("%d submissions are stored, want at most %d, and as many as were answered: %v", got, 2*addresses, codes)
	}
	if codes[http.StatusTooManyRequests] == 0 {
		t.Errorf("got %v, want some over the limit", codes)
	}
}
