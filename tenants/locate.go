package tenants

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tenantry/backends/store"
)

// holdTracker notes since when each organization's current hold has been observed. It is safe for concurrent use.
type holdTracker struct {
	mu    sync.Mutex
	since map[int64]seenHold // by organization
}

// holdID identifies one hold of an organization.
type holdID struct {
	mover  string
	number int64
}

func (m *Move) hold() holdID { return holdID{m.Mover, m.Holds} }

type seenHold struct {
	hold holdID
	at   time.Time
}

// overdue reports whether this hold has been observed for longer than the limit. The first call for a hold starts its
// time.
func (t *holdTracker) overdue(org int64, which holdID, limit time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.since[org]; ok && s.hold == which {
		return time.Since(s.at) > limit
	}
	if t.since == nil {
		t.since = map[int64]seenHold{}
	}
	t.since[org] = seenHold{which, time.Now()}
	return false
}

// clear forgets the organization, which is not held.
func (t *holdTracker) clear(org int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.since, org)
}

// locate reads the placement of an organization. It ends a hold that has outlasted the lease, because its mover must
// have stopped.
func (d *Directory) locate(ctx context.Context, org int64) (store.Placement, error) {
	o, err := d.find(ctx, store.Eq("org_id", org))
	switch {
	case errors.Is(err, ErrUnknownTenant) || err == nil && o.State == Removed:
		return store.Placement{}, fmt.Errorf("organization %d: %w", org, store.ErrNotFound)
	case err != nil:
		return store.Placement{}, err
	case o.Move == nil || o.Move.Phase != store.Held:
		d.holds.clear(org)
	case d.holds.overdue(org, o.Move.hold(), d.store.Leases().Hold):
		which := o.Move.hold()
		if err := d.release(ctx, org, func(o *Organization) bool { return o.Move.hold() == which }); err != nil {
			return store.Placement{}, err
		}
		return d.locate(ctx, org)
	}
	return d.placement(o, time.Time{}), nil
}

// release ends the organization's hold if match accepts it. Writes then continue at the old place, unless everything
// had arrived at the new one: in that case it completes the move.
func (d *Directory) release(ctx context.Context, org int64, match func(*Organization) bool) error {
	arrived := false
	_, err := d.change(ctx, store.Eq("org_id", org), func(o *Organization) error {
		arrived = false
		if o.Move != nil && o.Move.Phase == store.Held && match(o) {
			if arrived = o.Move.Arrived; !arrived {
				o.Move.Phase = store.Copying
			}
		}
		return nil
	})
	if err != nil || !arrived {
		return err
	}
	// The arrival that was read could still have been lost in an election. The first change has stored it again.
	_, err = d.change(ctx, store.Eq("org_id", org), func(o *Organization) error {
		if o.Move != nil && o.Move.Arrived {
			o.completeMove()
		}
		return nil
	})
	return err
}

// completeMove makes the backend where the documents have arrived the organization's own.
func (o *Organization) completeMove() {
	if o.Move.Restores {
		o.renewLog()
	}
	o.Former, o.Place, o.Move = store.BackendName(o.Place), o.Move.To, nil
}
