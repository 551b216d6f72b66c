package telemetry

import (
	"math/rand/v2"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// chance follows that part of what it is asked about, by a number of its own: that of the trace is the caller's.
type chance float64

func (c chance) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	decision := sdktrace.Drop
	if rand.Float64() < float64(c) { //nolint:gosec // nothing is kept secret by it
		decision = sdktrace.RecordAndSample
	}
	return sdktrace.SamplingResult{Decision: decision, Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
}

func (c chance) Description() string { return "a part of all requests" }

// quiet is a span without the texts of errors, which may hold what callers sent.
type quiet struct{ sdktrace.ReadOnlySpan }

func (quiet) Events() []sdktrace.Event { return nil }

func (q quiet) Status() sdktrace.Status { return sdktrace.Status{Code: q.ReadOnlySpan.Status().Code} }
