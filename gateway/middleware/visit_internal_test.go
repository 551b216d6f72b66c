package middleware

import (
	"net/http"
	"testing"

	"tenantry/operation"
)

// TestPagesRunOnlyQueriesInTheProcess: operations that change something, are audited or stream need a request of their
// own, whose pipeline records them.
func TestPagesRunOnlyQueriesInTheProcess(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]operation.Row{
		"a change":          {Name: "contacts.create", Method: http.MethodPost},
		"an audited read":   {Name: "contacts.reveal", Method: http.MethodGet, Policy: operation.Policy{Audit: operation.AuditAlways}},
		"a streamed answer": {Name: "contacts.export", Method: http.MethodGet, Response: operation.Response{Streams: []string{operation.NDJSON}}},
	} {
		x := &exchange{}
		if _, err := x.runForPage(t.Context(), nil, &row, nil, ""); err == nil {
			t.Errorf("%s ran without a request, want an error", name)
		}
	}
}
