// Package audit keeps an organization's audit log: who did what to which record, and how
// it ended. It never holds a secret or a field's value.
package audit

import (
	"context"
	"errors"
	"time"

	"tenantry/backends/store"
)

// Record is one entry. CreatedAt says when.
type Record struct {
	store.Meta
	Operation string            `json:"operation"`
	Subject   string            `json:"subject"`           // tenants.Principal.Subject
	Account   string            `json:"account,omitempty"` // the service account of a key
	Remote    string            `json:"remote,omitempty"`  // the caller's address; none of a command
	Outcome   string            `json:"outcome"`           // ok, failed or denied
	Code      int               `json:"code"`              // HTTP; 0 for a command
	RequestID string            `json:"request_id,omitempty"`
	Facts     map[string]string `json:"facts,omitempty"`
}

// Outcomes of an audited call.
const (
	OK     = "ok"
	Failed = "failed"
	Denied = "denied"
)

// Log writes and reads audit logs. Safe for concurrent use.
type Log struct{ kind *store.Kind[Record] }

// New declares the record.
func New() *Log {
	return &Log{store.Must[Record](store.Spec{
		Name: "audit_log", Fields: []string{"operation", "subject", "outcome"},
		Indexes: []store.Index{{Fields: []string{"created_at"}}},
		Access:  []store.Access{{Where: []string{"created_at"}}},
	})}
}

// Spec returns the declaration, for the store.
func (l *Log) Spec() *store.Spec { return l.kind.Spec() }

// writeTimeout bounds a write whose caller may be gone already. Where the organization is
// being moved, the wait for its hold to end comes on top: what is done is recorded then.
const writeTimeout = 3 * time.Second

// lateTimeout bounds a write of a call whose own time is up: nothing is disclosed any more,
// and the caller has waited long enough.
const lateTimeout = time.Second

// Write stores a record and returns once it is durable. It goes on where the caller has
// hung up: what was done is recorded.
func (l *Log) Write(ctx context.Context, ws *store.Workspace, rec Record) error {
	limit := ws.Hold() + writeTimeout
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		limit = lateTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return l.kind.In(ws).Insert(ctx, &rec)
}

// Recent returns records, the newest first, at most limit, after the first offset ones.
func (l *Log) Recent(ctx context.Context, ws *store.Workspace, limit, offset int) ([]Record, error) {
	return l.kind.In(ws).Find(ctx, store.Query{Sort: []store.Order{store.Desc("created_at"), store.Desc("id")}, Limit: limit, Offset: offset})
}
