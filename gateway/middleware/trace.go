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

// begin names the request and starts its span. It returns the context of the request. A caller may choose the name with
// X-Request-Id and the trace with traceparent (W3C Trace Context); both are used as names only. Several traceparent
// headers are ignored; several tracestate headers are one list.
func (x *exchange) begin() context.Context {
	x.info.ID, x.info.Room = requestID(x.r), x.roomOf()
	x.call.RequestID = x.info.ID
	ctx := request.With(x.r.Context(), &x.info)
	parents := x.r.Header["Traceparent"]
	if x.p.Tracer == nil && parents == nil {
		return ctx
	}
	if len(parents) == 1 {
		parent := propagation.MapCarrier{
			"traceparent": parents[0], "tracestate": strings.Join(x.r.Header["Tracestate"], ","),
		}
		ctx = propagation.TraceContext{}.Extract(ctx, parent)
	}
	if x.p.Tracer != nil {
		ctx, x.span = x.p.Tracer.Start(ctx, x.op.Name, trace.WithSpanKind(trace.SpanKindServer))
	}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		x.info.TraceID = span.TraceID().String()
	}
	return ctx
}

// endSpan ends the span. Its attributes are among those of the log line.
func (x *exchange) endSpan() {
	if x.span == nil {
		return
	}
	x.span.SetAttributes(attribute.String("http.request.method", x.r.Method), attribute.String("http.route", x.op.Path),
		attribute.Int("http.response.status_code", x.code), attribute.String("tenantry.request_id", x.info.ID))
	if x.call.Tenant != nil {
		x.span.SetAttributes(attribute.Int64("tenantry.organization", x.call.Tenant.Org.OrgID))
	}
	if x.code >= http.StatusInternalServerError {
		x.span.SetStatus(codes.Error, "")
	}
	x.span.End()
}
