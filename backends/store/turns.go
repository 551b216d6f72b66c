package store

import (
	"context"
	"time"
)

// turnTimeout bounds the wait for a turn. A turn only spares tries: what keeps records right is their revision, so who
// waits for too long goes on without.
const turnTimeout = time.Second

// recordTurn is the turn to change one record.
type recordTurn struct {
	org      int64
	kind, id string
}

// turn lets those of one process who change the same record do so one after another, where all but one would be in
// vain. It waits for turnTimeout at most; leave must follow.
func (s *Store) turn(ctx context.Context, of recordTurn) (leave func()) {
	if s.changing.Enter(ctx, of) != nil {
		return func() {}
	}
	return func() { s.changing.Leave(of) }
}
