package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"tenantry/backends/store"
	"tenantry/modules/audit"
	"tenantry/operation"
	"tenantry/tenants"
)

// withhold drops what the handler wanted to tell in headers, a session's cookie for one.
func (x *exchange) withhold() {
	kept := http.Header{}
	for _, name := range []string{"Access-Control-Allow-Origin", "Vary", "Cache-Control"} {
		if values, ok := x.call.Header[name]; ok {
			kept[name] = values
		}
	}
	x.call.Header = kept
}

// audit records how the call ended, where the row asks for it.
func (x *exchange) audit(ctx context.Context, problem *operation.Problem) error {
	if x.op.Audit != operation.AuditAlways || x.call.Tenant == nil || x.call.Tenant.Workspace() == nil || !x.noteFlood(problem) {
		return nil
	}
	rec := x.record(problem)
	if problem == nil && x.call.Journaled() && maps.Equal(rec.Facts, x.recorded) {
		return nil // it was written with what it is about
	}
	ws := x.call.Tenant.Workspace()
	rec.Facts = maps.Clone(rec.Facts)
	if problem != nil && !x.known() && x.p.Audit.Later(ws, rec, x.unrecorded) {
		return nil // to wait for it would tell that there is an organization
	}
	if err := x.p.Audit.Write(ctx, ws, rec); err != nil {
		return fmt.Errorf("audit log: %w", errors.Join(err, store.ErrUnavailable))
	}
	return nil
}

// known reports whether the caller's credential was accepted.
func (x *exchange) known() bool {
	return x.call.Principal != nil && x.call.Principal.Kind != tenants.Anonymous
}

// unrecorded tells that the refusal of a caller without a credential has no audit record.
func (x *exchange) unrecorded(err error) {
	x.p.Log.Warn("a refusal could not be recorded", "operation", x.op.Name, "org", x.call.Tenant.Org.OrgID, "request_id", x.call.RequestID, "error", err)
}

// record returns how the call ended.
func (x *exchange) record(problem *operation.Problem) audit.Record {
	rec := audit.Record{
		Operation: x.op.Name, Subject: "anonymous", Outcome: audit.OK, Code: http.StatusOK,
		RequestID: x.call.RequestID, Facts: x.call.AuditNote,
	}
	if c := x.call; c.Principal != nil {
		rec.Subject, rec.Account = c.Principal.Subject(), c.Principal.AccountID
	}
	if remote := x.call.Remote.WithZone(""); remote.IsValid() {
		rec.Remote = remote.String()
	}
	x.noteRecords(&rec)
	if problem != nil {
		rec.Code, rec.Outcome = problem.Code, audit.Failed
		if problem.Code == http.StatusForbidden {
			rec.Outcome = audit.Denied
		}
	}
	return rec
}

// noteRecords adds the records that the path names, where the handler has not done so.
func (x *exchange) noteRecords(rec *audit.Record) {
	for _, p := range x.op.Params {
		if id := x.call.Path(p.Name); p.In == operation.InPath && store.ValidID(id) && !slices.Contains(slices.Collect(maps.Values(rec.Facts)), id) {
			x.call.Note(p.Name, id)
		}
	}
	rec.Facts = x.call.AuditNote
}
