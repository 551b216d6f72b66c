package tenants

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tenantry/backends/store"
)

// held notes since when an organization has been seen held.
type held struct {
	mu    sync.Mutex
	since map[int64]heldSince
}

// hold names one hold of an organization.
type hold struct {
	mover  string
	number int64
}

func (m *Move) hold() hold { return hold{m.Mover, m.Holds} }

type heldSince struct {
	hold hold
	at   time.Time
}

// overdue reports whether this hold has been seen for longer than the limit.
func (h *held) overdue(org int64, which hold, limit time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s, ok := h.since[org]; ok && s.hold == which {
		return time.Since(s.at) > limit
	}
	if h.since == nil {
		h.since = map[int64]heldSince{}
	}
	h.since[org] = heldSince{which, time.Now()}
	return false
}

func (h *held) over(org int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.since, org)
}

// locate reads where an organization is. A hold that outlives its mover is ended here, by
// whoever still waits for it.
func (d *Directory) locate(ctx context.Context, org int64) (store.Placement, error) {
	o, err := d.find(ctx, store.Eq("org_id", org))
	switch {
	case errors.Is(err, ErrUnknownTenant) || err == nil && o.State == Removed:
		return store.Placement{}, fmt.Errorf("organization %d: %w", org, store.ErrNotFound)
	case err != nil:
		return store.Placement{}, err
	case o.Move == nil || o.Move.Phase != store.Held:
		d.held.over(org)
	case d.held.overdue(org, o.Move.hold(), d.store.Leases().Hold):
		which := o.Move.hold()
		if err := d.release(ctx, org, func(o *Organization) bool { return o.Move.hold() == which }); err != nil {
			return store.Placement{}, err
		}
		return d.locate(ctx, org)
	}
	return d.placement(o, time.Time{}), nil
}

// release ends a hold that is meant: without a switch, unless the organization has arrived.
func (d *Directory) release(ctx context.Context, org int64, meant func(*Organization) bool) error {
	arrived := false
	_, err := d.change(ctx, store.Eq("org_id", org), func(o *Organization) error {
		arrived = false
		if o.Move != nil && o.Move.Phase == store.Held && meant(o) {
			if arrived = o.Move.Arrived; !arrived {
				o.Move.Phase = store.Copying
			}
		}
		return nil
	})
	if err != nil || !arrived {
		return err
	}
	// What was read could have been lost yet. It has just been stored once more.
	_, err = d.change(ctx, store.Eq("org_id", org), func(o *Organization) error {
		if o.Move != nil && o.Move.Arrived {
			o.settle()
		}
		return nil
	})
	return err
}

// settle lets the organization live where it has arrived.
func (o *Organization) settle() {
	o.Former, o.Backend, o.Move = store.BackendName(o.Backend), o.Move.To, nil
}
