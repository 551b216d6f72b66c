package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"
)

// DefaultBackend is the name of the backend of every organization for which no other was chosen.
const DefaultBackend = "default"

// Phase is the progress of an organization's move to another backend.
type Phase string

// The phases. While an organization is copied, every write leaves a note of what it changes, so that these documents
// are copied again. While it is held, writes wait until the last notes are copied and the organization is at its new
// place.
const (
	Settled Phase = ""
	Copying Phase = "copying"
	Held    Phase = "held"
)

// Placement says where the documents of an organization are, and which owner their workspace must have.
type Placement struct {
	Backend string // name of the place; empty: DefaultBackend
	Owner   string // the required owner of the workspace, see driver.Opening
	Phase   Phase
	Quota   Quota
	// Followed: changes are logged, see Workspace.Changes.
	Followed bool
	// Rev orders the placements of one organization. The higher revision is valid, unless the control data have lost it.
	Rev int64
	// ReadAt is when reading the placement from the control data began. Zero: the placement never changes.
	ReadAt time.Time
}

// BackendName returns name, or DefaultBackend if it is empty.
func BackendName(name string) string { return cmp.Or(name, DefaultBackend) }

func (p Placement) backend() string { return BackendName(p.Backend) }

// Locator reads the current placement of an organization. Errors: ErrNotFound if the organization does not exist,
// ErrUnavailable.
type Locator func(ctx context.Context, org int64) (Placement, error)

// Leases keep writes apart from the switch of an organization to another backend.
//
// A write starts only under a placement whose reading began less than Fresh ago. It must be acknowledged within Settled
// of that moment, or within Copying while the organization is copied. Therefore no write under a former placement is
// acknowledged once its lease has passed since the change, on any machine. The clocks of the machines may differ, but
// must run at the same rate and without jumps. All processes on the same data must have the same leases.
type Leases struct {
	Fresh   time.Duration
	Settled time.Duration
	Copying time.Duration // contributes to the time for which writes are held
	Hold    time.Duration // how long a write waits for a hold to end
}

// DefaultLeases returns the leases of a Store whose Options name none.
func DefaultLeases() Leases {
	return Leases{Fresh: 500 * time.Millisecond, Settled: 5 * time.Second, Copying: 2 * time.Second, Hold: 5 * time.Second}
}

const (
	holdPoll       = 50 * time.Millisecond // how often waiting writes read the placement during a hold
	locateInterval = time.Second           // between two attempts of readers to locate an organization
	locateTimeout  = 2 * time.Second       // how long a reader's attempt may take
)

// steadyLeases is the number of Settled leases for which a server that an election has replaced may still answer
// without knowing later writes.
const steadyLeases = 3

// Steady returns how long the server of the control data must be unchanged until no answer of its predecessor can
// arrive any more.
func (l Leases) Steady() time.Duration { return steadyLeases * l.Settled }

// of returns how long a write under the placement may take.
func (l Leases) of(p Placement) time.Duration {
	if p.Phase == Settled {
		return l.Settled
	}
	return l.Copying
}

// home tracks where an organization lives. All handles on the organization share it, so that a move takes effect in
// calls that are under way.
type home struct {
	store  *Store
	who    tenancy
	asking chan struct{} // lets one caller at a time read the placement
	at     atomic.Pointer[residence]
	// movedRev is the highest revision of a placement whose workspace this process could not open.
	movedRev   atomic.Int64
	lastLocate atomic.Pointer[time.Time] // when a reader last tried to locate the organization
	removed    atomic.Bool
	log        positions
	// writing is read-locked during writes to an engine that this process uses alone.
	writing sync.RWMutex
}

// residence is a placement with the workspace it leads to.
type residence struct {
	Placement
	drv driver.Workspace
}

func newHome(s *Store, who tenancy) *home {
	return &home{store: s, who: who, asking: make(chan struct{}, 1)}
}

// lives reports whether the last known placement of the organization is on that backend.
func (h *home) lives(backend string) bool {
	r := h.at.Load()
	return r != nil && r.backend() == backend
}

var errRemoved = fmt.Errorf("the organization was removed: %w", ErrNotFound)

// adopt adopts a placement that was read, unless a later one is known, and returns the residence in effect. A known
// placement is overruled by an older revision if it was last read longer ago than Leases.Steady: no outdated server can
// have given the answer, so the control data have lost the known one.
func (h *home) adopt(ctx context.Context, p Placement) (*residence, error) {
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
			backend, workspace := placeOf(h.who.org, p.backend())
			opening := h.store.opening(workspace, h.who.owner)
			if next.drv, err = h.store.open(ctx, backend, opening, p.ReadAt.IsZero()); err != nil {
				h.noteMoved(p.Rev)
				return nil, err
			}
		}
		if h.at.CompareAndSwap(old, next) {
			return next, nil
		}
	}
}

// noteMoved records that a placement of that revision exists whose workspace could not be opened, so that the known
// placement is outdated.
func (h *home) noteMoved(rev int64) {
	for {
		known := h.movedRev.Load()
		if rev <= known || h.movedRev.CompareAndSwap(known, rev) {
			return
		}
	}
}

func (h *home) hasMoved(r *residence) bool { return h.movedRev.Load() > r.Rev }

// reader returns the workspace to read from. A request has a recent placement when it begins, so reader locates the
// organization again only in three cases: while writes are held, because the switch is near; after the organization
// has moved; and when the placement is older than a lease, because the old copy may be removed after that. If the
// organization cannot be located, and is not known to have moved, reader returns the workspace it knows.
func (h *home) reader(ctx context.Context) (driver.Workspace, error) {
	if h.removed.Load() {
		return nil, errRemoved
	}
	r := h.at.Load()
	maxAge := h.store.leases.Settled
	if r.Phase == Held {
		maxAge = holdPoll
	}
	moved := h.hasMoved(r)
	if r.fresh(maxAge) && !moved {
		return r.drv, nil
	}
	if r.Phase != Held && !moved {
		// One caller locates the organization, at intervals, while the others continue to read.
		last := h.lastLocate.Load()
		now := time.Now()
		if last != nil && now.Sub(*last) < locateInterval || !h.lastLocate.CompareAndSwap(last, &now) {
			return r.drv, nil
		}
	}
	looking, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	now, err := h.ask(looking, maxAge)
	switch {
	case err == nil:
		return now.drv, nil
	case moved || ctx.Err() != nil || errors.Is(err, errRemoved) || h.hasMoved(r):
		return nil, err
	}
	return r.drv, nil
}

func (p Placement) fresh(maxAge time.Duration) bool {
	return p.ReadAt.IsZero() || time.Since(p.ReadAt) < maxAge
}

// permit returns the placement to write under. It waits while writes are held. Error: ErrUnavailable if the placement
// cannot be read, or the hold does not end in time.
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
	maxAge := h.store.leases.Fresh
	for {
		var err error
		if r, err = h.ask(ctx, maxAge); err != nil {
			if ctx.Err() != nil && h.at.Load().Phase == Held {
				return nil, fmt.Errorf("%w: the organization is being moved and takes no writes for a moment", ErrUnavailable)
			}
			return nil, fmt.Errorf("locating the organization: %w", err)
		}
		if r.Phase != Held {
			return r, nil
		}
		maxAge = holdPoll
		select {
		case <-time.After(holdPoll):
		case <-ctx.Done():
		}
	}
}

// ask reads the organization's placement, unless another caller has read it less than maxAge ago.
func (h *home) ask(ctx context.Context, maxAge time.Duration) (*residence, error) {
	select {
	case h.asking <- struct{}{}:
		defer func() { <-h.asking }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	if r := h.at.Load(); r.fresh(maxAge) && !h.hasMoved(r) {
		return r, nil
	}
	locate := h.store.locator.Load()
	if locate == nil {
		return h.at.Load(), nil
	}
	asked := time.Now()
	p, err := (*locate)(ctx, h.who.org)
	if err == nil && p.Owner != h.who.owner {
		err = fmt.Errorf("organization %d now has another owner: %w", h.who.org, ErrNotFound)
	}
	if err != nil {
		if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, err
	}
	p.ReadAt = asked
	return h.adopt(ctx, p)
}

// write stores the writes where the organization lives, under a lease, with their entries in the log if it is followed.
// told is of the first writes. With beyond set the quota does not apply.
func (h *home) write(ctx context.Context, writes []driver.Write, told []telling, beyond bool) (err error) {
	h.writing.RLock()
	defer h.writing.RUnlock()
	r, err := h.permit(ctx)
	if err != nil {
		return err
	}
	var found []Event
	if r.Followed {
		found = entries(writes, told)
	}
	if len(found) == 0 {
		return h.keep(ctx, r, writes, beyond)
	}
	err = h.logged(ctx, r, found, writes, beyond)
	if h.store.committed != nil { // also if it failed: entries of others may have waited for it
		h.store.committed(h.who.org)
	}
	return err
}

// keep stores the writes in a residence.
func (h *home) keep(ctx context.Context, r *residence, writes []driver.Write, beyond bool) (err error) {
	quota := r.Quota
	if beyond {
		quota = Quota{}
	}
	if r.ReadAt.IsZero() {
		return writeWithin(ctx, r.drv, writes, quota)
	}
	lease := h.store.leases.of(r.Placement)
	deadline := r.ReadAt.Add(lease)
	inTime, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if r.Phase == Copying {
		// The note is stored on its own and must remain if the writes are refused: the mover may have copied documents
		// that an engine without transactions rolls back afterwards.
		err = r.drv.Write(inTime, []driver.Write{h.store.note(writes)})
	}
	if err == nil {
		err = writeWithin(inTime, r.drv, writes, quota)
	}
	// A write that was stored too late is not acknowledged, because the mover may have read the documents already.
	if time.Now().After(deadline) && (err == nil || ctx.Err() == nil) {
		return fmt.Errorf("%w: the write took longer than %s", ErrUnavailable, lease)
	}
	return err
}
