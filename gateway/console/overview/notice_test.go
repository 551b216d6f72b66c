package overview

import (
	"testing"

	"tenantry/operation"
)

// TestNoticesKeepTheirOrder checks that no name can end its isolate and reorder the rest of the sentence.
func TestNoticesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	concern := operation.Concern{Name: "a\u2069\u202eb\u05d0", Cause: operation.NeverUsed}
	const want = "The key \u2068ab\u05d0\u2069 has never been used"
	if got := notice("The key ", concern); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
