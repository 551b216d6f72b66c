package crud

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"tenantry/backends/api"
	"tenantry/backends/store"
)

// Bounds of what one call removes. ClearTimeout is for rows whose calls do.
const (
	clearBatch   = 500
	maxCleared   = 50_000
	ClearTimeout = time.Minute
)

// Clear removes for good what matches, deleted or not. Where that is more than one call may remove, the
// error is a 409 that asks for another call.
func Clear[T any](ctx context.Context, in store.Collection[T], of store.Filter) error {
	for range maxCleared / clearBatch {
		found, err := in.Find(ctx, store.Query{Filter: of, State: store.Either, Limit: clearBatch})
		if err != nil || len(found) == 0 {
			return err
		}
		recs := make([]*T, len(found))
		for i := range found {
			recs[i] = &found[i]
		}
		if err := in.Delete(ctx, recs...); err != nil {
			return err
		}
	}
	left, err := in.CountIn(ctx, of, store.Either)
	if err == nil && left > 0 {
		err = &api.Problem{Code: http.StatusConflict, Message: fmt.Sprintf("%d records that hang on it are purged, and %d are left: repeat the call", maxCleared, left)}
	}
	return err
}
