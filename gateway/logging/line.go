package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"time"
)

// Line is one line of the log, for messages of which there are many, such as one for each request. For JSON it encodes
// the line itself, without the allocations of slog; the bytes are the same. It takes 0.5 µs where slog takes 1.3
// (BenchmarkLine), which saves 2 to 3 % of the processor time of a cached read. A Line must be used by one goroutine.
type Line struct {
	to   *buffer // nil: the line is written by slog
	text []byte

	other  slog.Handler
	record slog.Record
}

// maxPooled is the largest line whose memory goes back to the pool.
const maxPooled = 4 << 10

// Begin returns a line with the time and message, or nil if the level is not enabled. The caller must call End.
func Begin(ctx context.Context, log slog.Handler, at time.Time, level slog.Level, message string) *Line {
	if !log.Enabled(ctx, level) {
		return nil
	}
	h, ok := log.(*handler)
	if !ok || !h.json {
		return &Line{other: log, record: slog.NewRecord(at, level, message, 0)}
	}
	l, ok := h.b.lines.Get().(*Line)
	if !ok {
		l = &Line{to: h.b}
	}
	l.text = at.AppendFormat(append(l.text[:0], `{"time":"`...), time.RFC3339Nano)
	l.text = append(append(l.text, `","level":"`...), level.String()...)
	l.text = append(l.text, `","msg":`...)
	l.quote(message)
	return l
}

// Int adds a number.
func (l *Line) Int(key string, n int64) {
	if l.to == nil {
		l.record.AddAttrs(slog.Int64(key, n))
		return
	}
	l.key(key)
	l.text = strconv.AppendInt(l.text, n, 10)
}

// Text adds a text, unless it is empty.
func (l *Line) Text(key, text string) {
	switch {
	case text == "":
	case l.to == nil:
		l.record.AddAttrs(slog.String(key, text))
	default:
		l.key(key)
		l.quote(text)
	}
}

func (l *Line) key(key string) {
	l.text = append(l.text, ',')
	l.quote(key)
	l.text = append(l.text, ':')
}

func (l *Line) quote(text string) {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			into := bytes.NewBuffer(l.text)
			enc := json.NewEncoder(into)
			enc.SetEscapeHTML(false)
			_ = enc.Encode(text) // encoding a string never fails
			l.text = bytes.TrimSuffix(into.Bytes(), []byte("\n"))
			return
		}
	}
	l.text = append(append(append(l.text, '"'), text...), '"')
}

// End writes the line. It ignores errors, because there is nowhere to report them.
func (l *Line) End(ctx context.Context) {
	if l.to == nil {
		_ = l.other.Handle(ctx, l.record)
		return
	}
	_, _ = l.to.Write(append(l.text, "}\n"...))
	if cap(l.text) <= maxPooled {
		l.to.lines.Put(l)
	}
}
