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
	// flushInterval bounds how long a line is buffered, and so what is lost when the process is killed.
	flushInterval = 100 * time.Millisecond
)

// New returns a logger that writes to w according to the settings. Lines are buffered for up to 100 ms, so that a busy
// gateway does not write once per request. Warnings and errors are written at once, with all lines before them. Close
// writes the rest.
func New(w io.Writer, c config.Log) (*slog.Logger, *Output) {
	level := new(slog.LevelVar)
	b := &buffer{
		out: w, w: bufio.NewWriterSize(w, bufferSize), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go b.run()
	o := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewJSONHandler(b, o)
	if c.Format == "text" {
		h = slog.NewTextHandler(b, o)
	}
	out := &Output{b, level}
	out.SetLevel(c.Level)
	return slog.New(&handler{h, b, c.Format != "text"}), out
}

// Output is where the lines of a logger go. Safe for concurrent use.
type Output struct {
	*buffer
	level *slog.LevelVar
}

// SetLevel sets the least severe level that is written: debug, info, warn or error.
func (o *Output) SetLevel(level string) {
	_ = o.level.UnmarshalText([]byte(level)) // config has checked it; unchanged if empty
}

// handler flushes the buffer after warnings and errors.
type handler struct {
	slog.Handler
	b    *buffer
	json bool // a JSON handler without attributes or groups, so a Line can be written directly
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

// buffer is a buffered writer that is flushed in the background. Safe for concurrent use.
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
		// The buffered lines are lost, but later ones can be written again.
		b.w.Reset(b.out)
	}
}

func (b *buffer) run() {
	defer close(b.stopped)
	tick := time.NewTicker(flushInterval)
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

// Close writes the buffered lines. Later lines are written at once.
func (b *buffer) Close() error {
	b.once.Do(func() { close(b.stop) })
	<-b.stopped
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.w.Flush()
}
