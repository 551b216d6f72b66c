package fairqueue_test

import (
	"testing"

	"tenantry/internal/fairqueue"
)

// TestTurns checks that a party that used more starts later, that idle parties save up no turns, and that cancelled
// work costs nothing.
func TestTurns(t *testing.T) {
	t.Parallel()
	var turns fairqueue.Turns[string]
	if a, b, c := turns.Start("a", 10), turns.Start("a", 10), turns.Start("b", 10); a != 0 || b != 10 || c != 0 {
		t.Errorf("a starts at %d and %d, b at %d, want 0, 10 and 0", a, b, c)
	}
	turns.Serve(0, 10, 2) // now is 5
	if late := turns.Start("c", 1); late != 5 {
		t.Errorf("a late party starts at %d, want 5", late)
	}
	turns.Cancel("a", 10)
	if a := turns.Start("a", 1); a != 10 {
		t.Errorf("after a cancellation the next starts at %d, want 10", a)
	}
	turns.Cancel("nobody", 7)
	turns.Serve(100, 1, 0)
	if n := turns.Known(); n != 0 {
		t.Errorf("Known() = %d, want 0", n)
	}
}

// TestTurns_NewPartiesDoNotKeepOthersWaiting checks that waiting work is served however many new parties come.
func TestTurns_NewPartiesDoNotKeepOthersWaiting(t *testing.T) {
	t.Parallel()
	var turns fairqueue.Turns[int]
	turns.Serve(turns.Start(-1, 1000), 1000, 1)
	turns.Start(-1, 1000)
	waits := turns.Start(-1, 1000)
	for n := range 10_000 {
		start := turns.Start(n, 10)
		if start > waits {
			return
		}
		turns.Serve(start, 10, 2)
	}
	t.Error("got 10,000 new parties served before the waiting work, want fewer")
}
