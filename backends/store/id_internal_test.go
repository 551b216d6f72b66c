package store

import (
	"strings"
	"testing"
	"time"
)

// Identifiers ascend even if the counter overflows within a second, or the clock is set back.
func TestIDsAscendPastOverflowAndClock(t *testing.T) {
	t.Parallel()
	s := newIDSource()
	now := time.Unix(1_700_000_000, 0)
	last := s.next(now)
	if !strings.HasPrefix(last, "6553f100") || !ValidID(last) {
		t.Fatalf("%s does not start with the time", last)
	}
	s.last.Store(s.last.Load() | 0xfffffd)
	for _, at := range []time.Time{now, now, now, now, now, now.Add(-time.Hour), now, now.Add(time.Second), now.Add(2 * time.Second), now} {
		id := s.next(at)
		if id <= last || !ValidID(id) {
			t.Errorf("%s follows %s", id, last)
		}
		last = id
	}
	if !strings.HasPrefix(last, "6553f102") {
		t.Errorf("%s is not of the latest second", last)
	}
}
