package driver

import (
	"context"
	"fmt"
)

// Meter is a workspace that knows how much it holds without counting it, and can refuse to hold more. Collections that
// are Uncounted are left out of it, and never refused. All methods are safe for concurrent use.
type Meter interface {
	// WriteWithin is Write, and keeps what Used tells up to date. Where the workspace would grow beyond the quota it
	// returns a *QuotaError, and nothing is written. What does not grow is written whatever the workspace holds, and so
	// are small changes of documents that are there; see Quota.Admit.
	WriteWithin(ctx context.Context, writes []Write, q Quota) error
	// Used returns what the workspace holds. It counts that where it never has. Error: ErrUnavailable.
	Used(ctx context.Context) (Usage, error)
	// Recount counts everything, corrects what Used tells, and returns that. Error: ErrUnavailable.
	Recount(ctx context.Context) (Usage, error)
}

// Usage is how many documents there are, and how many bytes their bodies and custom values have.
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

// Size returns the bytes of the document that count.
func (d *Document) Size() int64 { return int64(len(d.Body) + len(d.Custom)) }

// Quota bounds a Usage. A bound of 0 is none.
type Quota Usage

// A change of what is there may add up to smallChange bytes beyond the bytes of a quota, as long as all of them
// together add no more than changeRoom: else nobody could take a right away, or end a report's sharing, where there is
// no room left.
const (
	smallChange = 4 << 10
	changeRoom  = 1 << 20
)

// Admit returns a *QuotaError where growth by that much leads beyond the quota.
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

// QuotaError says that a write would have led beyond a quota.
type QuotaError struct {
	Limit         string // documents or bytes
	Used, Allowed int64  // of these
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("the workspace has %d of %d %s, and the write needs more", e.Used, e.Allowed, e.Limit)
}
