package store

import (
	"cmp"
	"context"
	"errors"
	"math"

	"tenantry/backends/driver"
	"tenantry/internal/request"
)

// Budgets in bytes of decoded records.
const (
	// UnweighedBytes is how much of an answer a request may hold without reserving room for it.
	UnweighedBytes = 256 << 10
	// BatchBytes is the budget of one part, for work that reads or writes part by part, such as an export.
	BatchBytes = UnweighedBytes
)

// smallBytes is how much a call may hold in addition, covered by the smallest weight of a call.
const smallBytes = UnweighedBytes / 4

// holdRoom reserves room for documents that were read without a budget, if they are larger than smallBytes.
func holdRoom(ctx context.Context, docs []driver.Document) error {
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

// roomOf returns the room of the context's request; nil if its memory is not limited.
func roomOf(ctx context.Context) request.Room {
	if r := request.From(ctx); r != nil {
		return r.Room
	}
	return nil
}

// errBudget stops an engine's reading when the budget is used up.
var errBudget = errors.New("the budget is used up")

// reading tracks how much of an answer was read, and how much of it is kept.
type reading struct {
	budget  int64 // the query's budget in bytes; ends the answer, but never before its first part
	keepMax int64 // how many bytes may be kept, apart from the first part
	size    int64 // bytes of all parts before the end, kept or not
	n       int   // parts read
	full    bool  // not all parts are kept
	cut     bool  // the budget ended the answer: there are more parts
}

// restart resets the reading before the first part, or before the engine reads again from the start.
func (r *reading) restart() { r.size, r.n, r.full, r.cut = 0, 0, false, false }

// keep reports whether a part of that many bytes is kept. Error: errFull if it lies beyond the budget.
func (r *reading) keep(size int64) (bool, error) {
	if r.n++; r.n > 1 && r.size+size > r.budget {
		r.cut = true
		return false, errBudget
	}
	r.size += size
	r.full = r.full || r.n > 1 && r.size > r.keepMax
	return !r.full, nil
}

// readWithin reads until the query's budget is used up, or to the end if it has none. It reports whether there is more.
//
// The first pass keeps only what the request may hold without reserving room, and measures the whole answer. If the
// answer is larger, readWithin reserves room for it and reads again. Thus nothing is held without room, and the request
// does not occupy the engine while it waits for room. The query runs at most twice, unless its answer grows between.
func (q *Query) readWithin(ctx context.Context, read func(*reading) error) (cut bool, err error) {
	r := reading{budget: cmp.Or(max(q.Bytes, 0), math.MaxInt64)}
	room := roomOf(ctx)
	if r.keepMax = r.budget; room != nil {
		r.keepMax = min(r.keepMax, max(UnweighedBytes, q.Reserved))
	}
	for {
		if err = read(&r); err != nil || !r.full {
			return r.cut, err
		}
		if err = room.Hold(ctx, r.size-r.keepMax); err != nil {
			return false, err
		}
		r.keepMax = r.size
	}
}
