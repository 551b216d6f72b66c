package site

import (
	"net/http"
	"testing"

	"tenantry/operation"
)

// TestFormsHaveTheTimeOfTheirOperation checks which paths are forms of operations, whose deadline they get.
func TestFormsHaveTheTimeOfTheirOperation(t *testing.T) {
	t.Parallel()
	s := New([]operation.Row{{
		Name: "folders.delete", Method: http.MethodDelete, Path: "/api/files/folders/{id}",
		Policy: operation.Policy{Credentials: operation.Session},
	}})
	for path, want := range map[string]bool{
		"/do/folders.delete": true, "/docs/folders.delete/try": true,
		"/docs/folders.delete": false, "/do/folders.delete/try": false, "/do/nothing": false, "/docs/nothing/try": false,
		"/files/folders": false, "/": false,
	} {
		if got := s.FormOperation(path) != nil; got != want {
			t.Errorf("FormOperation(%s) found an operation: %t, want %t", path, got, want)
		}
	}
}
