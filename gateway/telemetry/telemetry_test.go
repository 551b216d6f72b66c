package telemetry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"tenantry/config"
	"tenantry/crypto/secret"
)

// received has the bodies that the collector received, by path.
type received struct {
	mu     sync.Mutex
	bodies map[string][][]byte
}

func (r *received) of(path string) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodies[path]
}

// open returns a Telemetry that sends to a test collector, with what the collector received and the log.
func open(t *testing.T, answer http.HandlerFunc) (*Telemetry, *received, *bytes.Buffer) {
	t.Helper()
	got := &received{bodies: map[string][][]byte{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("Authorization") != "Bearer token" {
			t.Errorf("%s with %v: %v", r.URL, r.Header, err)
		}
		got.mu.Lock()
		got.bodies[r.URL.Path] = append(got.bodies[r.URL.Path], body)
		got.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	log := &bytes.Buffer{}
	tel, err := Open(config.Telemetry{Endpoint: server.URL, Token: secret.New("token"), SamplePercent: 100}, "1", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return tel, got, log
}

func accept(http.ResponseWriter, *http.Request) {}

// TestMetricsAreThoseOfTheRegistry: buckets of histograms are not cumulative, and counters have a start time.
func TestMetricsAreThoseOfTheRegistry(t *testing.T) {
	t.Parallel()
	tel, got, _ := open(t, accept)
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests", Help: "All."}, []string{"code"})
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "waiting"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "seconds", Buckets: []float64{1, 2, 4}})
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "pauses", Objectives: map[float64]float64{0.5: 0.05}})
	registry.MustRegister(counter, gauge, histogram, summary)
	counter.WithLabelValues("200").Add(3)
	gauge.Set(-2)
	for _, v := range []float64{0.5, 1.5, 1.6, 9} {
		histogram.Observe(v)
		summary.Observe(v)
	}
	tel.Metrics(registry)
	if err := tel.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sent metricspb.MetricsData
	if bodies := got.of("/v1/metrics"); len(bodies) != 1 || proto.Unmarshal(bodies[0], &sent) != nil {
		t.Fatalf("sent %d times, want 1", len(bodies))
	}
	if name := sent.ResourceMetrics[0].Resource.Attributes[0]; !strings.HasPrefix(name.Key, "service.") {
		t.Errorf("resource attribute = %v, want one of service.*", name)
	}
	by := map[string]*metricspb.Metric{}
	for _, m := range sent.ResourceMetrics[0].ScopeMetrics[0].Metrics {
		by[m.Name] = m
	}
	sum := by["requests"].GetSum()
	if p := sum.DataPoints[0]; !sum.IsMonotonic || p.GetAsDouble() != 3 || p.Attributes[0].Key != "code" || p.StartTimeUnixNano == 0 || p.TimeUnixNano < p.StartTimeUnixNano {
		t.Errorf("counter: %v", sum)
	}
	if p := by["waiting"].GetGauge().DataPoints[0]; p.GetAsDouble() != -2 {
		t.Errorf("gauge: %v", p)
	}
	h := by["seconds"].GetHistogram().DataPoints[0]
	if h.Count != 4 || h.GetSum() != 12.6 || !slices.Equal(h.ExplicitBounds, []float64{1, 2, 4}) || !slices.Equal(h.BucketCounts, []uint64{1, 2, 0, 1}) {
		t.Errorf("histogram: %v", h)
	}
	if p := by["pauses"].GetSummary().DataPoints[0]; p.Count != 4 || len(p.QuantileValues) != 1 {
		t.Errorf("summary: %v", p)
	}
}

// TestRedisCommandsAreSpans: commands of a traced request have spans, others have none.
func TestRedisCommandsAreSpans(t *testing.T) {
	t.Parallel()
	tel, got, _ := open(t, accept)
	tel.Redis()(t.Context(), "get")(nil)
	ctx, request := tel.Tracer().Start(t.Context(), "contacts.list")
	tel.Redis()(ctx, "get")(nil)
	tel.Redis()(ctx, "set", "zadd")(errors.New("a value"))
	request.End()
	if err := tel.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, body := range got.of("/v1/traces") {
		var sent tracepb.TracesData
		if err := proto.Unmarshal(body, &sent); err != nil {
			t.Fatal(err)
		}
		for _, s := range sent.ResourceSpans[0].ScopeSpans[0].Spans {
			names = append(names, s.Name+" "+s.Status.Code.String())
		}
		if bytes.Contains(body, []byte("a value")) {
			t.Error("an error's text was sent")
		}
	}
	slices.Sort(names)
	if want := []string{"contacts.list STATUS_CODE_UNSET", "get STATUS_CODE_UNSET", "redis.pipeline set zadd STATUS_CODE_ERROR"}; !slices.Equal(names, want) {
		t.Errorf("spans %q, want %q", names, want)
	}
}

// TestRetries: a message is sent again if the collector is busy or unavailable, and not if it is refused.
func TestRetries(t *testing.T) {
	t.Parallel()
	var partial []byte
	partial = protowire.AppendVarint(protowire.AppendTag(partial, 1, protowire.VarintType), 7)
	partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), "too old")
	said := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
	for name, c := range map[string]struct {
		first  http.HandlerFunc
		posts  int
		logged string
	}{
		"unavailable": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, 2, ""},
		"busy": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}, 2, ""},
		"refused": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, 1, "answered 401"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}, 1, "answered 307"},
		"taken in part":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(said) }, 1, "rejected 7 items: too old"},
		"taken with words": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}\xff")) }, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var once sync.Once
			tel, got, log := open(t, func(w http.ResponseWriter, r *http.Request) { once.Do(func() { c.first(w, r) }) })
			_, span := tel.Tracer().Start(t.Context(), "x")
			span.End()
			if err := tel.traces.ForceFlush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := tel.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := len(got.of("/v1/traces")); n != c.posts || len(got.of("/other")) > 0 {
				t.Errorf("sent %d times, want %d", n, c.posts)
			}
			if text := log.String(); c.logged == "" && text != "" || !strings.Contains(text, c.logged) {
				t.Errorf("logged %q, want %q in it", text, c.logged)
			}
		})
	}
}

// TestCloseDoesNotWaitForACollector: Close does not retry when the collector is busy.
func TestCloseDoesNotWaitForACollector(t *testing.T) {
	t.Parallel()
	tel, got, log := open(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	_, span := tel.Tracer().Start(t.Context(), "x")
	span.End()
	if err := tel.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if n := len(got.of("/v1/traces")); n != 1 || !strings.Contains(log.String(), "answered 503") {
		t.Errorf("sent %d times, want 1; logged %s", n, log)
	}
}

// TestInvalidTextLosesNoSpans: names and values that are not UTF-8 are sent with replacement characters, because the
// encoder refuses a message with any of them.
func TestInvalidTextLosesNoSpans(t *testing.T) {
	t.Parallel()
	tel, got, log := open(t, accept)
	_, span := tel.Tracer().Start(t.Context(), "a\xff", trace.WithAttributes(attribute.String("b", "c\xfe")))
	span.End()
	if err := tel.Close(t.Context()); err != nil {
		t.Fatalf("Close: %v", err)
	}
	bodies := got.of("/v1/traces")
	if len(bodies) != 1 || !bytes.Contains(bodies[0], []byte("a\uFFFD")) || !bytes.Contains(bodies[0], []byte("c\uFFFD")) {
		t.Errorf("the collector received %q, want one message with a\uFFFD and c\uFFFD; log: %s", bodies, log)
	}
}
