package crud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tenantry/backends/store"
	"tenantry/operation"
)

// Bounds of what one call of Drain handles. ClearTimeout is the timeout of rows that call it.
const (
	clearBatch   = 500
	maxCleared   = 50_000
	ClearTimeout = time.Minute
)

// Clear deletes for good all records that match, live or deleted. Errors: those of Drain.
func Clear[T any](ctx context.Context, in store.Collection[T], of store.Filter) error {
	return Drain(ctx, in, of, store.Either, func(recs []*T) error { return in.Delete(ctx, recs...) })
}

// Drain passes all records that match in that state to do, in batches, until none is left. do must change or delete
// them so that they no longer match. Records that were changed meanwhile are read again. If there are more than one
// call may handle, the error is a 409 that asks to repeat the call.
func Drain[T any](
	ctx context.Context, in store.Collection[T], of store.Filter, state store.State, do func(recs []*T) error,
) error {
	done := 0
	for range maxCleared / clearBatch { // a batch of large records has fewer than clearBatch
		found, err := in.Find(ctx, store.Query{Filter: of, State: state, Limit: clearBatch, Bytes: store.BatchBytes})
		if err != nil || len(found) == 0 {
			return err
		}
		recs := make([]*T, len(found))
		for i := range found {
			recs[i] = &found[i]
		}
		for len(recs) > 0 {
			n := in.Portion(recs)
			switch err := do(recs[:n]); {
			case err == nil:
				done += n
			case !errors.Is(err, store.ErrConflict):
				return err
			}
			recs = recs[n:]
		}
	}
	left, err := in.CountIn(ctx, of, state)
	if err == nil && left > 0 {
		err = &operation.Problem{
			Code: http.StatusConflict, RetryAfter: time.Second,
			Message: fmt.Sprintf("%d dependent records are done and %d are left: repeat the call", done, left),
		}
	}
	return err
}
