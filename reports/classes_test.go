package reports_test

import (
	"strings"
	"testing"

	"tenantry/backends/store"
	"tenantry/reports"
)

// TestNewClass_FieldThatQueriesCannotName: a field with a title in reports must be one that the store keeps apart, so
// that the program does not start with reports that would always fail.
func TestNewClass_FieldThatQueriesCannotName(t *testing.T) {
	t.Parallel()
	type note struct {
		store.Meta
		Mood string `json:"mood,omitempty" report:"Mood"`
	}
	kind := store.Must[note](store.Spec{Name: "notes"})
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "notes does not store mood") {
			t.Errorf("NewClass said %q, want it to refuse mood", said)
		}
	}()
	reports.NewClass("Notes", kind, "", nil)
}
