package mongo

import (
	"context"
	"time"
)

// Wait returns once every index that has been asked for is ready or refused.
func (e *Engine) Wait(ctx context.Context) error {
	for e.builder.next() != nil {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
