// Package telemetry sends traces and metrics to an OpenTelemetry collector, as OTLP over HTTP.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"

	"tenantry/backends/store"
	"tenantry/config"
)

// Telemetry sends traces and metrics. A nil *Telemetry is off: its methods do nothing. Safe for concurrent use.
type Telemetry struct {
	tracer   trace.Tracer
	traces   *sdktrace.TracerProvider
	resource *resourcepb.Resource
	sender   *sender
	closing  context.CancelFunc // stops retries of the sender
	log      *slog.Logger

	metrics     *metricSender // nil before Metrics
	stopMetrics context.CancelFunc
	stopped     chan struct{}
}

// Open returns a Telemetry for the collector in the settings, or nil if there is none. It does not connect to the
// collector. The caller must call Close.
func Open(cfg config.Telemetry, version string, log *slog.Logger) (*Telemetry, error) {
	if cfg.Endpoint == "" {
		return nil, nil //nolint:nilnil // nil is off
	}
	host, _ := os.Hostname()
	attributes, err := resource.Merge(resource.Environment(), resource.NewSchemaless(
		attribute.String("service.name", "tenantry"), attribute.String("service.version", version),
		attribute.String("service.instance.id", fmt.Sprintf("%s-%d", host, os.Getpid()))))
	if err != nil {
		return nil, fmt.Errorf("telemetry: attributes of the environment: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the standard library's
	closing, cancel := context.WithCancel(context.Background())
	t := &Telemetry{
		log: log, closing: cancel, resource: &resourcepb.Resource{Attributes: keyValues(attributes.Attributes())},
		sender: &sender{
			client: &http.Client{
				Transport:     transport,
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			},
			cfg: cfg, agent: "tenantry/" + version, closing: closing,
		},
	}
	// Traces that callers marked as sampled are sampled like others, because strangers must not choose the cost.
	share := shareSampler(float64(cfg.SamplePercent) / 100)
	t.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(attributes),
		sdktrace.WithSampler(sdktrace.ParentBased(share, sdktrace.WithRemoteParentSampled(share))),
		sdktrace.WithBatcher(&spanSender{t.sender, t.resource, outage{log: log, what: "traces"}}))
	t.tracer = t.traces.Tracer("tenantry")
	return t, nil
}

// Metrics begins to send the metrics of a registry, twice a minute. It may be called at most once.
func (t *Telemetry) Metrics(from prometheus.Gatherer) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.metrics = &metricSender{t.sender, from, t.resource, time.Now(), outage{log: t.log, what: "metrics"}}
	t.stopMetrics, t.stopped = cancel, make(chan struct{})
	go func() {
		defer close(t.stopped)
		t.metrics.run(ctx)
	}()
}

// Close sends the remaining traces and metrics, as far as ctx allows.
func (t *Telemetry) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.closing()
	err := t.traces.Shutdown(ctx)
	if t.metrics != nil {
		t.stopMetrics()
		<-t.stopped
		t.metrics.send(ctx)
	}
	t.sender.client.CloseIdleConnections()
	return err
}

// Tracer returns the tracer, or nil if telemetry is off.
func (t *Telemetry) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.tracer
}

// Redis returns a function that begins a span for commands sent to Redis in a traced request, or nil if telemetry is
// off. The function gets only the names of commands, because arguments are secret or personal.
func (t *Telemetry) Redis() func(ctx context.Context, commands ...string) func(error) {
	if t == nil {
		return nil
	}
	return func(ctx context.Context, commands ...string) func(error) {
		if !trace.SpanFromContext(ctx).IsRecording() {
			return func(error) {}
		}
		name := strings.Join(commands, " ")
		if len(commands) > 1 {
			name = "redis.pipeline " + name
		}
		_, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", name)))
		return func(err error) {
			if err != nil {
				span.SetStatus(codes.Error, "") // the text of the error may contain values
			}
			span.End()
		}
	}
}

// Store records a span for a call of the store that has ended in a traced request.
func (t *Telemetry) Store(ctx context.Context, c store.Call) {
	if t == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	ended := time.Now()
	_, span := t.tracer.Start(ctx, "store "+c.Operation,
		trace.WithTimestamp(ended.Add(-c.Took)), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("db.operation.name", c.Operation), attribute.String("db.collection.name", c.Collection),
			attribute.String("tenantry.backend", c.Backend)))
	if c.Err != nil {
		span.SetStatus(codes.Error, "") // the text of the error may contain values
	}
	span.End(trace.WithTimestamp(ended))
}

// outage limits how often the log reports that a collector accepts nothing.
type outage struct {
	log  *slog.Logger
	what string
	last atomic.Int64 // when it was last reported, in Unix nanoseconds
}

// logInterval is the least time between two such reports.
const logInterval = 10 * time.Minute

// note reports the error of a delivery, if a report is due. A nil error is a success.
func (o *outage) note(ctx context.Context, err error) {
	now := time.Now().UnixNano()
	if errors.Is(err, context.Canceled) { // Close sends the rest
		return
	}
	if last := o.last.Load(); err != nil && now-last > int64(logInterval) && o.last.CompareAndSwap(last, now) {
		o.log.WarnContext(ctx, "the collector at telemetry.endpoint does not accept "+o.what+"; they are lost", "error", err)
	}
}
