package mongo_test

import (
	"slices"
	"strings"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/mongo/mongotest"
)

// TestProofOfIndexes: Prove reports questions that no index serves, and indexes that no question needs.
func TestProofOfIndexes(t *testing.T) {
	t.Parallel()
	field := func(name string, v any) driver.Predicate {
		typ := driver.String
		if name == "teams" {
			typ = driver.Strings
		}
		return driver.Predicate{Op: driver.Eq, Ref: driver.Ref{Name: name, Type: typ}, Values: []any{v}}
	}
	by := func(name string) []driver.Order { return []driver.Order{{Ref: driver.Ref{Name: name}}} }
	c := people()
	questions := []mongotest.Question{
		{}, {Where: field("email", "x")}, {Sort: by("email")}, {Where: field("country", "DE"), Sort: by("created")}, {Sort: by("created")}, {Where: field("teams", "red")},
		{Where: driver.Predicate{Op: driver.Eq, Ref: driver.Ref{Name: "plan", Custom: true, Type: driver.Any}, Values: []any{"1"}}},
	}
	if unserved, unneeded, n := mongotest.Prove(t, c, questions); len(unserved)+len(unneeded) > 0 || n != 8 {
		t.Errorf("of %d indexes: not served %q, not needed %q; want 8, none and none", n, unserved, unneeded)
	}
	c.Indexes[0].Ordered = false // removes the plain index beside the unique one
	c.Indexes = append(c.Indexes, driver.Index{Name: "name", Fields: []string{"name"}})
	unserved, unneeded, _ := mongotest.Prove(t, c, append(questions, mongotest.Question{Where: field("country", "DE"), Sort: by("name")}))
	if len(unserved) != 2 || !strings.Contains(unserved[0], `"email"`) || !strings.Contains(unserved[1], `"name"`) {
		t.Errorf("not served: %q, want those by email and by name", unserved)
	}
	if len(unneeded) != 1 || !slices.ContainsFunc(unneeded, func(name string) bool { return strings.HasPrefix(name, "name_") }) {
		t.Errorf("not needed: %q, want that on the name", unneeded)
	}
}
