package store

import (
	"context"
	"errors"

	"tenantry/backends/store/driver"
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

// held finds room for documents that were read as a whole, where they are more than what every call may hold.
func held(ctx context.Context, docs []driver.Document) error {
	size := 0
	for i := range docs {
		size += len(docs[i].Body) + len(docs[i].Custom)
	}
	if size <= smallBytes {
		return nil
	}
	if r := request.From(ctx); r != nil && r.Room != nil {
		return r.Room.Hold(ctx, int64(size))
	}
	return nil
}

// errFull ends the reading of what does not fit a budget.
var errFull = errors.New("the budget is used up")

// within reads as far as the query's budget goes, and reports whether there is more. A request reads what it may hold without
// room first, and of a larger answer four times as much each time it has found room for that: room is waited for while
// nothing is read, and nothing else of the answer is held.
func (q *Query) within(ctx context.Context, read func(most int64) (cut bool, err error)) (cut bool, err error) {
	most := q.Bytes
	var room request.Room
	if r := request.From(ctx); r != nil && r.Room != nil {
		room, most = r.Room, min(most, UnweighedBytes)
	}
	for {
		if cut, err = read(most); err != nil || !cut || most >= q.Bytes {
			return cut, err
		}
		more := min(4*most, q.Bytes) - most
		if err := room.Hold(ctx, more); err != nil {
			return false, err
		}
		most += more
	}
}
