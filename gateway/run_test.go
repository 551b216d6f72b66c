package gateway

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tenantry/gateway/handover"
)

// TestTakeSuccessor_Refused: only one process may take over, and only while the gateway serves.
func TestTakeSuccessor_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		phase phase
		asked bool
		code  int
		says  string
	}{
		"starting":    {starting, false, http.StatusServiceUnavailable, "starting"},
		"stopping":    {stopping, false, http.StatusServiceUnavailable, "stopping"},
		"asked twice": {serving, true, http.StatusConflict, "already"},
	} {
		var a App
		a.phase.Store(c.phase)
		a.asked.Store(c.asked)
		w := httptest.NewRecorder()
		a.takeSuccessor(w, httptest.NewRequest(http.MethodPost, handover.Path, http.NoBody))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %q, want %d and %q", name, w.Code, w.Body, c.code, c.says)
		}
	}
}
