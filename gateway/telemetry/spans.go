package telemetry

import (
	"context"
	"math/rand/v2"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// chance samples a share of all requests by a number of its own: that of the trace is the caller's.
type chance float64

func (c chance) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	decision := sdktrace.Drop
	if rand.Float64() < float64(c) { //nolint:gosec // nothing is kept secret by it
		decision = sdktrace.RecordAndSample
	}
	return sdktrace.SamplingResult{Decision: decision, Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
}

func (c chance) Description() string { return "a share of all requests" }

// spanSender sends spans in batches, which the SDK makes.
type spanSender struct {
	sender *sender
	about  *resourcepb.Resource
	outage outage
}

// ExportSpans implements sdktrace.SpanExporter. It reports no error: the SDK would log it once more.
func (s *spanSender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	var scopes []*tracepb.ScopeSpans
	of := map[instrumentation.Scope]*tracepb.ScopeSpans{}
	for _, span := range spans {
		scope := span.InstrumentationScope()
		if of[scope] == nil {
			of[scope] = &tracepb.ScopeSpans{Scope: &common.InstrumentationScope{Name: scope.Name, Version: scope.Version}}
			scopes = append(scopes, of[scope])
		}
		of[scope].Spans = append(of[scope].Spans, spanOf(span))
	}
	s.outage.note(ctx, s.sender.post(ctx, "/v1/traces", &tracepb.TracesData{
		ResourceSpans: []*tracepb.ResourceSpans{{Resource: s.about, ScopeSpans: scopes}},
	}))
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (*spanSender) Shutdown(context.Context) error { return nil }

// spanOf returns the span without events and the text of its status, which may hold what callers sent.
func spanOf(span sdktrace.ReadOnlySpan) *tracepb.Span {
	is, parent := span.SpanContext(), span.Parent()
	traceID, spanID, parentID := is.TraceID(), is.SpanID(), parent.SpanID()
	flags := tracepb.SpanFlags(is.TraceFlags()) | tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
	if parent.IsRemote() {
		flags |= tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
	}
	out := &tracepb.Span{
		TraceId: traceID[:], SpanId: spanID[:], TraceState: is.TraceState().String(), Flags: uint32(flags),
		Name: span.Name(), Kind: tracepb.Span_SpanKind(span.SpanKind()), Attributes: keyValues(span.Attributes()),
		StartTimeUnixNano: uint64(span.StartTime().UnixNano()), EndTimeUnixNano: uint64(span.EndTime().UnixNano()),
		DroppedAttributesCount: uint32(span.DroppedAttributes()), Status: &tracepb.Status{},
	}
	if parent.HasSpanID() {
		out.ParentSpanId = parentID[:]
	}
	switch span.Status().Code {
	case codes.Ok:
		out.Status.Code = tracepb.Status_STATUS_CODE_OK
	case codes.Error:
		out.Status.Code = tracepb.Status_STATUS_CODE_ERROR
	}
	return out
}

func keyValues(attributes []attribute.KeyValue) []*common.KeyValue {
	out := make([]*common.KeyValue, 0, len(attributes))
	for _, a := range attributes {
		value := &common.AnyValue{}
		switch a.Value.Type() {
		case attribute.BOOL:
			value.Value = &common.AnyValue_BoolValue{BoolValue: a.Value.AsBool()}
		case attribute.INT64:
			value.Value = &common.AnyValue_IntValue{IntValue: a.Value.AsInt64()}
		case attribute.FLOAT64:
			value.Value = &common.AnyValue_DoubleValue{DoubleValue: a.Value.AsFloat64()}
		default: // lists as well, which nothing here has
			value.Value = &common.AnyValue_StringValue{StringValue: a.Value.String()}
		}
		out = append(out, &common.KeyValue{Key: string(a.Key), Value: value})
	}
	return out
}
