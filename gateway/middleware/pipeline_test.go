package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tenantry/backends/store"
	"tenantry/gateway/middleware"
	"tenantry/modules/audit"
	"tenantry/operation"
	"tenantry/tenants"
)

func TestProblem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rec := httptest.NewRecorder()
	w.Problem("no_route", rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/zzz", nil),
		&operation.Problem{Code: 503, Message: "a <b> & c", RetryAfter: 1500 * time.Millisecond, Header: map[string]string{"Allow": "GET"}})
	if want := `{"status":"failed","message":"a <b> & c","data":[]}`; rec.Code != 503 || rec.Body.String() != want {
		t.Errorf("got %d %s, want 503 and rec.Body.String() = %v", rec.Code, rec.Body, want)
	}
	for name, value := range map[string]string{
		"Retry-After": "2", "Allow": "GET", "Content-Type": "application/json; charset=utf-8", "Cache-Control": "private, no-store",
		"X-Content-Type-Options": "nosniff",
	} {
		if got := rec.Header().Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
	if rec.Header().Get("X-Request-Id") == "" {
		t.Errorf("headers %v", rec.Header())
	}
}

func TestAnswerThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rec := w.serve(t, row(func(o *operation.Row) {
		o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
			return operation.Result{Data: make(chan int)}, nil
		}
	}), nil)
	if rec.Code != 500 || rec.Body.String() != internalError {
		t.Errorf("got %d %s, want 500 and rec.Body.String() = %v", rec.Code, rec.Body, internalError)
	}
	rec = w.serve(t, row(func(o *operation.Row) {
		o.Handler = func(_ context.Context, c *operation.Call) (operation.Result, error) {
			c.Header.Set("Cache-Control", "no-store")
			return operation.Result{}, nil
		}
	}), nil)
	if got := rec.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control of an operation = %q, want no-store", got)
	}
}

func TestPanicIsAnEnvelopeAndTheProcessLives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, handler := range map[string]operation.Handler{
		"text": func(context.Context, *operation.Call) (operation.Result, error) { panic("secret-detail") },
		"nil map": func(context.Context, *operation.Call) (operation.Result, error) {
			var m map[string]int
			m["a"] = 1 //nolint:staticcheck // the fault is the point
			return operation.Result{}, nil
		},
		"out of reach": func(_ context.Context, c *operation.Call) (operation.Result, error) {
			return operation.Result{}, errors.New(c.Ignored()[5])
		},
	} {
		rec := w.serve(t, row(func(o *operation.Row) { o.Handler = handler }), nil)
		if rec.Code != http.StatusInternalServerError || rec.Body.String() != internalError {
			t.Errorf("%s: got %d %s, want %v and rec.Body.String() = %v",
				name, rec.Code, rec.Body, http.StatusInternalServerError, internalError)
		}
	}
	if rec := w.serve(t, row(nil), nil); rec.Code != http.StatusOK {
		t.Errorf("afterwards: %d", rec.Code)
	}
	if log := w.log.String(); !strings.Contains(log, "secret-detail") || !strings.Contains(log, "pipeline_test.go") {
		t.Error("the log lacks the cause or the stack")
	}
}

func TestAbortedHandlerIsLeftToTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	defer func() {
		if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // a sentinel by contract of net/http
			t.Errorf("recovered %v", cause)
		}
	}()
	w.serve(t, row(func(o *operation.Row) {
		o.Handler = func(context.Context, *operation.Call) (operation.Result, error) { panic(http.ErrAbortHandler) }
	}), nil)
}

type panicsAsJSON struct{}

func (panicsAsJSON) MarshalJSON() ([]byte, error) { panic("while writing") }

// TestPanicWhileAnswering: a panic after the handler is answered with an envelope, too.
func TestPanicWhileAnswering(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, change := range map[string]func(*operation.Row){
		"data": func(o *operation.Row) {
			o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
				return operation.Result{Data: panicsAsJSON{}}, nil
			}
		},
		"failure hook": func(o *operation.Row) {
			o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
				return operation.Result{}, operation.NotFound("x")
			}
			o.Failure = func(*operation.Problem) *operation.Problem { panic("in the hook") }
		},
		"nil problem": func(o *operation.Row) {
			o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
				var p *operation.Problem
				return operation.Result{}, p
			}
		},
	} {
		func() {
			defer func() {
				if cause := recover(); cause != nil {
					t.Errorf("%s: the panic leaves the pipeline: %v", name, cause)
				}
			}()
			if rec := w.serve(t, row(change), nil); rec.Code != http.StatusInternalServerError || rec.Body.String() != internalError {
				t.Errorf("%s: got %d %s, want %v and rec.Body.String() = %v",
					name, rec.Code, rec.Body, http.StatusInternalServerError, internalError)
			}
		}()
	}
}

// TestAccessLogHoldsNothingPersonal: the log has no token, query, body, address or path.
func TestAccessLogHoldsNothingPersonal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := row(func(o *operation.Row) {
		o.Method, o.Kinds = http.MethodPost, operation.ServerFull
		o.Params = []operation.Param{{Name: "token", In: operation.InQuery, Shape: operation.Text, Secret: true}}
		o.Body = []operation.Field{{Name: "email", Shape: operation.Text}}
	})
	for _, token := range []string{"full", "tnt_server_full_SECRETSECRET_abc123"} {
		w.serve(t, o, func(r *http.Request) {
			r.URL.RawQuery = "token=SECRETQUERY&unknown=SECRETVALUE"
			r.URL.Path = "/api/things/SECRETPATH"
			r.RequestURI = r.URL.String()
			r.Header.Set(middleware.KeyHeader, token)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("User-Agent", "SECRETAGENT")
			r.Header.Set("Referer", "http://x/?token=SECRETREFERER")
			r.AddCookie(&http.Cookie{Name: "session", Value: "SECRETCOOKIE"})
			r.Body = io.NopCloser(strings.NewReader(`{"email":"SECRETBODY@example.com"}`))
			r.RemoteAddr = "192.0.2.77:1234"
		})
	}
	log := w.log.String()
	for _, secret := range []string{"SECRET", "192.0.2.77", "example.com"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %s:\n%s", secret, log)
		}
	}
	var line struct {
		Msg, Operation, Status, Subject, Reason string
		RequestID                               string `json:"request_id"`
		Code, Bytes, Org                        int
		TookUS                                  *int64 `json:"took_us"`
		StoreCalls                              *int64 `json:"store_calls"`
		StoreUS                                 *int64 `json:"store_us"`
	}
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines for two requests:\n%s", len(lines), log)
	}
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
		t.Fatal(err)
	}
	if line.Msg != "request" || line.Operation != "things.get" || line.Status != "ok" || line.Code != 200 || line.Subject != "key:k1" || line.Org == 0 || line.Bytes == 0 || line.RequestID == "" || line.TookUS == nil || line.StoreCalls == nil || line.StoreUS == nil {
		t.Errorf("line %s", lines[0])
	}
	if err := json.Unmarshal([]byte(lines[1]), &line); err != nil {
		t.Fatal(err)
	}
	if line.Code != 403 || line.Status != "failed" || line.Reason == "" {
		t.Errorf("line %s", lines[1])
	}
}

func TestNoAccessLogWhereItIsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Requests = nil
	w.serve(t, row(nil), nil)
	if log := w.log.String(); log != "" {
		t.Errorf(`got %v, want ""`, log)
	}
}

func TestMetricsCountByOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 3 {
		w.serve(t, row(nil), nil)
	}
	w.serve(t, row(nil), func(r *http.Request) { r.Header.Set(middleware.KeyHeader, "wrong") })
	w.serve(t, row(nil), func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") })
	w.serve(t, row(func(o *operation.Row) {
		o.Name = "things.delete"
		o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
			return operation.Result{}, operation.Failed("Thing not found", nil)
		}
	}), nil)
	w.Problem("no_route", httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/zzz", nil), operation.NotFound("No such route"))
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(w.registry, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	lines := strings.Split(rec.Body.String(), "\n")
	for _, want := range []string{
		`tenantry_requests_total{code="200",operation="things.delete",status="failed"} 1`,
		`tenantry_requests_total{code="200",operation="things.get",status="ok"} 3`,
		`tenantry_requests_total{code="403",operation="things.get",status="failed"} 2`,
		`tenantry_requests_total{code="404",operation="no_route",status="failed"} 1`,
		`tenantry_request_seconds_count{operation="things.get"} 5`,
		`tenantry_exposed_keys_total 1`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %s in\n%s", want, rec.Body)
		}
	}
}

// TestAdmission: which credentials an operation accepts, and that all refusals are the same.
func TestAdmission(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	denied := `{"status":"failed","message":"` + operation.DeniedMessage + `","data":[]}`
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del(middleware.KeyHeader)
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Add(pairs[i], pairs[i+1])
			}
		}
	}
	browser := func(o *operation.Row) { o.Kinds |= operation.Browser }
	tests := []struct {
		name   string
		row    func(*operation.Row)
		change func(*http.Request)
		code   int
	}{
		{"key", nil, header("x-service-token", "full"), 200},
		{"no credential", nil, header(), 403},
		{"empty key", nil, header("x-service-token", ""), 403},
		{"two keys", nil, header("x-service-token", "full", "x-service-token", "full"), 403},
		{"two keys in one line", nil, header("x-service-token", "full, full"), 403},
		{"key in the query", nil, func(r *http.Request) { r.Header.Del("x-service-token"); r.URL.RawQuery = "x-service-token=full" }, 403},
		{"key as bearer", nil, header("Authorization", "Bearer full"), 403},
		{"key in a cookie", nil, header("Cookie", "x-service-token=full; session=full"), 403},
		{"server key from a browser", nil, header("x-service-token", "full", "Origin", "https://shop.example"), 403},
		{"read key reads", nil, header("x-service-token", "read"), 200},
		{"read key writes", func(o *operation.Row) { o.Kinds = operation.ServerFull }, header("x-service-token", "read"), 403},
		{"browser key, operation not marked", nil, header("x-service-token", "browser", "Origin", "https://shop.example"), 403},
		{"browser key", browser, header("x-service-token", "browser", "Origin", "https://shop.example"), 200},
		{"browser key, other origin", browser, header("x-service-token", "browser", "Origin", "https://shop.example.evil"), 403},
		{"browser key, no origin", browser, header("x-service-token", "browser"), 403},
		{"session", nil, header("Cookie", "session=ada"), 200},
		{"wrong session", nil, header("Cookie", "session=bob"), 403},
		{"session for an operation with keys", func(o *operation.Row) { o.Credentials = operation.Key }, header("Cookie", "session=ada"), 403},
		{"key for an operation with sessions", func(o *operation.Row) { o.Credentials, o.Kinds = operation.Session, 0 }, header("x-service-token", "full"), 403},
		{"wrong key with a valid session", nil, header("x-service-token", "wrong", "Cookie", "session=ada"), 403},
		{"unknown organization", nil, func(r *http.Request) { r.Host = "nobody.localhost" }, 403},
		{"no rule", func(o *operation.Row) { o.Rule = operation.Rule{} }, nil, 403},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rec := w.serve(t, row(test.row), test.change)
			if rec.Code != test.code || (test.code == 403 && rec.Body.String() != denied) {
				t.Errorf("%d %s, want %d", rec.Code, rec.Body, test.code)
			}
			if allow := rec.Header().Get("Access-Control-Allow-Origin"); (allow != "") != (test.name == "browser key") {
				t.Errorf("Access-Control-Allow-Origin: %q", allow)
			}
		})
	}
}

// TestAnotherSiteCannotUseTheSession: unsafe requests that a browser sends from another site are refused if they use a
// session. Keys are not affected, because browsers never add them by themselves.
func TestAnotherSiteCannotUseTheSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	post := func(o *operation.Row) { o.Method, o.Kinds = http.MethodPost, operation.ServerFull }
	for _, test := range []struct {
		name    string
		headers []string
		code    int
	}{
		{"same origin", []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://acme.localhost"}, 200},
		{"typed by the person", []string{"Sec-Fetch-Site", "none"}, 200},
		{"no browser", nil, 200},
		{"other site", []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"}, 403},
		{"sibling subdomain", []string{"Sec-Fetch-Site", "same-site", "Origin", "http://other.localhost"}, 403},
		{"old browser, other site", []string{"Origin", "https://evil.example"}, 403},
		{"old browser, sibling", []string{"Origin", "http://other.localhost"}, 403},
		{"sandboxed", []string{"Origin", "null"}, 403},
	} {
		rec := w.serve(t, row(post), func(r *http.Request) {
			r.Header.Del(middleware.KeyHeader)
			r.Header.Set("Cookie", "session=ada")
			for i := 0; i < len(test.headers); i += 2 {
				r.Header.Set(test.headers[i], test.headers[i+1])
			}
		})
		if rec.Code != test.code {
			t.Errorf("%s: got %d %s, want %v", test.name, rec.Code, rec.Body, test.code)
		}
		envelope(t, rec)
	}
}

func TestUnavailableIsNeverDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rec := w.serve(t, row(nil), func(r *http.Request) { r.Header.Set(middleware.KeyHeader, "down") })
	if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
		t.Errorf("got %d %v %s, want %v", rec.Code, rec.Header(), rec.Body, http.StatusServiceUnavailable)
	}
}

func TestBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := row(func(o *operation.Row) {
		o.Method, o.Kinds, o.BodyLimit = http.MethodPost, operation.ServerFull, 100
		o.Body = []operation.Field{{Name: "a", Shape: operation.Text}}
	})
	for _, test := range []struct {
		name, kind, encoding, body string
		code                       int
	}{
		{"good", "application/json", "", `{"a":"x"}`, 200},
		{"with charset", "Application/JSON; charset=UTF-8", "", `{"a":"x"}`, 200},
		{"other charset", "application/json; charset=latin1", "", `{"a":"x"}`, 415},
		{"text/plain JSON", "text/plain", "", `{"a":"x"}`, 415},
		{"form", "application/x-www-form-urlencoded", "", `a=x`, 415},
		{"no content type", "", "", `{"a":"x"}`, 415},
		{"malformed content type", "application/json; charset", "", `{"a":"x"}`, 415},
		{"gzip", "application/json", "gzip", `{"a":"x"}`, 415},
		{"identity", "application/json", "identity", `{"a":"x"}`, 415},
		{"broken", "application/json", "", `{"a":`, 400},
		{"at the limit", "application/json", "", `{"a":"` + strings.Repeat("x", 92) + `"}`, 200},
		{"over the limit", "application/json", "", `{"a":"` + strings.Repeat("x", 93) + `"}`, 413},
	} {
		rec := w.serve(t, o, func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(test.body))
			if test.kind != "" {
				r.Header.Set("Content-Type", test.kind)
			}
			if test.encoding != "" {
				r.Header.Set("Content-Encoding", test.encoding)
			}
		})
		if rec.Code != test.code {
			t.Errorf("%s: %d %s, want %d", test.name, rec.Code, rec.Body, test.code)
		}
		envelope(t, rec)
	}
}

func TestIgnoredInputIsNamedInAHeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	handled := 0
	o := row(func(o *operation.Row) {
		o.Method, o.Kinds, o.Body = http.MethodPost, operation.ServerFull, []operation.Field{{Name: "a", Shape: operation.Text}}
		o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
			handled++
			return operation.Result{}, nil
		}
	})
	send := func(prefer string) *httptest.ResponseRecorder {
		return w.serve(t, o, func(r *http.Request) {
			r.URL.RawQuery = "x%0d%0aSet-Cookie:%20a=b=1&%C3%BC=1"
			r.Body = io.NopCloser(strings.NewReader(`{"a":"x","org_id":7,"c,d":1,"e\r\nf":1}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Prefer", prefer)
		})
	}
	rec := send("")
	if got, want := rec.Header().Get("X-Ignored"), "x%0D%0ASet-Cookie%3A+a, %C3%BC, org_id, c%2Cd, e%0D%0Af"; rec.Code != 200 || got != want {
		t.Errorf("%d X-Ignored: %q, want %q", rec.Code, got, want)
	}
	if rec = send("handling=strict"); rec.Code != 400 || handled != 1 {
		t.Errorf("strict: %d, handled %d times: %s", rec.Code, handled, rec.Body)
	}
}

func TestUnauditedAnswersAreWithheld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := row(func(o *operation.Row) {
		o.Name, o.Audit = "contacts.reveal", operation.AuditAlways
		o.Handler = func(_ context.Context, c *operation.Call) (operation.Result, error) {
			c.Note("field", "iban")
			return operation.Result{Data: map[string]string{"field_value": "PLAINTEXT"}}, nil
		}
	})
	if rec := w.serve(t, o, nil); rec.Code != 200 || !strings.Contains(rec.Body.String(), "PLAINTEXT") {
		t.Fatalf(`got %d %s, want 200 and containing "PLAINTEXT"`, rec.Code, rec.Body)
	}
	w.serve(t, o, func(r *http.Request) {
		r.Header.Set(middleware.KeyHeader, "read")
		r.Header.Set("Origin", "https://x.example")
	})
	w.serve(t, row(func(failing *operation.Row) { *failing = *o; failing.Rule = operation.Needs(tenants.ManageKeys) }), nil)
	records, err := w.audit.Recent(t.Context(), w.tenant.Workspace(), 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, len(records))
	for _, r := range records {
		got = append(got, fmt.Sprintf("%s %s %s %d %v", r.Operation, r.Subject, r.Outcome, r.Code, r.Facts))
		if r.RequestID == "" {
			t.Error("a record without the request's identifier")
		}
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{"contacts.reveal key:k1 ok 200 map[field:iban]", "contacts.reveal key:k2 denied 403 map[]", "contacts.reveal key:k1 denied 403 map[]"} {
		if !strings.Contains(all, want) {
			t.Errorf("no record %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "PLAINTEXT") {
		t.Error("the audit log holds the value")
	}
	if err := w.engine.Close(); err != nil {
		t.Fatal(err)
	}
	rec := w.serve(t, o, nil)
	if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" || strings.Contains(rec.Body.String(), "PLAINTEXT") {
		t.Errorf("without an audit log: %d %v %s", rec.Code, rec.Header(), rec.Body)
	}
}

func TestOperationDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	started := time.Now()
	rec := w.serve(t, row(func(o *operation.Row) {
		o.Timeout = 20 * time.Millisecond
		o.Handler = func(ctx context.Context, _ *operation.Call) (operation.Result, error) {
			select {
			case <-ctx.Done():
				return operation.Result{}, fmt.Errorf("reading: %w", ctx.Err())
			case <-time.After(time.Minute):
				return operation.Result{}, nil
			}
		}
	}), nil)
	if rec.Code != http.StatusServiceUnavailable || time.Since(started) > 30*time.Second {
		t.Errorf("%d after %s", rec.Code, time.Since(started))
	}
	envelope(t, rec)
}

// TestClientHangUp: if the caller hangs up, the context of the handler ends and the call is audited.
func TestClientHangUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	entered, ended := make(chan struct{}), make(chan error, 1)
	o := row(func(o *operation.Row) {
		o.Name, o.Audit = "things.slow", operation.AuditAlways
		o.Handler = func(ctx context.Context, _ *operation.Call) (operation.Result, error) {
			close(entered)
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			ended <- ctx.Err()
			return operation.Result{}, ctx.Err()
		}
	})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.Serve(o, rw, r, func(string) string { return "" }) }))
	defer server.Close()
	ctx, hangUp := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "acme.localhost"
	r.Header.Set(middleware.KeyHeader, "full")
	go func() {
		<-entered
		hangUp()
	}()
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_ = resp.Body.Close() // the test fails
		t.Fatal("answered")
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler ended with %v", err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		records, err := w.audit.Recent(t.Context(), w.tenant.Workspace(), 10, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 1 && records[0].Operation == "things.slow" && records[0].Outcome == audit.Failed {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no audit record of the call whose caller hung up: %+v", records)
		}
	}
}

// TestUnreadSecretIsUndone: a call that returns a secret once is undone if the caller has hung up, and recorded as
// failed.
func TestUnreadSecretIsUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hangUp, undone := make(chan func(), 1), make(chan struct{})
	o := row(func(o *operation.Row) {
		o.Name, o.Method, o.Kinds, o.Audit, o.Once = "things.make", http.MethodPost, operation.ServerFull, operation.AuditAlways, true
		o.Handler = func(ctx context.Context, c *operation.Call) (operation.Result, error) {
			c.Undo = func(context.Context) error { close(undone); return nil }
			(<-hangUp)()
			<-ctx.Done() // the handler succeeds nevertheless
			return operation.Result{Data: "SECRET"}, nil
		}
	})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.Serve(o, rw, r, func(string) string { return "" }) }))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	hangUp <- cancel
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "acme.localhost"
	r.Header.Set(middleware.KeyHeader, "full")
	if resp, err := http.DefaultClient.Do(r); err == nil {
		_ = resp.Body.Close() // the test fails
		t.Fatal("answered")
	}
	select {
	case <-undone:
	case <-time.After(time.Minute):
		t.Fatal("the call was not undone")
	}
	server.Close() // waits for the request
	records, err := w.audit.Recent(t.Context(), w.tenant.Workspace(), 10, 0)
	if err != nil || len(records) != 2 || !slices.ContainsFunc(records, func(r audit.Record) bool { return r.Outcome == audit.Failed }) {
		t.Errorf("got %v %+v, want no error and len(records) = 2", err, records)
	}
}

// TestHangUpsAndSlowQueriesAreNoOutages: how callers who hang up and queries that time out are answered and logged.
func TestHangUpsAndSlowQueriesAreNoOutages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		err    error
		hangUp bool
		code   int
		logged []string
	}{
		{"hung up", context.Canceled, true, 499, []string{`"code":499`, `"reason":"the caller hung up"`}},
		{"canceled within", context.Canceled, false, http.StatusServiceUnavailable, []string{`"msg":"unavailable"`}},
		{"slow", fmt.Errorf("%w: %w", store.ErrSlow, context.DeadlineExceeded), false, http.StatusServiceUnavailable, []string{`"msg":"stopped at its time limit"`, "query timed out", `"reason":"stopped at its time limit"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			a := w.serve(t, row(func(o *operation.Row) {
				o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
					if c.hangUp {
						hangUp()
					}
					return operation.Result{}, fmt.Errorf("find in things: %w", c.err)
				}
			}), func(r *http.Request) { *r = *r.WithContext(ctx) })
			if a.Code != c.code {
				t.Errorf("got %d %s, want %v", a.Code, a.Body, c.code)
			}
			for _, want := range c.logged {
				if log := w.log.String(); !strings.Contains(log, want) {
					t.Errorf("the log lacks %s:\n%s", want, log)
				}
			}
		})
	}
}
