package middleware

import (
	"testing"
	"time"
)

func TestFloodIsCountedNotWritten(t *testing.T) {
	t.Parallel()
	f := &flood{}
	now := time.Unix(6000, 0)
	written := 0
	for range 10 * floodPerMinute {
		if write, dropped := f.admit(now, floodPerMinute); write {
			written++
			if dropped != 0 {
				t.Fatalf("%d not written before anything was", dropped)
			}
		}
	}
	if written != floodPerMinute {
		t.Errorf("%d written", written)
	}
	write, dropped := f.admit(now.Add(time.Minute), floodPerMinute)
	if !write || dropped != 9*floodPerMinute {
		t.Errorf("next minute: %v, %d not written", write, dropped)
	}
	if _, dropped := f.admit(now.Add(time.Minute), floodPerMinute); dropped != 0 {
		t.Errorf("told twice: %d", dropped)
	}
}
