package audit

import (
	"context"
	"sync"

	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/operation"
)

// maxLater bounds how many records are written after their answers at the same time.
const maxLater = 256

// pendingWrites are the records that are being written.
type pendingWrites struct {
	mu  sync.Mutex
	all map[*pending]struct{}
}

type pending struct {
	org  int64
	done chan struct{}
}

// Later stores a record while its caller is answered, because the refusal of a caller without a credential must not
// take longer for an organization that records it. Readers of the log wait for the record; see Settle. failed is
// called with the error if it could not be stored. Later returns false, and does nothing, if maxLater records are
// being written.
func (l *Log) Later(ws *store.Workspace, rec Record, failed func(error)) bool {
	l.later.mu.Lock()
	defer l.later.mu.Unlock()
	if len(l.later.all) >= maxLater {
		return false
	}
	if l.later.all == nil {
		l.later.all = map[*pending]struct{}{}
	}
	p := &pending{ws.Org(), make(chan struct{})}
	l.later.all[p] = struct{}{}
	go func() {
		err := background.Try(func() error { return l.Write(context.Background(), ws, rec) })
		l.later.mu.Lock()
		delete(l.later.all, p)
		l.later.mu.Unlock()
		close(p.done)
		if err != nil {
			failed(err)
		}
	}()
	return true
}

// Settle waits until the records given to Later before are stored: those of the organization, or of all if org is 0.
// It returns early when ctx ends.
func (l *Log) Settle(ctx context.Context, org int64) {
	l.later.mu.Lock()
	var wait []chan struct{}
	for p := range l.later.all {
		if org == 0 || p.org == org {
			wait = append(wait, p.done)
		}
	}
	l.later.mu.Unlock()
	for _, done := range wait {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// afterPending makes a handler that reads the log wait for the records of earlier answers.
func (l *Log) afterPending(next operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		l.Settle(ctx, c.Tenant.Org.OrgID)
		return next(ctx, c)
	}
}
