package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"
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

// Placement says where the documents of an organization are, and whose they must be.
type Placement struct {
	Backend string // empty: DefaultBackend
	Owner   string // what the workspace is held to, see driver.Opening
	Phase   Phase
	Quota   Quota // what may be stored, of documents and of their bytes
	// Rev orders placements of one organization: the one with the higher revision holds, unless it has been lost.
	Rev int64
	// ReadAt is when somebody began to read this from where it is decided. Zero: it never changes.
	ReadAt time.Time
}

// BackendName returns the name of a backend that may be left out: empty is DefaultBackend.
func BackendName(name string) string { return cmp.Or(name, DefaultBackend) }

func (p Placement) backend() string { return BackendName(p.Backend) }

// Locator reads where an organization is now. Errors: ErrNotFound where there is no such
// organization (any more), ErrUnavailable.
type Locator func(ctx context.Context, org int64) (Placement, error)

// Leases say how a write keeps away from the switch of an organization to another backend.
// A write starts only with a placement whose reading began less than Fresh ago, and must be
// acknowledged within Settled of that, or within Copying while the organization is copied.
// So whoever changes a placement knows that no write by the former one is acknowledged once
// its lease has passed, on this machine or another, whatever their clocks say: all that is
// asked of them is that they run on, and equally fast. Every process on the same data must
// have the same leases.
type Leases struct {
	Fresh   time.Duration
	Settled time.Duration
	Copying time.Duration // a part of the time for which writes are held
	// Hold is how long a write waits for a hold to end.
	Hold time.Duration
}

// DefaultLeases returns the leases of a Store whose Options name none.
func DefaultLeases() Leases {
	return Leases{Fresh: 500 * time.Millisecond, Settled: 5 * time.Second, Copying: 2 * time.Second, Hold: 5 * time.Second}
}

const (
	freshHeld = 50 * time.Millisecond // how often those who wait for a hold to end look
	lookAgain = time.Second           // between two looks of readers, where the first was in vain
	locateFor = 2 * time.Second       // how long a reader's look may take
)

// steadyFor leases may somebody answer who was replaced, as in an election, and does not know what is written since.
const steadyFor = 3

// Steady returns how long the server of the control data must have been the same for nobody to be answered by the one
// before.
func (l Leases) Steady() time.Duration { return steadyFor * l.Settled }

// of returns how long a write by the placement may take.
func (l Leases) of(p Placement) time.Duration {
	if p.Phase == Settled {
		return l.Settled
	}
	return l.Copying
}

// home is where an organization lives now. Every handle on the organization shares it, so
// that a move reaches calls that are under way.
type home struct {
	store  *Store
	who    tenancy
	asking chan struct{} // one caller at a time reads where the organization is
	at     atomic.Pointer[residence]
	// elsewhere is the revision of a placement that leads to where this process cannot go.
	elsewhere atomic.Int64
	looked    atomic.Pointer[time.Time] // when a reader asked last
	removed   atomic.Bool
}

// residence is a placement with the workspace it leads to.
type residence struct {
	Placement
	drv driver.Workspace
}

func newHome(s *Store, who tenancy) *home {
	return &home{store: s, who: who, asking: make(chan struct{}, 1)}
}

// lives reports whether the organization was found on that backend last.
func (h *home) lives(backend string) bool {
	r := h.at.Load()
	return r != nil && r.backend() == backend
}

var errRemoved = fmt.Errorf("the organization was removed: %w", ErrNotFound)

// settle notes a placement that was read, unless a later one is known. One that nobody has read for so long that
// whoever did not know of it is gone is none: the control data have lost it.
func (h *home) settle(ctx context.Context, p Placement) (*residence, error) {
	for {
		if h.removed.Load() {
			return nil, errRemoved
		}
		old := h.at.Load()
		if old != nil {
			lost := !old.ReadAt.IsZero() && p.ReadAt.Sub(old.ReadAt) > h.store.leases.Steady()
			if old.Rev > p.Rev && !lost || old.Rev == p.Rev && !p.ReadAt.After(old.ReadAt) {
				return old, nil
			}
		}
		next := &residence{Placement: p}
		if old != nil && old.backend() == p.backend() {
			next.drv = old.drv
		} else {
			var err error
			if next.drv, err = h.store.open(ctx, p.backend(), h.store.opening(h.who.org, h.who.owner), p.ReadAt.IsZero()); err != nil {
				h.left(p.Rev)
				return nil, err
			}
		}
		if h.at.CompareAndSwap(old, next) {
			return next, nil
		}
	}
}

// left notes that the organization is no longer where this process last found it.
func (h *home) left(rev int64) {
	for {
		known := h.elsewhere.Load()
		if rev <= known || h.elsewhere.CompareAndSwap(known, rev) {
			return
		}
	}
}

func (h *home) hasLeft(r *residence) bool { return h.elsewhere.Load() > r.Rev }

// reader returns the workspace to read from. Every request has just been told where that is.
// It asks only while writes are held, when the switch is near; where it knows that the
// organization has left; and for who reads on for longer than a lease, because an old copy
// may be removed after that. Where nobody can tell, it reads on.
func (h *home) reader(ctx context.Context) (driver.Workspace, error) {
	if h.removed.Load() {
		return nil, errRemoved
	}
	r := h.at.Load()
	within := h.store.leases.Settled
	if r.Phase == Held {
		within = freshHeld
	}
	left := h.hasLeft(r)
	if r.fresh(within) && !left {
		return r.drv, nil
	}
	if r.Phase != Held && !left {
		// One asks, now and then, while the others read on.
		last := h.looked.Load()
		now := time.Now()
		if last != nil && now.Sub(*last) < lookAgain || !h.looked.CompareAndSwap(last, &now) {
			return r.drv, nil
		}
	}
	looking, cancel := context.WithTimeout(ctx, locateFor)
	defer cancel()
	now, err := h.ask(looking, within)
	switch {
	case err == nil:
		return now.drv, nil
	case left || ctx.Err() != nil || errors.Is(err, errRemoved) || h.hasLeft(r):
		return nil, err
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
	if r.Phase != Held && r.fresh(h.store.leases.Fresh) {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.store.leases.Hold)
	defer cancel()
	within := h.store.leases.Fresh
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
	if r := h.at.Load(); r.fresh(within) && !h.hasLeft(r) {
		return r, nil
	}
	locate := h.store.locator.Load()
	if locate == nil {
		return h.at.Load(), nil
	}
	asked := time.Now()
	p, err := (*locate)(ctx, h.who.org)
	if err == nil && p.Owner != h.who.owner {
		err = fmt.Errorf("organization %d is another one by now: %w", h.who.org, ErrNotFound)
	}
	if err != nil {
		if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, err
	}
	p.ReadAt = asked
	return h.settle(ctx, p)
}

// write applies the writes at the organization's place, beyond its quota where they serve to make room.
func (h *home) write(ctx context.Context, writes []driver.Write, beyond bool) error {
	r, err := h.permit(ctx)
	if err != nil {
		return err
	}
	quota := r.Quota
	if beyond {
		quota = Quota{}
	}
	if r.ReadAt.IsZero() {
		return within(ctx, r.drv, writes, quota)
	}
	lease := h.store.leases.of(r.Placement)
	deadline := r.ReadAt.Add(lease)
	inTime, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if r.Phase == Copying {
		// The note is stored by itself: it must stay where the writes are refused, because
		// the mover may have copied what an engine without transactions then takes back.
		err = r.drv.Write(inTime, []driver.Write{h.store.note(writes)})
	}
	if err == nil {
		err = within(inTime, r.drv, writes, quota)
	}
	// What an engine stored too late is not acknowledged: the mover may have looked already.
	if time.Now().After(deadline) && (err == nil || ctx.Err() == nil) {
		return fmt.Errorf("%w: the write took longer than %s", ErrUnavailable, lease)
	}
	return err
}
