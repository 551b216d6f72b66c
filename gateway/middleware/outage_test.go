package middleware

import (
	"testing"
	"time"
)

// TestOutages_LogOncePerInterval: the cause of an outage is logged once per interval and operation, with the number of
// causes that were suppressed.
func TestOutages_LogOncePerInterval(t *testing.T) {
	t.Parallel()
	var o outages
	start := time.Now()
	for i, c := range []struct {
		operation  string
		after      time.Duration
		ok         bool
		suppressed int
	}{
		{"a", 0, true, 0}, {"a", time.Second, false, 0}, {"b", time.Second, true, 0}, {"a", outageLogInterval - 1, false, 0},
		{"a", outageLogInterval, true, 2}, {"a", outageLogInterval, false, 0}, {"a", 3 * outageLogInterval, true, 1},
		{"a", 0, true, 0}, // the clock was set back
	} {
		if ok, suppressed := o.admit(c.operation, start.Add(c.after)); ok != c.ok || suppressed != c.suppressed {
			t.Errorf("%d: %s after %s: got %v, %d, want %v, %d",
				i, c.operation, c.after, ok, suppressed, c.ok, c.suppressed)
		}
	}
}
