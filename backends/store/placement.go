package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"tenantry/backends/store/driver"
)

// DefaultBackend is the name of the backend that holds what no other was chosen for.
const DefaultBackend = "default"

// Phase says how far the move of an organization to another backend is.
type Phase string

// The phases. While an organization is copied, every write leaves a note of what it
// changed, so that it is copied again. While it is held, writes wait: for the last notes
// to be copied and the organization to be found at its new place.
const (
	Settled Phase = ""
	Copying Phase = "copying"
	Held    Phase = "held"
)

// Placement says where the documents of an organization are.
type Placement struct {
	Backend string // empty: DefaultBackend
	Phase   Phase
	// Rev orders placements of one organization: the one with the higher revision holds.
	Rev int64
	// ReadAt is when somebody began to read this from where it is decided. Zero: it never changes.
	ReadAt time.Time
}

func (p Placement) backend() string {
	if p.Backend == "" {
		return DefaultBackend
	}
	return p.Backend
}

// Locator reads where an organization is now. Errors: ErrNotFound where there is no such
// organization (any more), ErrUnavailable.
type Locator func(ctx context.Context, org int64) (Placement, error)

// How a write keeps away from the switch of an organization to another backend. A write
// starts only with a placement that was read freshAfter ago or later, and must be
// acknowledged within the lease, counted from that reading. So whoever changes a placement
// knows that no write by the former one is acknowledged once its lease has passed,
// on this machine or another, whatever their clocks say.
const (
	freshAfter = 500 * time.Millisecond
	freshHeld  = 50 * time.Millisecond
	// SettledLease is how long a write by a settled placement may take.
	SettledLease = 5 * time.Second
	// CopyingLease is how long one may take while the organization is copied. It is a part
	// of the time for which writes are held.
	CopyingLease = 2 * time.Second
	// HoldLimit is how long a write waits for a hold to end.
	HoldLimit = 5 * time.Second
)

func (p Placement) lease() time.Duration {
	if p.Phase == Settled {
		return SettledLease
	}
	return CopyingLease
}

// home is where an organization lives now. Every handle on the organization shares it, so
// that a move reaches calls that are under way.
type home struct {
	store   *Store
	org     int64
	asking  chan struct{} // one caller at a time reads where the organization is
	at      atomic.Pointer[residence]
	removed atomic.Bool
}

// residence is a placement with the workspace it leads to.
type residence struct {
	Placement
	drv driver.Workspace
}

func newHome(s *Store, org int64) *home {
	return &home{store: s, org: org, asking: make(chan struct{}, 1)}
}

var errRemoved = fmt.Errorf("the organization was removed: %w", ErrNotFound)

// settle notes a placement that was read, unless a later one is known.
func (h *home) settle(ctx context.Context, p Placement) (*residence, error) {
	for {
		if h.removed.Load() {
			return nil, errRemoved
		}
		old := h.at.Load()
		if old != nil && (old.Rev > p.Rev || old.Rev == p.Rev && !p.ReadAt.After(old.ReadAt)) {
			return old, nil
		}
		next := &residence{Placement: p}
		if old != nil && old.backend() == p.backend() {
			next.drv = old.drv
		} else {
			var err error
			if next.drv, err = h.store.open(ctx, p.backend(), workspaceName(h.org), h.store.tenant); err != nil {
				return nil, err
			}
		}
		if h.at.CompareAndSwap(old, next) {
			return next, nil
		}
	}
}

// reader returns the workspace to read from. Only while writes are held, when the switch is
// near, it asks where the organization is: otherwise every request has just been told.
func (h *home) reader(ctx context.Context) (driver.Workspace, error) {
	if h.removed.Load() {
		return nil, errRemoved
	}
	r := h.at.Load()
	if r.Phase == Held && !r.fresh(freshHeld) {
		if now, err := h.ask(ctx, freshHeld); err == nil {
			r = now
		} else if ctx.Err() != nil {
			return nil, err
		}
	}
	return r.drv, nil
}

func (p Placement) fresh(within time.Duration) bool {
	return p.ReadAt.IsZero() || time.Since(p.ReadAt) < within
}

// permit returns the placement to write by. It waits while writes are held. Errors:
// ErrUnavailable where it cannot be told now, or the hold does not end.
func (h *home) permit(ctx context.Context) (*residence, error) {
	if h.removed.Load() {
		return nil, errRemoved
	}
	r := h.at.Load()
	if r.Phase != Held && r.fresh(freshAfter) {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, HoldLimit)
	defer cancel()
	within := freshAfter
	for {
		var err error
		if r, err = h.ask(ctx, within); err != nil {
			if ctx.Err() != nil && h.at.Load().Phase == Held {
				return nil, fmt.Errorf("%w: the organization is being moved and takes no writes for a moment", ErrUnavailable)
			}
			return nil, fmt.Errorf("where the organization is: %w", err)
		}
		if r.Phase != Held {
			return r, nil
		}
		within = freshHeld
		select {
		case <-time.After(freshHeld):
		case <-ctx.Done():
		}
	}
}

// ask reads where the organization is, unless somebody else just has.
func (h *home) ask(ctx context.Context, within time.Duration) (*residence, error) {
	select {
	case h.asking <- struct{}{}:
		defer func() { <-h.asking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	if r := h.at.Load(); r.fresh(within) {
		return r, nil
	}
	locate := h.store.locator.Load()
	if locate == nil {
		return h.at.Load(), nil
	}
	asked := time.Now()
	p, err := (*locate)(ctx, h.org)
	if err != nil {
		if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, err
	}
	p.ReadAt = asked
	return h.settle(ctx, p)
}

// write applies the writes at the organization's place.
func (h *home) write(ctx context.Context, writes []driver.Write) error {
	r, err := h.permit(ctx)
	if err != nil {
		return err
	}
	if r.ReadAt.IsZero() {
		return r.drv.Write(ctx, writes)
	}
	inTime, cancel := context.WithDeadline(ctx, r.ReadAt.Add(r.lease()))
	defer cancel()
	notes := 0
	if r.Phase == Copying {
		notes = 1
		writes = append([]driver.Write{h.store.note(writes)}, writes...)
	}
	err = r.drv.Write(inTime, writes)
	if err != nil && ctx.Err() == nil && inTime.Err() != nil {
		return fmt.Errorf("%w: the write took longer than %s", ErrUnavailable, r.lease())
	}
	return shifted(err, notes)
}

// shifted takes the notes off the position that an error names.
func shifted(err error, notes int) error {
	var dup *driver.DuplicateError
	var conflict *driver.ConflictError
	switch {
	case notes == 0:
	case errors.As(err, &dup):
		return &driver.DuplicateError{Collection: dup.Collection, Index: dup.Index, Position: dup.Position - notes}
	case errors.As(err, &conflict):
		return &driver.ConflictError{Collection: conflict.Collection, Position: conflict.Position - notes}
	}
	return err
}
