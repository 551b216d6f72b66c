package logging_test

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway/logging"
)

// BenchmarkLine compares the log line of a request by Line and by slog.
func BenchmarkLine(b *testing.B) {
	log, closer := logging.New(io.Discard, config.Log{Level: "info", Format: "json"})
	defer closer.Close()
	at := time.Now()
	b.Run("line", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l := logging.Begin(b.Context(), log.Handler(), at, slog.LevelInfo, "request")
			l.Text("method", "GET")
			l.Text("operation", "reports.read")
			l.Int("code", 200)
			l.Text("status", "ok")
			l.Int("took_us", 123)
			l.Int("store_calls", 2)
			l.Int("store_us", 45)
			l.Int("bytes", 6789)
			l.Text("request_id", "0123456789abcdef01234567")
			l.Int("org", 1)
			l.Text("caller", "key")
			l.Text("key", "0123456789abcdef01234567")
			l.End(b.Context())
		}
	})
	b.Run("slog", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r := slog.NewRecord(at, slog.LevelInfo, "request", 0)
			r.AddAttrs(
				slog.String("method", "GET"), slog.String("operation", "reports.read"),
				slog.Int64("code", 200), slog.String("status", "ok"), slog.Int64("took_us", 123),
				slog.Int64("store_calls", 2), slog.Int64("store_us", 45), slog.Int64("bytes", 6789),
				slog.String("request_id", "0123456789abcdef01234567"), slog.Int64("org", 1),
				slog.String("caller", "key"), slog.String("key", "0123456789abcdef01234567"),
			)
			_ = log.Handler().Handle(b.Context(), r)
		}
	})
}
