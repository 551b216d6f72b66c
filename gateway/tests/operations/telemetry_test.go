package operations

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"tenantry/config"
	"tenantry/crypto/secret"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// collector accepts OTLP over HTTP.
type collector struct {
	t       *testing.T
	mu      sync.Mutex
	raw     bytes.Buffer // all that was sent
	spans   []*trace.Span
	figures []string
}

func (c *collector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		gz, err := gzip.NewReader(r.Body)
		if err != nil {
			c.t.Error(err)
			return
		}
		body = gz
	}
	sent, err := io.ReadAll(body)
	if err != nil || r.Header.Get("Authorization") != "Bearer a token of the collector" {
		c.t.Errorf("%s: got %v, %v, want no error and the header Authorization %q",
			r.URL, r.Header, err, "Bearer a token of the collector")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(sent)
	var spans trace.TracesData
	var figures metrics.MetricsData
	switch r.URL.Path {
	case "/v1/traces":
		err = proto.Unmarshal(sent, &spans)
		for _, of := range spans.ResourceSpans {
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	case "/v1/metrics":
		err = proto.Unmarshal(sent, &figures)
		for _, of := range figures.ResourceMetrics {
			for _, scope := range of.ScopeMetrics {
				for _, m := range scope.Metrics {
					c.figures = append(c.figures, m.Name)
				}
			}
		}
	default:
		c.t.Errorf("sent to %s, want traces or metrics", r.URL)
	}
	if err != nil {
		c.t.Error(err)
	}
}

// TestTelemetry checks that a request is one trace, or part of its caller's, and that nothing sent contains a secret or
// a personal value.
func TestTelemetry(t *testing.T) {
	t.Parallel()
	const theirs, other, parent, state = "4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4737", "00f067aa0ba902b7", "a=1,b=2,c=3"
	for _, c := range []struct {
		name, traceparent, trace string // of the log line; "": whichever
		percent                  int
		spans                    bool
	}{
		{"a trace of its own", "", "", 100, true},
		{"the caller's", "00-" + theirs + "-" + parent + "-01", theirs, 100, true},
		{"one that its caller does not keep", "00-" + theirs + "-" + parent + "-00", theirs, 100, false},
		{"no caller decides what is kept", "00-" + theirs + "-" + parent + "-01", theirs, 0, false},
		{"two callers, who say nothing", "00-" + theirs + "-" + parent + "-01 00-" + other + "-" + parent + "-01", "", 100, true},
		{"nonsense", "00-zz" + theirs + "-" + parent + "-01", "", 100, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seen := &collector{t: t}
			server := httptest.NewServer(seen)
			defer server.Close()
			g := gatewaytest.Start(t, func(cfg *config.Config, _ *gateway.Options) {
				cfg.Telemetry = config.Telemetry{Endpoint: server.URL, Token: secret.New("a token of the collector"), SamplePercent: c.percent}
			})
			org := g.Org(t, "acme")
			org.Import(t, `{"kind":"contact","email":"ada.lovelace@example.com"}`)
			key := org.Key(t, tenants.Contacts)
			headers := []gatewaytest.Request{gatewaytest.Header("X-Request-Id", "the-request-of-the-test")}
			headers = append(headers, func(r *http.Request) {
				for _, parent := range strings.Fields(c.traceparent) {
					r.Header.Add("Traceparent", parent)
				}
				r.Header["Tracestate"] = []string{"a=1", "b=2,c=3"}
			})
			if a := org.Get(t, key, "/api/contacts?filters[email]=ada.lovelace@example.com&per_page=1", headers...); a.Code != http.StatusOK {
				t.Fatalf("got %v, want %v", a.Text(), http.StatusOK)
			}
			g.Stop(t) // what is left is sent
			line := ""
			for l := range strings.Lines(g.Log.String()) {
				if strings.Contains(l, `"the-request-of-the-test"`) {
					line += l
				}
			}
			if !strings.Contains(line, `"trace_id":"`+c.trace) || strings.Count(line, "\n") != 1 {
				t.Errorf("log line = %s, want a single one with the trace", line)
			}
			seen.mu.Lock()
			defer seen.mu.Unlock()
			at := slices.IndexFunc(seen.spans, func(s *trace.Span) bool { return s.Name == "contacts.list" })
			if (at >= 0) != c.spans {
				t.Fatalf("%[1]d spans, one of the request: %[2]v, want %[3]v", len(seen.spans), at >= 0, c.spans)
			}
			if c.spans {
				span, within := seen.spans[at], map[string]bool{}
				for _, s := range seen.spans {
					if bytes.Equal(s.ParentSpanId, span.SpanId) && bytes.Equal(s.TraceId, span.TraceId) {
						within[s.Name] = true
					}
				}
				if !within["store find"] || !within["store count"] {
					t.Errorf("spans within that of the request = %v, want store find and store count", within)
				}
				id := hex.EncodeToString(span.TraceId)
				if id == theirs && span.TraceState != state || id != theirs && span.TraceState != "" || c.trace == "" && (id == theirs || id == other) {
					t.Errorf("trace %s with the state %q, want the caller's trace and state if there is one",
						id, span.TraceState)
				}
				if !strings.Contains(line, id) || c.trace != "" && (id != c.trace || hex.EncodeToString(span.ParentSpanId) != parent) {
					t.Errorf("trace %s, parent %x, want those of the caller, and the trace in the log",
						id, span.ParentSpanId)
				}
			}
			if !slices.Contains(seen.figures, "tenantry_requests_total") || !slices.Contains(seen.figures, "tenantry_request_seconds") {
				t.Errorf("metrics = %v, want the requests and their times", seen.figures)
			}
			for _, secret := range []string{key, "lovelace", "filters["} {
				if bytes.Contains(seen.raw.Bytes(), []byte(secret)) {
					t.Errorf("sent %s, want it nowhere", secret)
				}
			}
		})
	}
}

// TestTelemetry_CallersCannotForceSampling checks that requests of one sampled trace are sampled no more often than
// others.
func TestTelemetry_CallersCannotForceSampling(t *testing.T) {
	t.Parallel()
	seen := &collector{t: t}
	server := httptest.NewServer(seen)
	defer server.Close()
	g := gatewaytest.Start(t, func(cfg *config.Config, _ *gateway.Options) {
		cfg.Telemetry = config.Telemetry{Endpoint: server.URL, Token: secret.New("a token of the collector"), SamplePercent: 1}
	})
	org := g.Org(t, "acme")
	for range 200 {
		org.Get(t, "", "/api/contacts", gatewaytest.Header("Traceparent", "00-4bf92f3577b34da60000000000000001-00f067aa0ba902b7-01"))
	}
	g.Stop(t)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	kept := 0
	for _, s := range seen.spans {
		if s.Name == "contacts.list" {
			kept++
		}
	}
	if kept > 50 { // two are to be expected, and this many once in 10^50 times
		t.Errorf("%d of 200 are kept, want at most 50", kept)
	}
}

// TestTelemetry_Outage checks that the gateway answers without its collector, and logs that once.
func TestTelemetry_Outage(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(cfg *config.Config, _ *gateway.Options) {
		cfg.Telemetry = config.Telemetry{Endpoint: "http://127.0.0.1:1", SamplePercent: 100}
		cfg.Timeouts.Shutdown /= 5
	})
	org := g.Org(t, "acme")
	if a := org.Get(t, org.Key(t, tenants.Contacts), "/api/contacts"); a.Code != http.StatusOK {
		t.Errorf("got %v, want %v", a.Text(), http.StatusOK)
	}
	g.Stop(t)
	if n := strings.Count(g.Log.String(), "the collector at telemetry.endpoint does not accept traces"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, g.Log)
	}
}
