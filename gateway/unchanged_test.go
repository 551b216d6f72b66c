package gateway_test

import (
	"net/http"
	"slices"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/operation"
)

// TestWhatAnAnswerShowsMayBeSentBack: of each record that can be read and changed, all that callers may set of it is taken
// as the answer shows it, and a PUT of nothing leaves it as it is.
func TestWhatAnAnswerShowsMayBeSentBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPlants)
	p, rows, tried := w.a, w.App.Operations(), 0
	for _, op := range rows {
		at := slices.IndexFunc(rows, func(o operation.Row) bool { return o.Method == http.MethodGet && o.Path == op.Path })
		if op.Method != http.MethodPut || at < 0 {
			continue
		}
		get := w.build(&rows[at], rows[at].Path, sampleFor(&rows[at]), p.own, func(string) bool { return false })
		shown := p.Do(t, get.method, get.target, p.showFor(&op))
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
			t.Errorf("%s: %d %s", rows[at].Name, shown.Code, shown.Body)
		}
		for _, sent := range []any{body, map[string]any{}} {
			if a := p.Do(t, op.Method, get.target, p.showFor(&op), gatewaytest.JSON(sent)); a.Code != http.StatusOK {
				t.Errorf("%s of %v: %d %s", op.Name, sent, a.Code, a.Body)
			}
		}
		tried++
	}
	if tried < 15 {
		t.Errorf("only %d resources", tried)
	}
	file := "/api/files/" + p.ids[refFile]
	p.Do(t, http.MethodPut, file, gatewaytest.WithKey(p.key), jsonText(`{"contact_id":null,"folder_id":null}`))
	if a := p.Do(t, http.MethodPut, file, gatewaytest.WithKey(p.key), jsonText(`{"contact_id":"","folder_id":""}`)); a.Code != http.StatusOK || a.Field("contact_id") != "" {
		t.Errorf("a file of nobody: %d %s", a.Code, a.Body)
	}
}

// TestActionsOnARecordHonourIfMatch: what was decided about another revision of the record is not done.
func TestActionsOnARecordHonourIfMatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p, tried := w.a, 0
	for _, op := range w.App.Operations() {
		if !op.OnRecord || op.Expire != nil { // for which it must have been deleted; see TestCRUD_Revisions
			continue
		}
		tried++
		q := w.build(&op, op.Path, sampleFor(&op), p.own, func(string) bool { return false })
		for tag, code := range map[string]int{`"0-x"`: http.StatusPreconditionFailed, "*": http.StatusOK} {
			if a := p.Do(t, q.method, q.target, append(q.changes, p.showFor(&op), gatewaytest.Header("If-Match", tag))...); a.Code != code && a.Code != http.StatusUnprocessableEntity {
				t.Errorf("%s with %s: %d %s", op.Name, tag, a.Code, a.Body)
			}
		}
	}
	if tried < 4 {
		t.Errorf("only %d operations", tried)
	}
}
