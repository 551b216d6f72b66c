// Package request carries a request's identifier, trace, cost and resources through the context of its work.
package request

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Request is one request. Its fields are set before it is shared; its counters are safe for concurrent use.
type Request struct {
	ID      string // the identifier in logs and answers
	TraceID string // of the trace that it is part of (W3C Trace Context); empty: none
	// Watch is a *store.Watch that observes the queries of the request; nil: none.
	Watch any
	// Room reserves memory before the request holds much; nil: the request is not bounded.
	Room Room
	// Pace is held while the request works for long; nil: it needs none.
	Pace Pace
	// LeftOut counts records that its lists omit because they cannot be read.
	LeftOut atomic.Int64

	calls, took atomic.Int64
}

// Room reserves memory for requests.
type Room interface {
	// Hold reserves more bytes for the answer, in addition to earlier ones, until the request has been answered. It may
	// wait a moment. If there is no room, it returns the error to answer with.
	Hold(ctx context.Context, more int64) error
}

// Pace is a slot for long work. Each organization has a limited number of them.
type Pace interface {
	// Rest releases the slot while the request waits for something else, until the returned function is called.
	Rest() (again func())
}

// Rest calls the Rest of the Pace of the context's request, if it has one.
func Rest(ctx context.Context) (again func()) {
	if r := From(ctx); r != nil && r.Pace != nil {
		return r.Pace.Rest()
	}
	return func() {}
}

// Spent adds one call of the store and its duration.
func (r *Request) Spent(took time.Duration) {
	r.calls.Add(1)
	r.took.Add(int64(took))
}

// Calls returns the number of calls of the store.
func (r *Request) Calls() int64 { return r.calls.Load() }

// Took returns the total duration of the calls of the store.
func (r *Request) Took() time.Duration { return time.Duration(r.took.Load()) }

type key struct{}

// With returns a context with the request.
func With(ctx context.Context, r *Request) context.Context { return context.WithValue(ctx, key{}, r) }

// From returns the context's request, or nil.
func From(ctx context.Context) *Request {
	r, _ := ctx.Value(key{}).(*Request)
	return r
}

// Log returns a handler that adds the names of the context's request to each line.
func Log(h slog.Handler) slog.Handler { return named{h} }

type named struct{ slog.Handler }

func (n named) Handle(ctx context.Context, line slog.Record) error {
	if r := From(ctx); r != nil {
		line.AddAttrs(r.Names()...)
	}
	return n.Handler.Handle(ctx, line)
}

func (n named) WithAttrs(attrs []slog.Attr) slog.Handler { return named{n.Handler.WithAttrs(attrs)} }
func (n named) WithGroup(name string) slog.Handler       { return named{n.Handler.WithGroup(name)} }

// Names returns the attributes that identify the request in log lines.
func (r *Request) Names() []slog.Attr {
	names := []slog.Attr{slog.String("request_id", r.ID)}
	if r.TraceID != "" {
		names = append(names, slog.String("trace_id", r.TraceID))
	}
	return names
}
