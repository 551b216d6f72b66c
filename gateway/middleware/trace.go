package middleware

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"tenantry/internal/request"
)

// begin names the request, and returns the context of what is done for it. A caller may name it by
// X-Request-Id, and say by traceparent of which trace it is part (W3C Trace Context); neither is believed
// to be more than a name. Two traceparent say nothing; several tracestate are one list.
func (x *exchange) begin() context.Context {
	x.about.ID, x.about.Room = requestID(x.r), x.roomOf()
	x.call.RequestID = x.about.ID
	ctx := request.With(x.r.Context(), &x.about)
	parents := x.r.Header["Traceparent"]
	if x.p.Tracer == nil && parents == nil {
		return ctx
	}
	if len(parents) == 1 {
		of := propagation.MapCarrier{"traceparent": parents[0], "tracestate": strings.Join(x.r.Header["Tracestate"], ",")}
		ctx = propagation.TraceContext{}.Extract(ctx, of)
	}
	if x.p.Tracer != nil {
		ctx, x.span = x.p.Tracer.Start(ctx, x.op.Name, trace.WithSpanKind(trace.SpanKindServer))
	}
	if of := trace.SpanContextFromContext(ctx); of.HasTraceID() {
		x.about.TraceID = of.TraceID().String()
	}
	return ctx
}

// traced ends the span. It tells what the log line does, and no more.
func (x *exchange) traced() {
	if x.span == nil {
		return
	}
	x.span.SetAttributes(attribute.String("http.request.method", x.r.Method), attribute.String("http.route", x.op.Path),
		attribute.Int("http.response.status_code", x.code), attribute.String("tenantry.request_id", x.about.ID))
	if x.call.Tenant != nil {
		x.span.SetAttributes(attribute.Int64("tenantry.organization", x.call.Tenant.Org.OrgID))
	}
	if x.code >= http.StatusInternalServerError {
		x.span.SetStatus(codes.Error, "")
	}
	x.span.End()
}
