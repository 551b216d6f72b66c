package audit

import (
	"context"
	"sync"

	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/operation"
)

// maxLater bounds the records that are written after their answers.
const maxLater = 256

// later are those that are being written.
type later struct {
	mu  sync.Mutex
	all map[*pending]struct{}
}

type pending struct {
	org  int64
	done chan struct{}
}

// Later stores a record while its caller is answered: the refusal of a caller without a credential must not take longer
// where there is an organization that records it. Whoever reads the log afterwards finds it, and Settle waits for it.
// failed is told why it could not be stored. It reports false, and does nothing, where too many are on their way.
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

// Settle waits until what Later was given before is stored, of the organization or, where that is 0, of all, or ctx
// ends.
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

// settled makes a handler that reads the log read the records of what was answered before it was called.
func (l *Log) settled(next operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		l.Settle(ctx, c.Tenant.Org.OrgID)
		return next(ctx, c)
	}
}
