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

// Bounds of what one call removes. ClearTimeout is for rows whose calls do.
const (
	clearBatch   = 500
	maxCleared   = 50_000
	ClearTimeout = time.Minute
)

// Clear removes for good what matches, deleted or not. Errors are those of Drain.
func Clear[T any](ctx context.Context, in store.Collection[T], of store.Filter) error {
	return Drain(ctx, in, of, store.Either, func(recs []*T) error { return in.Delete(ctx, recs...) })
}

// Drain hands what matches in that state to do, some at a time, until there is none any more: do changes or
// removes it, and sees those again that somebody else changed meanwhile. Where they are more than one call may
// change, the error is a 409 that asks for another call.
func Drain[T any](ctx context.Context, in store.Collection[T], of store.Filter, state store.State, do func(recs []*T) error) error {
	done := 0
	for range maxCleared / clearBatch { // batches: of large records a batch has fewer than clearBatch
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
		err = &operation.Problem{Code: http.StatusConflict, RetryAfter: time.Second, Message: fmt.Sprintf("%d records that hang on it are done, and %d are left: repeat the call", done, left)}
	}
	return err
}
