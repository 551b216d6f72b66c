package middleware

import (
	"testing"
	"time"
)

func TestOutageIsToldNowAndThen(t *testing.T) {
	t.Parallel()
	var o outages
	start := time.Now()
	for i, c := range []struct {
		operation string
		after     time.Duration
		tell      bool
		untold    int
	}{
		{"a", 0, true, 0}, {"a", time.Second, false, 0}, {"b", time.Second, true, 0}, {"a", tellEvery - 1, false, 0},
		{"a", tellEvery, true, 2}, {"a", tellEvery, false, 0}, {"a", 3 * tellEvery, true, 1},
		{"a", 0, true, 0}, // the clock was set back
	} {
		if tell, untold := o.tell(c.operation, start.Add(c.after)); tell != c.tell || untold != c.untold {
			t.Errorf("%d: %s after %s: %v, %d", i, c.operation, c.after, tell, untold)
		}
	}
}
