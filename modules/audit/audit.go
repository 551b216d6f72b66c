// Package audit keeps the audit log of an organization: which caller did what to which records, and with which
// outcome. It never holds secrets or values of fields.
package audit

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// Record is one entry of the log. CreatedAt is the time of the call.
type Record struct {
	store.Meta
	Operation string            `json:"operation" use:"filter" doc:"Name of the operation, or of the command." example:"contacts.reveal"`
	Subject   string            `json:"subject" use:"filter" doc:"Who called: key:<id>, user:<number>, anonymous, command, or system." example:"user:7"` // tenants.Principal.Subject
	Account   string            `json:"account,omitempty" doc:"Identifier of the key's service account."`
	Remote    string            `json:"remote,omitempty" doc:"IP address of the caller; left out for commands." example:"192.0.2.7"`
	Outcome   string            `json:"outcome" rule:"required enum=ok|failed|denied" use:"filter" doc:"How it ended." example:"ok"`
	Code      int               `json:"code" doc:"HTTP code of the answer; 0 for commands." example:"200"`
	RequestID string            `json:"request_id,omitempty" use:"filter" doc:"The X-Request-Id of the answer." example:"5f0c9a1be2d34c77a1f0b9c8"`
	Records   []string          `json:"records,omitempty" use:"filter" doc:"The records involved: identifiers, and user:<number>."`
	Facts     map[string]string `json:"facts,omitempty" doc:"Further facts about the call; never values of records."`
}

// Outcomes of an audited call.
const (
	OK     = "ok"
	Failed = "failed"
	Denied = "denied"
)

// Log writes, reads and serves audit logs. Safe for concurrent use.
type Log struct {
	kind  *record.Of[Record]
	seals *store.Kind[seal]
	tree  treeKinds
	later pendingWrites
	ahead written
}

// New declares the records.
func New() *Log {
	spec := store.Spec{
		Name: "audit_log", Uncounted: true,
		Indexes: []store.Index{
			{Fields: []string{"created_at"}}, {Fields: []string{"records"}}, {Fields: []string{"request_id"}},
		},
	}
	spec.Access = []store.Access{
		{Where: []string{"created_at"}}, {Where: []string{"records"}}, {Where: []string{"request_id"}},
	}
	for _, field := range []string{"operation", "subject", "outcome"} {
		spec.Indexes = append(spec.Indexes, store.Index{Fields: []string{field, "created_at"}})
		spec.Access = append(spec.Access, store.Access{Where: []string{field}, Sort: []string{"created_at"}})
	}
	return &Log{
		kind: record.Must(record.Options[Record]{
			Traits: record.Traits{Name: "audit_record", Travels: "id created_at"}, Spec: spec,
		}),
		seals: newSeals(),
		tree:  newTreeKinds(),
	}
}

// Specs returns the declarations of the log, its seals and its tree for the control workspace, which holds the log of
// the installation.
func (l *Log) Specs() []*store.Spec {
	return []*store.Spec{
		l.kind.Spec(), l.seals.Spec(), l.tree.leaves.Spec(), l.tree.tiles.Spec(), l.tree.heads.Spec(),
	}
}

// Kept returns what is stored. It is not part of exports, because it is the history of this organization.
func (l *Log) Kept() []record.Kept { return []record.Kept{l.kind.Kind} }

// Operations returns the rows. Callers who are limited to teams are refused, because the log covers all records.
func (l *Log) Operations() []operation.Row {
	return crud.Rows(l.kind.Resource, crud.Options{
		Path: "/api/audit", Things: "Audit Records", Tag: "Audit", Read: operation.Needs(tenants.ViewAudit).Unlimited(), Sort: "-created_at,-id",
		Export: true, Each: crud.Action{Around: l.afterPending}, Create: crud.Absent(), Update: crud.Absent(), Delete: crud.Absent(),
	})
}

// Spec returns the declaration, for the store.
func (l *Log) Spec() *store.Spec { return l.kind.Spec() }

// writeTimeout bounds a write whose caller may be gone. While the organization is being moved, the wait for its hold
// to end is added, so that every change is recorded.
const writeTimeout = 3 * time.Second

// lateTimeout bounds a write of a call that has timed out. Nothing is disclosed any more, and the caller has waited
// long enough.
const lateTimeout = time.Second

// Write stores a record and returns once it is durable. It continues when the caller has hung up, because the change
// has been made.
func (l *Log) Write(ctx context.Context, ws *store.Workspace, rec Record) error {
	limit := ws.Hold() + writeTimeout
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		limit = lateTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	rec.index()
	l.ahead.note(ws.Org())
	return l.kind.In(ws).Insert(ctx, &rec)
}

// Stage adds a record to a batch, which stores it together with the change that it records.
func (l *Log) Stage(b *store.Batch, ws *store.Workspace, rec Record) error {
	rec.index()
	l.ahead.note(ws.Org())
	return l.kind.In(ws).StageInsert(b, &rec)
}

// index sets Records, by which the record can be found.
func (r *Record) index() {
	for fact, value := range r.Facts {
		if fact == "user" {
			value = "user:" + value
		} else if !store.ValidID(value) {
			continue
		}
		r.Records = append(r.Records, value)
	}
	slices.Sort(r.Records)
	r.Records = slices.Compact(r.Records)
}

// Erased records in the log of the installation that an organization was erased on behalf of the subject, with what
// was erased.
func (l *Log) Erased(ctx context.Context, own *tenants.Tenant, o *tenants.Organization, subject string) error {
	e := o.Ending
	facts := map[string]string{
		"organization": o.Slug, "number": strconv.FormatInt(o.OrgID, 10), "deleted": texts.Time(e.Deleted), "began": texts.Time(e.Began), "erased": texts.Time(e.Erased),
		"people": strconv.FormatInt(e.People, 10), "data_keys": strconv.FormatInt(e.DataKeys, 10), "places": strings.Join(e.Places, ", "), "overwritten": strings.Join(e.Overwritten, ", "),
	}
	if e.Documents >= 0 {
		facts["documents"], facts["bytes"] = strconv.FormatInt(e.Documents, 10), strconv.FormatInt(e.Bytes, 10)
	}
	return l.Write(ctx, own.Workspace(), Record{
		Operation: ErasedOperation, Subject: subject, Outcome: OK, Facts: facts,
	})
}

// ErasedOperation is the operation of such a record.
const ErasedOperation = "org.erased"

// Recent returns at most limit records, newest first, after the first offset ones.
func (l *Log) Recent(ctx context.Context, ws *store.Workspace, limit, offset int) ([]Record, error) {
	l.Settle(ctx, ws.Org())
	return l.kind.In(ws).Find(
		ctx, store.Query{Sort: store.NewestFirst(), Limit: limit, Offset: offset},
	)
}
