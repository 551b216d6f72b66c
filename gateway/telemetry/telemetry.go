// Package telemetry sends traces and figures to an OpenTelemetry collector, as OTLP over HTTP.
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

// Telemetry sends what it is told of. Nil is one that is off: it takes everything and does nothing.
// Safe for concurrent use.
type Telemetry struct {
	tracer  trace.Tracer
	traces  *sdktrace.TracerProvider
	about   *resourcepb.Resource
	sender  *sender
	closing context.CancelFunc // ends the sender's patience
	log     *slog.Logger

	figures     *figureSender // nil before Figures
	stopFigures context.CancelFunc
	stopped     chan struct{}
}

// Open returns what sends to the collector that the settings name, nil where they name none. The
// collector is not asked whether it is there. Close must be called.
func Open(cfg config.Telemetry, version string, log *slog.Logger) (*Telemetry, error) {
	if cfg.Endpoint == "" {
		return nil, nil //nolint:nilnil // nil is one that is off
	}
	host, _ := os.Hostname()
	about, err := resource.Merge(resource.Environment(), resource.NewSchemaless(
		attribute.String("service.name", "tenantry"), attribute.String("service.version", version),
		attribute.String("service.instance.id", fmt.Sprintf("%s-%d", host, os.Getpid()))))
	if err != nil {
		return nil, fmt.Errorf("telemetry: attributes of the environment: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the standard library's
	closing, cancel := context.WithCancel(context.Background())
	t := &Telemetry{log: log, closing: cancel, about: &resourcepb.Resource{Attributes: keyValues(about.Attributes())}, sender: &sender{
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		cfg:    cfg, agent: "tenantry/" + version, closing: closing,
	}}
	// What a caller's trace wants to be kept is kept as seldom as our own: a stranger must not choose our cost.
	share := chance(float64(cfg.SamplePercent) / 100)
	t.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.ParentBased(share, sdktrace.WithRemoteParentSampled(share))),
		sdktrace.WithBatcher(&spanSender{t.sender, t.about, outage{log: log, what: "traces"}}))
	t.tracer = t.traces.Tracer("tenantry")
	return t, nil
}

// Figures begins to send the figures of a registry, twice a minute. It is called once at most.
func (t *Telemetry) Figures(from prometheus.Gatherer) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.figures = &figureSender{t.sender, from, t.about, time.Now(), outage{log: t.log, what: "figures"}}
	t.stopFigures, t.stopped = cancel, make(chan struct{})
	go func() {
		defer close(t.stopped)
		t.figures.run(ctx)
	}()
}

// Close sends what is left, as far as ctx allows.
func (t *Telemetry) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.closing()
	err := t.traces.Shutdown(ctx)
	if t.figures != nil {
		t.stopFigures()
		<-t.stopped
		t.figures.send(ctx)
	}
	t.sender.client.CloseIdleConnections()
	return err
}

// Tracer returns what begins spans, nil where that is off.
func (t *Telemetry) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.tracer
}

// Redis returns what makes a span of commands sent to Redis within a request that is traced, nil where that is off.
// It is given their names alone: arguments are secrets or personal.
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
				span.SetStatus(codes.Error, "") // its text may have values
			}
			span.End()
		}
	}
}

// Store makes a span of a call of the store that has ended, within a request that is traced.
func (t *Telemetry) Store(ctx context.Context, c store.Call) {
	if t == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	ended := time.Now()
	_, span := t.tracer.Start(ctx, "store "+c.Operation, trace.WithTimestamp(ended.Add(-c.Took)), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.operation.name", c.Operation), attribute.String("db.collection.name", c.Collection), attribute.String("tenantry.backend", c.Backend)))
	if c.Err != nil {
		span.SetStatus(codes.Error, "") // its text may have values
	}
	span.End(trace.WithTimestamp(ended))
}

// outage tells once in a while of a collector that takes nothing: nobody is to wait for it, and its
// silence is no reason to fill the log.
type outage struct {
	log  *slog.Logger
	what string
	told atomic.Int64
}

// tellEvery is the time between two such lines.
const tellEvery = 10 * time.Minute

func (o *outage) note(ctx context.Context, err error) {
	now := time.Now().UnixNano()
	if errors.Is(err, context.Canceled) { // the last delivery follows
		return
	}
	if last := o.told.Load(); err != nil && now-last > int64(tellEvery) && o.told.CompareAndSwap(last, now) {
		o.log.WarnContext(ctx, "the collector of telemetry.endpoint does not take "+o.what+"; they are lost", "error", err)
	}
}
