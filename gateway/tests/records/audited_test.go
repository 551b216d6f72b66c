package records

import (
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/audit"
	"tenantry/operation"
)

// TestEachCallIsAuditedOnce: a call whose record was stored in the commit of its change leaves no second one.
func TestEachCallIsAuditedOnce(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	once := 0
	for _, op := range w.Rows() {
		if op.Audit != operation.AuditAlways || op.Upload != nil || fixture.EndsSessions(op) >= 0 {
			continue
		}
		as := gatewaytest.WithKey(w.A.FullKey)
		if op.Credentials&operation.Key == 0 || op.Rule.IsAdminOnly() {
			as = gatewaytest.Cookie(w.A.AdminCookie)
		}
		records := func() (n int) {
			for _, r := range fixture.AuditRecords(t, w.A.Org, 1000) {
				if r.Operation == op.Name && r.Outcome == audit.OK {
					n++
				}
			}
			return n
		}
		before := records()
		q := w.Build(&op, op.Path, fixture.SampleFor(&op), w.A.Own, fixture.Every)
		if a := w.A.Do(t, q.Method, q.Target, append(q.Changes, as)...); a.Status != "ok" {
			continue // another test holds that samples succeed
		}
		if got := records() - before; got != 1 {
			t.Errorf("%s left %d audit records, want 1", op.Name, got)
		}
		once++
	}
	if once < 40 && !testing.Short() { // with -short, only some of the rows are tried
		t.Errorf("%d audited operations succeeded, want 40 or more", once)
	}
}
