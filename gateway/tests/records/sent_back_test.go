package records

import (
	"net/http"
	"slices"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
)

// TestAnswersCanBeSentBack checks that every record accepts the settable fields of its own answer, and that
// an empty PUT changes nothing.
func TestAnswersCanBeSentBack(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	p, rows, tried := w.A, w.App.Operations(), 0
	for _, op := range rows {
		at := slices.IndexFunc(rows, func(o operation.Row) bool { return o.Method == http.MethodGet && o.Path == op.Path })
		if op.Method != http.MethodPut || at < 0 {
			continue
		}
		get := w.Build(&rows[at], rows[at].Path, fixture.SampleFor(&rows[at]), p.Own, func(string) bool { return false })
		shown := p.Do(t, get.Method, get.Target, p.CredentialFor(&op))
		body := map[string]any{}
		for _, f := range op.Body {
			if v := shown.Field(f.Name); v != nil || f.Nullable {
				body[f.Name] = v
			}
		}
		if op.Name == "users.update" { // the contract shows them with labels
			delete(body, "roles")
			delete(body, "permissions")
		}
		if shown.Code != http.StatusOK || len(body) == 0 {
			t.Errorf("%s: got %d %s, want %v and len(body) > 0", rows[at].Name, shown.Code, shown.Body, http.StatusOK)
		}
		for _, sent := range []any{body, map[string]any{}} {
			if a := p.Do(t, op.Method, get.Target, p.CredentialFor(&op), gatewaytest.JSON(sent)); a.Code != http.StatusOK {
				t.Errorf("%s of %v: got %d %s, want 200", op.Name, sent, a.Code, a.Body)
			}
		}
		tried++
	}
	if tried < 15 {
		t.Errorf("only %d resources, want at least 15", tried)
	}
	file := "/api/files/" + p.IDs[fixture.RefFile]
	p.Do(t, http.MethodPut, file, gatewaytest.WithKey(p.FullKey), fixture.JSONText(`{"contact_id":null,"folder_id":null}`))
	if a := p.Do(t, http.MethodPut, file, gatewaytest.WithKey(p.FullKey), fixture.JSONText(`{"contact_id":"","folder_id":""}`)); a.Code != http.StatusOK || a.Field("contact_id") != "" {
		t.Errorf("a file of nobody: got %d %s, want 200 and contact_id %q", a.Code, a.Body, "")
	}
}

// TestActionsOnARecordHonourIfMatch checks that an action on another revision of the record is refused.
func TestActionsOnARecordHonourIfMatch(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p, tried := w.A, 0
	for _, op := range w.App.Operations() {
		if !op.OnRecord || op.Expire != nil { // for which it must have been deleted; see TestCRUD_Revisions
			continue
		}
		tried++
		q := w.Build(&op, op.Path, fixture.SampleFor(&op), p.Own, func(string) bool { return false })
		for tag, code := range map[string]int{`"0-x"`: http.StatusPreconditionFailed, "*": http.StatusOK} {
			if a := p.Do(t, q.Method, q.Target, append(q.Changes, p.CredentialFor(&op), gatewaytest.Header("If-Match", tag))...); a.Code != code && a.Code != http.StatusUnprocessableEntity {
				t.Errorf("%s with %s: got %d %s, want the code of a match or 422", op.Name, tag, a.Code, a.Body)
			}
		}
	}
	if tried < 4 {
		t.Errorf("only %d operations, want at least 4", tried)
	}
}
