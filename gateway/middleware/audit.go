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

// dropHeaders drops the headers that the handler has set, such as a session cookie.
func (x *exchange) dropHeaders() {
	kept := http.Header{}
	for _, name := range []string{"Access-Control-Allow-Origin", "Vary", "Cache-Control"} {
		if values, ok := x.call.Header[name]; ok {
			kept[name] = values
		}
	}
	x.call.Header = kept
}

// audit writes an audit record of the call if the row asks for one.
func (x *exchange) audit(ctx context.Context, problem *operation.Problem) error {
	if x.op.Audit != operation.AuditAlways || x.call.Tenant == nil || x.call.Tenant.Workspace() == nil {
		return nil
	}
	if !x.noteFlood(problem) {
		return nil
	}
	rec := x.record(problem)
	if problem == nil && x.call.Journaled() && maps.Equal(rec.Facts, x.journaled) {
		return nil // the commit of the handler has stored the same record
	}
	ws := x.call.Tenant.Workspace()
	rec.Facts = maps.Clone(rec.Facts)
	if problem != nil && !x.known() && x.p.Audit.Later(ws, rec, x.logUnrecorded) {
		return nil // waiting for it would reveal that there is an organization
	}
	if err := x.p.Audit.Write(ctx, ws, rec); err != nil {
		return fmt.Errorf("audit log: %w", errors.Join(err, store.ErrUnavailable))
	}
	return nil
}

// known reports whether the credential of the caller was accepted.
func (x *exchange) known() bool {
	return x.call.Principal != nil && x.call.Principal.Kind != tenants.Anonymous
}

// logUnrecorded logs that the refusal of a caller without a valid credential has no audit record.
func (x *exchange) logUnrecorded(err error) {
	x.p.Log.Warn("a refusal could not be recorded in the audit log", "operation", x.op.Name,
		"org", x.call.Tenant.Org.OrgID, "request_id", x.call.RequestID, "error", err)
}

// record returns the audit record of the call.
func (x *exchange) record(problem *operation.Problem) audit.Record {
	rec := audit.Record{
		Operation: x.op.Name, Subject: "anonymous", Outcome: audit.OK, Code: x.op.Success(),
		RequestID: x.call.RequestID, Facts: x.call.AuditNote,
	}
	if c := x.call; c.Principal != nil {
		rec.Subject, rec.Account = c.Principal.Subject(), c.Principal.AccountID
	}
	if remote := x.call.Remote.WithZone(""); remote.IsValid() {
		rec.Remote = remote.String()
	}
	x.addPathRecords(&rec)
	if problem != nil {
		rec.Code, rec.Outcome = problem.Code, audit.Failed
		if problem.Code == http.StatusForbidden {
			rec.Outcome = audit.Denied
		}
	}
	return rec
}

// addPathRecords adds the identifiers of records in the path that the handler has not noted.
func (x *exchange) addPathRecords(rec *audit.Record) {
	for _, p := range x.op.Params {
		id := x.call.Path(p.Name)
		noted := slices.Contains(slices.Collect(maps.Values(rec.Facts)), id)
		if p.In == operation.InPath && store.ValidID(id) && !noted {
			x.call.Note(p.Name, id)
		}
	}
	rec.Facts = x.call.AuditNote
}
