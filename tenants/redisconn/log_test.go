package redisconn_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tenantry/tenants/redisconn"
)

func TestRepeatedClientMessagesAreSuppressed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Now()
	l := redisconn.NewLogger(slog.New(slog.NewTextHandler(&out, nil)), func() time.Time { return now })
	say := func(format string, args ...any) string {
		out.Reset()
		l.Printf(t.Context(), format, args...)
		return out.String()
	}
	if line := say("dial %d failed", 1); !strings.Contains(line, "level=WARN") || !strings.Contains(line, "dial 1 failed") || !strings.Contains(line, "suppressed=0") {
		t.Errorf("first: %s", line)
	}
	for n := range 5 {
		if line := say("dial %d failed", n); line != "" {
			t.Errorf("again: %s", line)
		}
	}
	if line := say("another"); !strings.Contains(line, "another") {
		t.Errorf("another: %s", line)
	}
	now = now.Add(10 * time.Second)
	if line := say("dial %d failed", 9); !strings.Contains(line, "dial 9 failed") || !strings.Contains(line, "suppressed=5") {
		t.Errorf("later: %s", line)
	}
	for n := range 256 {
		say(strings.Repeat("x", n)+"%d", n)
	}
	if line := say("dial %d failed", 10); !strings.Contains(line, "dial 10 failed") {
		t.Errorf("after 256 other texts one is still remembered: %q, want it logged", line)
	}
}
