package tenants

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// Move is an organization's way to another backend while it goes on.
type Move struct {
	To    string      `json:"to"`
	Phase store.Phase `json:"phase"`
	Began int64       `json:"began"` // Unix milliseconds
	// Mover is who copies now. Whoever resumes the move takes over: the former one stops
	// within a lease, because it asks who the mover is before it writes.
	Mover string `json:"mover"`
	// Holds tells the mover's holds apart, so that nobody ends a later one than they saw.
	Holds int64 `json:"holds,omitempty"`
	// Arrived: everything is copied while writes are held, so that all that is left is to live there. That is known for
	// good before anybody writes there: of a switch that the control data lose again, as in an election, replicas may
	// have read already.
	Arrived bool `json:"arrived,omitempty"`
}

// Limits of a move.
const (
	catchUps    = 20                     // rounds of copying what changed meanwhile, before the hold
	quickRound  = 300 * time.Millisecond // such a round is short enough to be done while writes wait
	holdTries   = 3
	copyTries   = 5
	moveComeOn  = 5   // passes over everything until both sides agree
	finishTries = 500 // each as long as a lease
	moverIDSize = 12
	// tenth of a lease is what clocks may differ by in that time, and what is left of a hold
	// for ending it.
	tenth = 10
)

// MoveProgress is what a move tells while it goes on.
type MoveProgress struct {
	Step     string `json:"step"` // copying, checking, catching up, holding, waiting, done
	Kind     string `json:"kind,omitempty"`
	Compared int64  `json:"compared,omitempty"` // documents of the kind, in this pass
	Copied   int64  `json:"copied,omitempty"`   // of these
	// Note says why a step is done again.
	Note string `json:"note,omitempty"`
}

// MoveReport is what a move did.
type MoveReport struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Sums are what was the same on both sides in the last comparison of everything. What
	// changed since was compared again while writes were held.
	Sums []store.Sum   `json:"sums"`
	Held time.Duration `json:"-"` // how long writes waited
}

// ErrMoving: the organization is being moved, or has an old copy that must go first.
var ErrMoving = errors.New("the organization is being moved")

// ErrNotMoving: there is no move to undo.
var ErrNotMoving = errors.New("the organization is not being moved; there is nothing to roll back")

// owner is whose an organization's workspace is.
func (d *Directory) owner(o *Organization) string { return d.installation + "/" + o.ID }

func (d *Directory) placement(o *Organization, asked time.Time) store.Placement {
	p := store.Placement{Backend: o.Backend, Owner: d.owner(o), Rev: o.Rev, ReadAt: asked, Quota: o.quota()}
	if o.Move != nil {
		p.Phase = o.Move.Phase
	}
	return p
}

// Move copies an organization's documents to another backend while it serves, holds
// writes for a moment, and lets it live there from then on. Where it was interrupted, the
// same call resumes it, and RollBackMove undoes it. The old copy stays until FinishMove.
// Errors: ErrUnknownTenant, *fault.Error for a backend that cannot be, ErrMoving,
// store.ErrForeign where something else lies there, store.ErrUnavailable, store.ErrDiffers;
// after the last two it can be repeated.
func (d *Directory) Move(ctx context.Context, slug, to string, progress func(MoveProgress)) (*MoveReport, error) {
	if progress == nil {
		progress = func(MoveProgress) {}
	}
	m, err := d.beginMove(ctx, slug, to)
	if err != nil {
		return nil, fmt.Errorf("move organization %q to %q: %w", texts.Clip(slug), texts.Clip(to), err)
	}
	m.progress = progress
	report, err := m.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("move organization %s to %s: %w", slug, to, err)
	}
	return report, nil
}

// claim is the right to change a copy, which ends when somebody else takes it over. Not safe
// for concurrent use.
type claim struct {
	d     *Directory
	org   int64
	owner string
	holds func(*Organization) bool
	asked time.Time // when it was last seen to hold
}

var errArrived = fmt.Errorf("%w, and has arrived: with the next write it lives there; repeat the command to have that at once", ErrMoving)

var errTakenOver = fmt.Errorf("%w by somebody else by now, or no longer", ErrMoving)

func (c *claim) check(o *Organization) error {
	if o.State == Removed || !c.holds(o) {
		return errTakenOver
	}
	return nil
}

// guard returns a context to change the copy with. It ends early enough that whoever takes
// over knows, once a lease has passed, that nothing more is changed.
func (c *claim) guard(ctx context.Context) (context.Context, context.CancelFunc, error) {
	leases := c.d.store.Leases()
	if time.Since(c.asked) > leases.Fresh {
		asked := time.Now()
		o, err := c.d.find(ctx, store.Eq("org_id", c.org))
		if err == nil {
			err = c.check(o)
		}
		if err == nil && o.Move != nil && o.Move.Arrived {
			err = errArrived // it may live in the copy at any moment
		}
		if err != nil {
			return nil, nil, err
		}
		c.asked = asked
	}
	inTime, cancel := context.WithDeadline(ctx, c.asked.Add(leases.Settled))
	return inTime, cancel, nil
}

// change alters the organization as long as the claim holds.
func (c *claim) change(ctx context.Context, alter func(*Organization) error) (*Organization, error) {
	return c.d.change(ctx, store.Eq("org_id", c.org), func(o *Organization) error {
		if err := c.check(o); err != nil {
			return err
		}
		return alter(o)
	})
}

func newClaimID() string { return rand.Text()[:moverIDSize] }

// mover carries out one move.
type mover struct {
	claim
	leases   store.Leases
	from, to string
	copier   *store.Mover
	progress func(MoveProgress)
	began    time.Time // before this, writers may not have known that they must leave notes
}

func (d *Directory) beginMove(ctx context.Context, slug, to string) (*mover, error) {
	if to == "" || !d.store.HasBackend(to) {
		return nil, fault.One("to", fault.Unknown, "there is no backend %q; the configuration names %s", texts.Clip(to), strings.Join(d.store.Backends(), ", "))
	}
	possible := func(o *Organization) error {
		switch {
		case o.State == Removed:
			return ErrUnknownTenant
		case o.Backend == to || o.Backend == "" && to == store.DefaultBackend:
			return fault.One("to", fault.Unknown, "the organization lives on %s already", to)
		case o.Move != nil && o.Move.To != to:
			return fmt.Errorf("%w to %s; resume that, or roll it back first", ErrMoving, o.Move.To)
		case o.Move != nil && o.Move.Arrived:
			return errArrived
		case o.Former != "" && o.Former != to:
			return fmt.Errorf("%w: an old copy is still on %s; remove it first (--finish)", ErrMoving, o.Former)
		case o.Finisher != "": // what is copied there now could be removed
			return fmt.Errorf("%w: the old copy on %s is being removed; let that end first (--finish)", ErrMoving, o.Former)
		}
		return nil
	}
	org, err := d.find(ctx, store.Eq("slug", slug))
	if err == nil {
		err = possible(org)
	}
	if errors.Is(err, errArrived) { // whoever moved it is gone
		if err = d.release(ctx, org.OrgID, func(*Organization) bool { return true }); err == nil {
			if org, err = d.find(ctx, store.Eq("slug", slug)); err == nil {
				err = possible(org)
			}
		}
	}
	if err == nil && org.Move == nil && org.Former != to { // what lies there is no copy of it
		err = d.store.Prepare(ctx, org.OrgID, d.owner(org), to)
	}
	if err != nil {
		return nil, err
	}
	id := newClaimID()
	org, err = d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		if err := possible(o); err != nil {
			return err
		}
		if o.Move == nil {
			o.Move = &Move{To: to, Began: d.now().UnixMilli()}
		}
		o.Former = ""
		o.Move.Phase, o.Move.Mover = store.Copying, id
		return nil
	})
	if err != nil {
		return nil, err
	}
	m := &mover{leases: d.store.Leases(), from: org.Backend, to: to, began: time.Now(), claim: claim{d: d, org: org.OrgID, owner: d.owner(org), holds: func(o *Organization) bool {
		return o.Move != nil && o.Move.Mover == id
	}}}
	if m.copier, err = d.store.NewMover(ctx, org.OrgID, m.owner, m.from, to); err != nil {
		return nil, err
	}
	m.copier.Guard = m.guard
	return m, nil
}

func (m *mover) run(ctx context.Context) (*MoveReport, error) {
	m.tell("copying")
	if _, _, err := m.copy(ctx); err != nil {
		return nil, err
	}
	if err := pause(ctx, time.Until(m.began.Add(m.leases.Settled))); err != nil {
		return nil, err
	}
	report := &MoveReport{From: m.from, To: m.to}
	if report.From == "" {
		report.From = store.DefaultBackend
	}
	for try := 1; ; try++ {
		var err error
		if report.Sums, err = m.agree(ctx); err != nil {
			return nil, err
		}
		held, err := m.hold(ctx)
		if err == nil {
			report.Held = held
			m.progress(MoveProgress{Step: "done"})
			return report, nil
		}
		if errors.Is(err, ErrMoving) {
			return nil, err
		}
		if try == holdTries || ctx.Err() != nil {
			return nil, fmt.Errorf("%w; the organization stays where it was and the command can be repeated", err)
		}
		m.progress(MoveProgress{Step: "waiting", Note: err.Error()})
		if err := m.calm(ctx); err != nil {
			return nil, err
		}
	}
}

// calm waits until no write to the copy can still be under way whose outcome is unknown. A
// pass over everything finds what it did.
func (m *mover) calm(ctx context.Context) error { return pause(ctx, m.leases.Settled) }

// copy is a pass over everything. It bears a backend that is slow or away for a moment.
func (m *mover) copy(ctx context.Context) (int64, []store.Sum, error) {
	total := int64(0)
	for try := 1; ; try++ {
		changed, equal, err := m.copier.Copy(ctx)
		total += changed
		slow := errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
		if err == nil || !slow || ctx.Err() != nil || try == copyTries {
			return total, equal, err
		}
		if err := m.calm(ctx); err != nil {
			return total, nil, err
		}
	}
}

func (m *mover) tell(step string) {
	m.progress(MoveProgress{Step: step})
	m.copier.Progress = func(kind string, compared, copied int64) {
		m.progress(MoveProgress{Step: step, Kind: kind, Compared: compared, Copied: copied})
	}
}

// agree compares everything until the two sides differ in nothing but what the notes name.
func (m *mover) agree(ctx context.Context) ([]store.Sum, error) {
	m.tell("checking")
	for range moveComeOn {
		changed, equal, err := m.copy(ctx)
		if err != nil {
			return nil, err
		}
		noted, err := m.copier.CatchUp(ctx)
		if err == nil {
			err = m.copier.Forget(ctx)
		}
		if err != nil {
			return nil, err
		}
		// The first of these passes may repair what writes changed before they left notes.
		if changed <= noted {
			return equal, nil
		}
	}
	return nil, fmt.Errorf("%w after %d passes over everything", store.ErrDiffers, moveComeOn)
}

// hold lets writes wait, copies the last changes and switches. It returns how long writes
// had to wait. After an error they go on at the old place.
func (m *mover) hold(ctx context.Context) (_ time.Duration, err error) {
	m.tell("catching up")
	for range catchUps {
		began := time.Now()
		if _, err := m.copier.CatchUp(ctx); err != nil {
			return 0, err
		}
		quick := time.Since(began) < quickRound
		if err := m.copier.Forget(ctx); err != nil {
			return 0, err
		}
		if quick {
			break
		}
	}
	elected, err := m.steady(ctx)
	if err != nil {
		return 0, err
	}
	m.tell("holding")
	began := time.Now()
	inTime, cancel := context.WithDeadline(ctx, began.Add(m.leases.Hold-m.leases.Hold/tenth))
	defer cancel()
	_, err = m.change(inTime, func(o *Organization) error {
		o.Move.Phase = store.Held
		o.Move.Holds++
		return nil
	})
	if err != nil {
		m.unhold(ctx)
		return 0, err
	}
	heldAt := time.Now()
	if err = m.last(inTime, heldAt, elected); err != nil {
		if m.unhold(ctx); !m.arrived(ctx) {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// steady waits once until the server of the control data has been the same for so long that no replica is answered by
// the one before, which does not know of a hold, and returns since when it has been.
func (m *mover) steady(ctx context.Context) (elected time.Time, err error) {
	elected = m.d.store.Elected()
	left := m.leases.Steady() - time.Since(elected)
	if elected.IsZero() || left <= 0 {
		return elected, nil
	}
	m.progress(MoveProgress{Step: "waiting", Note: fmt.Sprintf("the server of the control data has been seen for %s only", time.Since(elected).Round(time.Second))})
	if err := pause(ctx, left); err != nil {
		return elected, err
	}
	return elected, m.same(elected)
}

func (m *mover) same(elected time.Time) error {
	if !m.d.store.Elected().Equal(elected) {
		return fmt.Errorf("%w: another server has the control data by now", store.ErrUnavailable)
	}
	return nil
}

func (m *mover) last(ctx context.Context, heldAt, elected time.Time) error {
	if _, err := m.copier.CatchUp(ctx); err != nil {
		return err
	}
	if err := pause(ctx, time.Until(heldAt.Add(m.leases.Copying+m.leases.Copying/tenth))); err != nil {
		return err
	}
	if err := m.copier.Finish(ctx); err != nil {
		return err
	}
	if err := m.same(elected); err != nil {
		return err
	}
	if _, err := m.change(ctx, func(o *Organization) error {
		if o.Move.Phase != store.Held {
			return fmt.Errorf("%w: the hold ended before everything was copied", store.ErrUnavailable)
		}
		o.Move.Arrived = true
		return nil
	}); err != nil {
		return err
	}
	asked := time.Now()
	org, err := m.change(ctx, func(o *Organization) error {
		o.settle()
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errArrived, err)
	}
	_, err = m.d.tenant(ctx, org, asked) // calls under way need not ask
	if err != nil {
		return nil //nolint:nilerr // it is moved; the next request opens it
	}
	return nil
}

// arrived reports whether the organization lives at its new place after all: of a switch that
// failed the outcome can be unknown.
func (m *mover) arrived(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	defer cancel()
	o, err := m.d.find(ctx, store.Eq("org_id", m.org))
	return err == nil && o.State != Removed && o.Move == nil && o.Backend == m.to
}

// unhold lets writes go on. Where it fails, those that wait end the hold themselves.
func (m *mover) unhold(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	defer cancel()
	_ = m.d.release(ctx, m.org, m.holds)
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RollBackMove ends a move that has not switched yet: the organization stays where it is
// and the copy is removed. Errors: ErrUnknownTenant, ErrNotMoving, ErrMoving where everything is copied and it is about
// to live there, store.ErrUnavailable; where it ended the move but could not remove the copy, FinishMove can.
func (d *Directory) RollBackMove(ctx context.Context, slug string) error {
	id := newClaimID()
	org, err := d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		if o.State == Removed {
			return ErrUnknownTenant
		}
		if o.Move == nil {
			return ErrNotMoving
		}
		if o.Move.Arrived {
			return errArrived
		}
		o.Former, o.Move, o.Finisher = o.Move.To, nil, id
		return nil
	})
	if err == nil {
		err = d.finish(ctx, org)
	}
	if err != nil {
		return fmt.Errorf("roll back the move of organization %q: %w", texts.Clip(slug), err)
	}
	return nil
}

// FinishMove removes the copy that an organization left behind, and does nothing where it
// left none. Until it has ended the organization cannot be moved; where it failed it can be
// repeated. Errors: ErrUnknownTenant, ErrMoving while a move goes on or where somebody else
// took over, store.ErrUnavailable.
func (d *Directory) FinishMove(ctx context.Context, slug string) error {
	id := newClaimID()
	org, err := d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		switch {
		case o.State == Removed:
			return ErrUnknownTenant
		case o.Move != nil:
			return ErrMoving
		case o.Former == "":
			return errUnchanged
		}
		o.Finisher = id
		return nil
	})
	switch {
	case errors.Is(err, errUnchanged):
		return nil
	case err == nil:
		err = d.finish(ctx, org)
	}
	if err != nil {
		return fmt.Errorf("finish the move of organization %q: %w", texts.Clip(slug), err)
	}
	return nil
}

// finish removes the old copy on behalf of the organization's Finisher.
func (d *Directory) finish(ctx context.Context, org *Organization) error {
	c := &claim{d: d, org: org.OrgID, owner: d.owner(org), holds: func(o *Organization) bool { return o.Finisher == org.Finisher }}
	// A mover, a former finisher or a reader of the old copy may not know yet.
	if err := pause(ctx, d.store.Leases().Settled); err != nil {
		return err
	}
	if _, err := d.BySlug(ctx, org.Slug); err != nil { // calls of this process leave the copy
		return err
	}
	m, err := d.store.NewMover(ctx, org.OrgID, c.owner, org.Backend, org.Former)
	if err != nil {
		return err
	}
	m.Guard = c.guard
	if err := m.Clean(ctx); err != nil {
		return err
	}
	if err := c.removeCopy(ctx, org.Former); err != nil {
		return err
	}
	_, err = c.change(ctx, func(o *Organization) error {
		o.Former, o.Finisher = "", ""
		return nil
	})
	return err
}

// removeCopy removes what a backend has, a lease's worth at a time: whoever takes over must
// not find what it copies there removed.
func (c *claim) removeCopy(ctx context.Context, backend string) error {
	for try := 1; ; try++ {
		guarded, cancel, err := c.guard(ctx)
		if err != nil {
			return err
		}
		err = c.d.store.RemoveFrom(guarded, c.org, c.owner, backend)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) || try == finishTries {
			return err
		}
	}
}
