// Package logging makes the logger of a running gateway.
package logging

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"tenantry/config"
)

const (
	bufferSize = 64 << 10
	// flushEvery bounds how long a line may wait, and so what a killed process loses.
	flushEvery = 100 * time.Millisecond
)

// New returns a logger that writes to w as the settings say. Lines wait up to 100 ms for
// company, so that a busy gateway does not write once a request; warnings and errors are
// written at once, with everything before them. Close writes what is left.
func New(w io.Writer, c config.Log) (*slog.Logger, io.Closer) {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level)) // checked by config; otherwise info
	b := &buffer{out: w, w: bufio.NewWriterSize(w, bufferSize), stop: make(chan struct{}), stopped: make(chan struct{})}
	go b.run()
	o := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewJSONHandler(b, o)
	if c.Format == "text" {
		h = slog.NewTextHandler(b, o)
	}
	return slog.New(&handler{h, b, c.Format != "text"}), b
}

// handler writes warnings and errors through.
type handler struct {
	slog.Handler
	b    *buffer
	json bool // without attributes of its own
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.b.flush()
	}
	return err
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.b, false}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.b, false}
}

type buffer struct {
	lines   sync.Pool // of *Line
	mu      sync.Mutex
	out     io.Writer
	w       *bufio.Writer
	closed  bool
	once    sync.Once
	stop    chan struct{}
	stopped chan struct{}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.w.Write(p)
	if err == nil && b.closed {
		err = b.w.Flush()
	}
	if err != nil {
		b.w.Reset(b.out)
	}
	return n, err
}

func (b *buffer) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.w.Flush() != nil {
		// Lines are lost while nothing can be written, but those after it must not be.
		b.w.Reset(b.out)
	}
}

func (b *buffer) run() {
	defer close(b.stopped)
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.stop:
			return
		case <-tick.C:
			b.flush()
		}
	}
}

// Close writes what is left; lines that come later are written at once.
func (b *buffer) Close() error {
	b.once.Do(func() { close(b.stop) })
	<-b.stopped
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.w.Flush()
}
