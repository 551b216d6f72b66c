// Package request says what is known of a request while it is answered, to whoever works for it: by
// what it is named in logs and traces, and what it has cost so far.
package request

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Request is one request. Its names are set before anybody sees it; its cost is safe for concurrent use.
type Request struct {
	ID      string // of this gateway
	TraceID string // of the trace it is part of (W3C Trace Context); empty: of none
	// Watch is who wants to know what the store is asked for it: a *store.Watch; nil: nobody.
	Watch any
	// Room is asked before the request holds much; nil: it holds what it needs.
	Room Room
	// Pace is what the request has while it works for long; nil: it needs none.
	Pace Pace
	// LeftOut counts records that its lists do without, since they cannot be read.
	LeftOut atomic.Int64

	calls, took atomic.Int64
}

// Room is where requests find room for what they hold in memory.
type Room interface {
	// Hold makes room for more bytes of answers, besides what the request holds already, until it has been answered. It
	// may wait a moment. Error: the one to answer with where there is none.
	Hold(ctx context.Context, more int64) error
}

// Pace is what requests have while they work for long, of which an organization has some at a time.
type Pace interface {
	// Rest gives it to others, while the request waits for something else, until the returned function is called.
	Rest() (again func())
}

// Rest is that of the pace of the request that a context is of, where it has one.
func Rest(ctx context.Context) (again func()) {
	if r := From(ctx); r != nil && r.Pace != nil {
		return r.Pace.Rest()
	}
	return func() {}
}

// Spent adds a call of the store that took so long.
func (r *Request) Spent(took time.Duration) {
	r.calls.Add(1)
	r.took.Add(int64(took))
}

// Calls returns how many calls of the store there were.
func (r *Request) Calls() int64 { return r.calls.Load() }

// Took returns how long they took together.
func (r *Request) Took() time.Duration { return time.Duration(r.took.Load()) }

type key struct{}

// With returns a context of what is done for the request.
func With(ctx context.Context, r *Request) context.Context { return context.WithValue(ctx, key{}, r) }

// From returns the request that a context is of, nil for none.
func From(ctx context.Context) *Request {
	r, _ := ctx.Value(key{}).(*Request)
	return r
}

// Log returns a handler that adds to each line of a request how that is named.
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

// Names returns what log lines say of the request.
func (r *Request) Names() []slog.Attr {
	names := []slog.Attr{slog.String("request_id", r.ID)}
	if r.TraceID != "" {
		names = append(names, slog.String("trace_id", r.TraceID))
	}
	return names
}
