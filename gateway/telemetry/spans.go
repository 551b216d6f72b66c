package telemetry

import (
	"context"
	"math/rand/v2"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// shareSampler samples a share of all requests at random. It does not use the trace ID, which the caller chooses.
type shareSampler float64

func (c shareSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	decision := sdktrace.Drop
	if rand.Float64() < float64(c) { //nolint:gosec // sampling needs no secure randomness
		decision = sdktrace.RecordAndSample
	}
	state := trace.SpanContextFromContext(p.ParentContext).TraceState()
	return sdktrace.SamplingResult{Decision: decision, Tracestate: state}
}

func (c shareSampler) Description() string { return "a share of all requests" }

// spanSender sends the batches of spans that the SDK makes.
type spanSender struct {
	sender   *sender
	resource *resourcepb.Resource
	outage   outage
}

// ExportSpans implements sdktrace.SpanExporter. It returns no error, because the SDK would log it again.
func (s *spanSender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	var scopes []*tracepb.ScopeSpans
	byScope := map[instrumentation.Scope]*tracepb.ScopeSpans{}
	for _, span := range spans {
		scope := span.InstrumentationScope()
		if byScope[scope] == nil {
			byScope[scope] = &tracepb.ScopeSpans{Scope: &common.InstrumentationScope{Name: scope.Name, Version: scope.Version}}
			scopes = append(scopes, byScope[scope])
		}
		byScope[scope].Spans = append(byScope[scope].Spans, spanOf(span))
	}
	s.outage.note(ctx, s.sender.post(ctx, "/v1/traces", &tracepb.TracesData{
		ResourceSpans: []*tracepb.ResourceSpans{{Resource: s.resource, ScopeSpans: scopes}},
	}))
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (*spanSender) Shutdown(context.Context) error { return nil }

// spanOf converts a span, without its events and the text of its status, which may contain input of callers.
func spanOf(span sdktrace.ReadOnlySpan) *tracepb.Span {
	self, parent := span.SpanContext(), span.Parent()
	traceID, spanID, parentID := self.TraceID(), self.SpanID(), parent.SpanID()
	flags := tracepb.SpanFlags(self.TraceFlags()) | tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
	if parent.IsRemote() {
		flags |= tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
	}
	out := &tracepb.Span{
		TraceId: traceID[:], SpanId: spanID[:], TraceState: self.TraceState().String(), Flags: uint32(flags),
		Name: validUTF8(span.Name()), Kind: tracepb.Span_SpanKind(span.SpanKind()), Attributes: keyValues(span.Attributes()),
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
		default: // also lists, which no span here has
			value.Value = &common.AnyValue_StringValue{StringValue: validUTF8(a.Value.String())}
		}
		out = append(out, &common.KeyValue{Key: string(a.Key), Value: value})
	}
	return out
}

// validUTF8 replaces bytes that are not UTF-8. A message that has any cannot be encoded, and all of its spans would be
// lost.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
