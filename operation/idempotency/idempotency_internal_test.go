package idempotency

import (
	"testing"
	"time"
)

func TestRation(t *testing.T) {
	t.Parallel()
	var r budget
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fill := func(bytes int) (kept int) {
		for r.take(now, bytes) {
			kept += bytes
		}
		return kept
	}
	if kept := fill(1 << 20); kept != largePerDay {
		t.Errorf("of large answers %d bytes are kept", kept)
	}
	if kept := fill(smallAnswer); kept != keptPerDay-largePerDay {
		t.Errorf("of small answers %d bytes are kept besides", kept)
	}
	if now = now.Add(Kept - 1); r.take(now, 1) {
		t.Error("it begins anew before the first answers have gone")
	}
	if now = now.Add(1); !r.take(now, 1<<20) {
		t.Error("it does not begin anew")
	}
}
