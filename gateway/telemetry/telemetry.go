// Package telemetry sends traces and figures to an OpenTelemetry collector.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"tenantry/backends/store"
	"tenantry/config"
)

// Telemetry sends what it is told of. Nil is one that is off: it takes everything and does nothing.
// Safe for concurrent use.
type Telemetry struct {
	tracer  trace.Tracer
	traces  *sdktrace.TracerProvider
	figures *metric.MeterProvider // nil before Figures
	cfg     config.Telemetry
	about   *resource.Resource
	log     *slog.Logger
}

// Open returns what sends to the collector that the settings name, nil where they name none. The
// collector is not asked whether it is there. Close must be called.
func Open(ctx context.Context, cfg config.Telemetry, version string, log *slog.Logger) (*Telemetry, error) {
	if cfg.Endpoint == "" {
		return nil, nil //nolint:nilnil // nil is one that is off
	}
	host, _ := os.Hostname()
	t := &Telemetry{cfg: cfg, log: log, about: resource.NewSchemaless(
		attribute.String("service.name", "tenantry"), attribute.String("service.version", version),
		attribute.String("service.instance.id", fmt.Sprintf("%s-%d", host, os.Getpid())))}
	spans, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(cfg.Endpoint+"/v1/traces"), otlptracehttp.WithHeaders(t.headers()), otlptracehttp.WithTimeout(sendTime))
	if err != nil {
		return nil, fmt.Errorf("telemetry.endpoint: %w", err)
	}
	// What a caller's trace wants to be kept is kept as seldom as our own: a stranger must not choose our cost.
	share := chance(float64(cfg.SamplePercent) / 100)
	t.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(t.about),
		sdktrace.WithSampler(sdktrace.ParentBased(share, sdktrace.WithRemoteParentSampled(share))),
		sdktrace.WithBatcher(&spanSender{spans, outage{log: log, what: "traces"}}))
	t.tracer = t.traces.Tracer("tenantry")
	return t, nil
}

const (
	sendTime = 5 * time.Second // for sending once
	// every is the time between two sendings of the figures.
	every = 30 * time.Second
)

func (t *Telemetry) headers() map[string]string {
	if t.cfg.Token.IsZero() {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + t.cfg.Token.Reveal()}
}

// Figures begins to send the figures of a registry, twice a minute.
func (t *Telemetry) Figures(ctx context.Context, from prometheus.Gatherer) error {
	if t == nil {
		return nil
	}
	to, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(t.cfg.Endpoint+"/v1/metrics"), otlpmetrichttp.WithHeaders(t.headers()), otlpmetrichttp.WithTimeout(sendTime))
	if err != nil {
		return fmt.Errorf("telemetry.endpoint: %w", err)
	}
	t.figures = metric.NewMeterProvider(metric.WithResource(t.about), metric.WithReader(metric.NewPeriodicReader(
		&figureSender{to, outage{log: t.log, what: "figures"}}, metric.WithInterval(every), metric.WithTimeout(sendTime),
		metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(from))))))
	return nil
}

// Close sends what is left, as far as ctx allows.
func (t *Telemetry) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	err := t.traces.Shutdown(ctx)
	if t.figures != nil {
		err = errors.Join(err, t.figures.Shutdown(ctx))
	}
	return err
}

// Tracer returns what begins spans, nil where that is off.
func (t *Telemetry) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.tracer
}

// Redis makes a span of each command of a client, without its arguments: they are secrets or personal.
func (t *Telemetry) Redis(client redis.UniversalClient) error {
	if t == nil {
		return nil
	}
	return redisotel.InstrumentTracing(client, redisotel.WithTracerProvider(t.traces), redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false))
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
	if last := o.told.Load(); err != nil && now-last > int64(tellEvery) && o.told.CompareAndSwap(last, now) {
		o.log.WarnContext(ctx, "the collector of telemetry.endpoint does not take "+o.what+"; they are lost", "error", err)
	}
}

type spanSender struct {
	sdktrace.SpanExporter
	outage outage
}

func (s *spanSender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	for i, span := range spans {
		spans[i] = quiet{span}
	}
	s.outage.note(ctx, s.SpanExporter.ExportSpans(ctx, spans))
	return nil // the library would write its own line
}

type figureSender struct {
	metric.Exporter
	outage outage
}

func (s *figureSender) Export(ctx context.Context, figures *metricdata.ResourceMetrics) error {
	s.outage.note(ctx, s.Exporter.Export(ctx, figures))
	return nil
}
