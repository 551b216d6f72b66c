package fault_test

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"tenantry/internal/fault"
)

func TestList(t *testing.T) {
	t.Parallel()
	var l fault.List
	if err := l.Err(); err != nil {
		t.Errorf("Err() without a fault = %v, want nil", err)
	}
	for range 1000 { // hostile input can have any number of faults
		l.Add("name", fault.Length, "%s must have at most %d characters", "name", 5)
	}
	var e *fault.Error
	if err := l.Err(); !errors.As(err, &e) || len(e.Faults) != 100 {
		t.Errorf("got %d of 1000 faults, want 100", len(l))
	}
	if got, want := l[0], (fault.Fault{Field: "name", Code: "length", Message: "name must have at most 5 characters"}); got != want {
		t.Errorf("fault = %+v, want %+v", got, want)
	}
	err := fault.List{{"a", fault.Type, "a must be a string"}, {"b", fault.Required, "b is required"}}.Err()
	if got := err.Error(); got != "a must be a string; b is required" {
		t.Errorf(`Error() = %q, want "a must be a string; b is required"`, got)
	}
	if err := fault.One("a", fault.Range, "a must be %d", 1); !errors.As(err, &e) || len(e.Faults) != 1 || err.Error() != "a must be 1" {
		t.Errorf("One = %v, want an *Error with the message a must be 1", err)
	}
}

// TestCodesAreDocumented checks that docs/api.md explains every code.
func TestCodesAreDocumented(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("fault.go")
	document, missing := os.ReadFile("../../docs/api.md")
	if err != nil || missing != nil {
		t.Fatalf("got %v, %v, want no error and missing = nil", err, missing)
	}
	codes := regexp.MustCompile(`(?m)^\t[A-Z]\w+ += "(\w+)"$`).FindAllSubmatch(source, -1)
	for _, code := range codes {
		if !strings.Contains(string(document), "\n| `"+string(code[1])+"` |") {
			t.Errorf("docs/api.md has no row for the code %s, want one", code[1])
		}
	}
	if len(codes) < 10 {
		t.Errorf("got the codes %q, want at least 10", codes)
	}
}
