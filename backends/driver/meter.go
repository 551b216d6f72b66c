package driver

import (
	"context"
	"fmt"
)

// Meter is a workspace that maintains its Usage with every write and can enforce a Quota. Uncounted collections are
// left out and never refused. All methods are safe for concurrent use.
type Meter interface {
	// WriteWithin is Write within a quota, and updates the usage. If the workspace would grow beyond the quota, it
	// returns a *QuotaError and writes nothing. Batches that do not grow the workspace, and small changes of existing
	// documents, are written even if it is full; see Quota.Admit.
	WriteWithin(ctx context.Context, writes []Write, q Quota) error
	// Used returns the usage of the workspace. It counts everything if that was never done. Error: ErrUnavailable.
	Used(ctx context.Context) (Usage, error)
	// Recount counts everything, corrects the stored usage and returns it. Error: ErrUnavailable.
	Recount(ctx context.Context) (Usage, error)
}

// Usage is the number of documents of a workspace, and the total size of their bodies and custom values in bytes.
type Usage struct {
	Documents int64 `json:"documents"`
	Bytes     int64 `json:"bytes"`
}

// String returns the usage in words, for tables.
func (u Usage) String() string { return fmt.Sprintf("%d documents, %d bytes", u.Documents, u.Bytes) }

// Plus returns the sum.
func (u Usage) Plus(v Usage) Usage { return Usage{u.Documents + v.Documents, u.Bytes + v.Bytes} }

// Minus returns the difference.
func (u Usage) Minus(v Usage) Usage { return Usage{u.Documents - v.Documents, u.Bytes - v.Bytes} }

// Size returns the bytes that the document adds to Usage.Bytes.
func (d *Document) Size() int64 { return int64(len(d.Body) + len(d.Custom)) }

// Quota bounds a Usage. A bound of 0 means no bound.
type Quota Usage

// A change of existing documents may exceed the bytes of a quota by smallChange, as long as all such changes together
// exceed it by no more than changeRoom. Otherwise nobody could revoke a right, or stop sharing a report, in a full
// workspace.
const (
	smallChange = 4 << 10
	changeRoom  = 1 << 20
)

// Admit returns a *QuotaError if a workspace that has used that much must not grow by that much.
func (q Quota) Admit(used, by Usage) error {
	most := q.Bytes
	if by.Documents <= 0 && by.Bytes <= smallChange {
		most += changeRoom
	}
	switch {
	case q.Documents > 0 && by.Documents > 0 && used.Documents+by.Documents > q.Documents:
		return &QuotaError{Limit: "documents", Used: used.Documents, Allowed: q.Documents}
	case q.Bytes > 0 && by.Bytes > 0 && used.Bytes+by.Bytes > most:
		return &QuotaError{Limit: "bytes", Used: used.Bytes, Allowed: q.Bytes}
	}
	return nil
}

// QuotaError says that a write would have exceeded a quota.
type QuotaError struct {
	Limit         string // documents or bytes
	Used, Allowed int64  // in the unit of Limit
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("the workspace has %d of %d %s, and the write needs more", e.Used, e.Allowed, e.Limit)
}
