package store

import (
	"context"
	"time"
)

// turnTimeout bounds the wait for a turn. Turns only avoid conflicts; correctness comes from the revision of the
// record, so a writer whose wait ends proceeds without a turn.
const turnTimeout = time.Second

// recordTurn identifies the turn to change one record.
type recordTurn struct {
	org      int64
	kind, id string
}

// turn makes the writers of one process change the same record one after another, because all but one of several
// concurrent changes would fail. It waits until the turn is free, turnTimeout has passed or ctx ends. The caller must
// call leave.
func (s *Store) turn(ctx context.Context, of recordTurn) (leave func()) {
	if s.changing.Enter(ctx, of) != nil {
		return func() {}
	}
	return func() { s.changing.Leave(of) }
}
