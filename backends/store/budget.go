package store

import (
	"cmp"
	"context"
	"errors"
	"math"

	"tenantry/backends/driver"
	"tenantry/internal/request"
)

// Budgets in bytes of records as they are decoded.
const (
	// UnweighedBytes is what every request may hold of a question's answer without room for it.
	UnweighedBytes = 256 << 10
	// BatchBytes is for what is read and written part by part, such as an export.
	BatchBytes = UnweighedBytes
)

// smallBytes is what a call holds besides by its least weight.
const smallBytes = UnweighedBytes / 4

// held finds room for documents that were read without any, where they are more than what every call may hold.
func held(ctx context.Context, docs []driver.Document) error {
	size := int64(0)
	for i := range docs {
		size += docs[i].Size()
	}
	if size <= smallBytes {
		return nil
	}
	if room := roomOf(ctx); room != nil {
		return room.Hold(ctx, size)
	}
	return nil
}

// roomOf returns the room of the request that a context is of, nil where nothing bounds what that holds.
func roomOf(ctx context.Context) request.Room {
	if r := request.From(ctx); r != nil {
		return r.Room
	}
	return nil
}

// errFull ends the reading of what does not fit a budget.
var errFull = errors.New("the budget is used up")

// reading is one reading of an answer: what is kept of it, and how much it is in all.
type reading struct {
	end  int64 // the budget of the question, which ends the answer, but not before its first part
	most int64 // what is kept takes no more than that, but for the first part
	size int64 // of all parts until the end, kept or not
	n    int
	full bool // not all of them are kept
	cut  bool // there is more behind the end
}

// anew begins the reading, once more where something was read.
func (r *reading) anew() { r.size, r.n, r.full, r.cut = 0, 0, false, false }

// keep reports whether a part of that many bytes is to be kept. Error: errFull where it is behind the end.
func (r *reading) keep(size int64) (bool, error) {
	if r.n++; r.n > 1 && r.size+size > r.end {
		r.cut = true
		return false, errFull
	}
	r.size += size
	r.full = r.full || r.n > 1 && r.size > r.most
	return !r.full, nil
}

// within reads as far as the query's budget goes, to the end where it has none, and reports whether there is more. A
// request keeps what it may hold without room, and learns how much all of it is; it asks once more when it has found
// room for that. So nothing is held without room, it is waited for while nothing is read, and a question is asked twice
// at most, unless what it finds has grown meanwhile.
func (q *Query) within(ctx context.Context, read func(*reading) error) (cut bool, err error) {
	r := reading{end: cmp.Or(max(q.Bytes, 0), math.MaxInt64)}
	room := roomOf(ctx)
	if r.most = r.end; room != nil {
		r.most = min(r.most, max(UnweighedBytes, q.Roomed))
	}
	for {
		if err = read(&r); err != nil || !r.full {
			return r.cut, err
		}
		if err = room.Hold(ctx, r.size-r.most); err != nil {
			return false, err
		}
		r.most = r.size
	}
}
