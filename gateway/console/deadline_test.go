package console

import (
	"net/http"
	"testing"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/visit"
	"tenantry/operation"
)

// TestFormsHaveTheTimeOfTheirOperation checks which paths are forms of operations, whose deadline they get.
func TestFormsHaveTheTimeOfTheirOperation(t *testing.T) {
	t.Parallel()
	m := &Module{common: visit.Console{Client: &ask.Client{}}}
	m.Serve([]operation.Row{{Name: "folders.delete", Method: http.MethodDelete, Path: "/api/files/folders/{id}", Policy: operation.Policy{Credentials: operation.Session}}}, http.NotFoundHandler())
	for path, want := range map[string]bool{
		"/do/folders.delete": true, "/docs/folders.delete/try": true,
		"/docs/folders.delete": false, "/do/folders.delete/try": false, "/do/nothing": false, "/docs/nothing/try": false, "/files/folders": false, "/": false,
	} {
		if got := m.formOperation(path) != nil; got != want {
			t.Errorf("formOperation(%s) found an operation: %t, want %t", path, got, want)
		}
	}
}
