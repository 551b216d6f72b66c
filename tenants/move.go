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

// Move is the state of a move of an organization to another backend.
type Move struct {
	To    string      `json:"to"`
	Phase store.Phase `json:"phase"`
	Began int64       `json:"began"` // Unix milliseconds
	// Mover identifies the call that copies. A call that resumes the move takes over: the former mover stops within a
	// lease, because it reads this field before it writes.
	Mover string `json:"mover"`
	// Holds counts the mover's holds, so that a replica that saw one hold does not end a later one.
	Holds int64 `json:"holds,omitempty"`
	// Arrived is set once everything is copied and writes are held: only the switch is left. It is stored before the
	// switch, because replicas may act on a switch that the control data then lose in an election.
	Arrived bool `json:"arrived,omitempty"`
	// Restores: the documents come from a backup, see restore.go.
	Restores bool `json:"restores,omitempty"`
}

// Limits of a move.
const (
	maxCatchUps   = 20                     // rounds of copying recent changes before the hold
	quickRound    = 300 * time.Millisecond // a round this short may be repeated while writes wait
	holdTries     = 3
	copyTries     = 5
	comparePasses = 5   // passes over everything until both sides are equal
	finishTries   = 500 // each as long as a lease
	moverIDSize   = 12
	// One part in marginDivisor of a lease is the allowance for clocks that run at different rates. The same part of a
	// hold is reserved for ending it.
	marginDivisor = 10
)

// MoveProgress reports the progress of a move.
type MoveProgress struct {
	Step     string `json:"step"` // copying, checking, copying what changed meanwhile, pausing writes, waiting, done
	Kind     string `json:"kind,omitempty"`
	Compared int64  `json:"compared,omitempty"` // documents of the kind compared in this pass
	Copied   int64  `json:"copied,omitempty"`   // documents copied, of those compared
	// Note is the reason for waiting or repeating a step.
	Note string `json:"note,omitempty"`
}

// MoveReport is the result of a move.
type MoveReport struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Sums are the checksums on which both sides agreed in the last comparison of everything. Later changes were
	// compared again while writes were held.
	Sums []store.Sum   `json:"sums"`
	Held time.Duration `json:"-"` // how long writes waited
}

// ErrMoving: the organization is being moved, or has an old copy that must be removed first.
var ErrMoving = errors.New("the organization is being moved")

// ErrNotMoving: there is no move to roll back.
var ErrNotMoving = errors.New("the organization is not being moved; there is nothing to roll back")

// owner returns the text that marks a workspace as the organization's.
func (d *Directory) owner(o *Organization) string { return d.installation + "/" + o.ID }

func (d *Directory) placement(o *Organization, asked time.Time) store.Placement {
	p := store.Placement{Backend: o.Place, Owner: d.owner(o), Rev: o.Rev, ReadAt: asked, Quota: o.quota(), Followed: o.EventLog != nil}
	if o.Move != nil {
		p.Phase = o.Move.Phase
	}
	return p
}

// Move copies an organization's documents to another backend while requests go on, holds writes for a moment, and makes
// that backend the organization's home. If it was interrupted, the same call resumes it, and RollBackMove undoes it.
// The old copy stays until FinishMove. Errors: ErrUnknownTenant; *fault.Error for a backend that cannot be the target;
// ErrMoving; store.ErrForeign if the target holds another owner's workspace; store.ErrUnavailable and store.ErrDiffers,
// after which it can be repeated.
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

// claim is the right to change a copy. It ends when another call takes over. It is not safe for concurrent use.
type claim struct {
	d     *Directory
	org   int64
	owner string
	valid func(*Organization) bool
	asked time.Time // when it was last found valid
	// removed: the organization is erased until the call is complete.
	removed bool
}

var errArrived = fmt.Errorf("%w, and everything is copied: the next write completes the move; "+
	"repeat the command to complete it now", ErrMoving)

var errTakenOver = fmt.Errorf("%w by another command now, or the move has ended", ErrMoving)

func (c *claim) check(o *Organization) error {
	if (o.State == Removed) != c.removed || !c.valid(o) {
		return errTakenOver
	}
	return nil
}

// guard returns a context for changing the copy. Its deadline is early enough that a call which takes over, and waits
// for a lease, can rely on no further changes.
func (c *claim) guard(ctx context.Context) (context.Context, context.CancelFunc, error) {
	leases := c.d.store.Leases()
	if time.Since(c.asked) > leases.Fresh {
		asked := time.Now()
		o, err := c.d.find(ctx, store.Eq("org_id", c.org))
		if err == nil {
			err = c.check(o)
		}
		if err == nil && o.Move != nil && o.Move.Arrived {
			err = errArrived // the copy may become the organization's home at any moment
		}
		if err != nil {
			return nil, nil, err
		}
		c.asked = asked
	}
	inTime, cancel := context.WithDeadline(ctx, c.asked.Add(leases.Settled))
	return inTime, cancel, nil
}

// change alters the organization if the claim is still valid.
func (c *claim) change(ctx context.Context, alter func(*Organization) error) (*Organization, error) {
	return c.changeWith(ctx, func(o *Organization, _ *store.Batch) error { return alter(o) })
}

// changeWith is change with further writes to the control workspace in the same batch.
func (c *claim) changeWith(
	ctx context.Context, alter func(*Organization, *store.Batch) error,
) (*Organization, error) {
	return c.d.changeWith(ctx, store.Eq("org_id", c.org), func(o *Organization, b *store.Batch) error {
		if err := c.check(o); err != nil {
			return err
		}
		return alter(o, b)
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
	// restoration, with the Mover that copies from the backup and what that has copied; nil: the organization is moved.
	restoration *Restoration
	fill        *store.Mover
	filled      []store.Sum
	began       time.Time // writers that read the placement before this do not note their changes for the copier
}

// beginMove records the start of a move, or takes over one that was interrupted, and returns its mover. Errors: as
// Move.
func (d *Directory) beginMove(ctx context.Context, slug, to string) (*mover, error) {
	if to == "" || !d.store.HasBackend(to) {
		return nil, fault.One("to", fault.Unknown, "there is no backend %q; the configuration names %s",
			texts.Clip(to), strings.Join(d.store.Backends(), ", "))
	}
	movable := func(o *Organization) error {
		switch {
		case o.State == Removed:
			return ErrUnknownTenant
		case o.Home() == to:
			return fault.One("to", fault.Unknown, "the organization lives on %s already", to)
		case o.Move != nil && o.Move.To != to:
			return fmt.Errorf("%w to %s; resume that, or roll it back first", ErrMoving, o.Move.To)
		case o.Move != nil && o.Move.Arrived:
			return errArrived
		case o.Former != "" && o.Former != to:
			return fmt.Errorf("%w: an old copy is still on %s; remove it first (--finish)", ErrMoving, o.Former)
		case o.Finisher != "": // it could remove what is copied there now
			return fmt.Errorf("%w: the old copy on %s is being removed; finish that first (--finish)", ErrMoving, o.Former)
		}
		return nil
	}
	org, err := d.find(ctx, store.Eq("slug", slug))
	if err == nil {
		err = movable(org)
	}
	if errors.Is(err, errArrived) { // the mover stopped before the switch
		if err = d.release(ctx, org.OrgID, func(*Organization) bool { return true }); err == nil {
			if org, err = d.find(ctx, store.Eq("slug", slug)); err == nil {
				err = movable(org)
			}
		}
	}
	if err == nil && org.Move == nil && org.Former != to { // there is no copy on that backend yet
		err = d.store.Prepare(ctx, org.OrgID, d.owner(org), to)
	}
	if err != nil {
		return nil, err
	}
	id := newClaimID()
	org, err = d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		if err := movable(o); err != nil {
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

	m := d.newMover(org, id)
	if m.copier, err = d.store.NewMover(ctx, org.OrgID, m.owner, m.from, to); err != nil {
		return nil, err
	}
	m.copier.Guard = m.guard
	return m, nil
}

// newMover returns the mover of a move that was just recorded under that claim.
func (d *Directory) newMover(org *Organization, id string) *mover {
	valid := func(o *Organization) bool { return o.Move != nil && o.Move.Mover == id }
	return &mover{
		claim:  claim{d: d, org: org.OrgID, owner: d.owner(org), valid: valid},
		leases: d.store.Leases(), from: store.BackendName(org.Place), to: org.Move.To, began: time.Now(),
	}
}

// run carries out the move, from the first copy to the switch.
func (m *mover) run(ctx context.Context) (*MoveReport, error) {
	m.beginStep("copying")
	if m.fill != nil {
		m.fill.Progress = m.copier.Progress
		var err error
		if m.filled, err = m.fillFrom(ctx, m.fill); err != nil {
			return nil, err
		}
	}
	if _, _, err := m.copy(ctx); err != nil {
		return nil, err
	}
	if err := sleep(ctx, time.Until(m.began.Add(m.leases.Settled))); err != nil {
		return nil, err
	}
	report := &MoveReport{From: m.from, To: m.to}
	if report.From == "" {
		report.From = store.DefaultBackend
	}
	for try := 1; ; try++ {
		var err error
		if report.Sums, err = m.compareAll(ctx); err != nil {
			return nil, err
		}
		held, err := m.switchOver(ctx)
		if err == nil {
			report.Held = held
			if m.restoration == nil { // Restore has more to do
				m.progress(MoveProgress{Step: "done"})
			}
			return report, nil
		}
		if errors.Is(err, ErrMoving) {
			return nil, err
		}
		if try == holdTries || ctx.Err() != nil {
			return nil, fmt.Errorf("%w; the organization stays where it is, and the command can be repeated", err)
		}
		m.progress(MoveProgress{Step: "waiting", Note: err.Error()})
		if err := m.awaitSettled(ctx); err != nil {
			return nil, err
		}
	}
}

// awaitSettled waits until no write to the copy with an unknown outcome can still be under way. A pass over everything
// then finds its effect.
func (m *mover) awaitSettled(ctx context.Context) error { return sleep(ctx, m.leases.Settled) }

// copy makes one pass over everything, and repeats it if a backend is slow or unavailable for a moment. It returns the
// number of documents changed in the copy, and the checksums.
func (m *mover) copy(ctx context.Context) (int64, []store.Sum, error) {
	total := int64(0)
	for try := 1; ; try++ {
		changed, equal, err := m.copier.Copy(ctx)
		total += changed
		if !isSlow(ctx, err) || try == copyTries {
			return total, equal, err
		}
		if err := m.awaitSettled(ctx); err != nil {
			return total, nil, err
		}
	}
}

// isSlow reports whether a backend was slow or unavailable for a moment.
func isSlow(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded))
}

// beginStep reports a step, and attributes the copier's progress to it.
func (m *mover) beginStep(step string) {
	m.progress(MoveProgress{Step: step})
	m.copier.Progress = func(kind string, compared, copied int64) {
		m.progress(MoveProgress{Step: step, Kind: kind, Compared: compared, Copied: copied})
	}
}

// compareAll makes passes over everything until the two sides differ only in changes that writers have noted.
func (m *mover) compareAll(ctx context.Context) ([]store.Sum, error) {
	m.beginStep("checking")
	for range comparePasses {
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
		// The first pass may also repair changes that writers made before they noted them.
		if changed <= noted {
			return equal, nil
		}
	}
	return nil, fmt.Errorf("%w after %d passes over everything", store.ErrDiffers, comparePasses)
}

// switchOver holds writes, copies the last changes and makes the target the organization's home. It returns how long
// writes were held. After an error they go on at the old place.
func (m *mover) switchOver(ctx context.Context) (_ time.Duration, err error) {
	m.beginStep("copying what changed meanwhile")
	for range maxCatchUps {
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
	if err := m.beforeHold(ctx); err != nil {
		return 0, err
	}
	elected, err := m.awaitStableControl(ctx)
	if err != nil {
		return 0, err
	}
	m.beginStep("pausing writes")
	began := time.Now()
	inTime, cancel := context.WithDeadline(ctx, began.Add(m.leases.Hold-m.leases.Hold/marginDivisor))
	defer cancel()
	_, err = m.change(inTime, func(o *Organization) error {
		o.Move.Phase = store.Held
		o.Move.Holds++
		return nil
	})
	if err != nil {
		m.releaseHold(ctx)
		return 0, err
	}
	heldAt := time.Now()
	if err = m.finishCopy(inTime, heldAt, elected); err != nil {
		if m.releaseHold(ctx); !m.switched(ctx) {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// awaitStableControl waits, once, until the same server has led the control data long enough that no replica can be
// answered by its predecessor, which would not know of a hold. It returns the time of that server's election.
func (m *mover) awaitStableControl(ctx context.Context) (elected time.Time, err error) {
	elected = m.d.store.Elected()
	left := m.leases.Steady() - time.Since(elected)
	if elected.IsZero() || left <= 0 {
		return elected, nil
	}
	known := time.Since(elected).Round(time.Second)
	note := fmt.Sprintf("the server of the control data has been known for only %s", known)
	m.progress(MoveProgress{Step: "waiting", Note: note})
	if err := sleep(ctx, left); err != nil {
		return elected, err
	}
	return elected, m.checkElected(elected)
}

// checkElected returns an error if another server leads the control data since then.
func (m *mover) checkElected(elected time.Time) error {
	if !m.d.store.Elected().Equal(elected) {
		return fmt.Errorf("%w: another server leads the control data now", store.ErrUnavailable)
	}
	return nil
}

// finishCopy copies the last changes while writes are held, records the arrival and switches.
func (m *mover) finishCopy(ctx context.Context, heldAt, elected time.Time) error {
	if _, err := m.copier.CatchUp(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, time.Until(heldAt.Add(m.leases.Copying+m.leases.Copying/marginDivisor))); err != nil {
		return err
	}
	if err := m.copier.Finish(ctx); err != nil {
		return err
	}
	if err := m.whileHeld(ctx); err != nil {
		return err
	}
	if err := m.checkElected(elected); err != nil {
		return err
	}
	if _, err := m.changeWith(ctx, func(o *Organization, b *store.Batch) error {
		if o.Move.Phase != store.Held {
			return fmt.Errorf("%w: the hold ended before everything was copied", store.ErrUnavailable)
		}
		o.Move.Arrived = true
		return m.atArrival(ctx, b, o)
	}); err != nil {
		return err
	}
	asked := time.Now()
	org, err := m.change(ctx, func(o *Organization) error {
		o.completeMove()
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errArrived, err)
	}
	// Opening the workspace saves the calls under way a look-up of the placement. Its failure does not matter, because
	// the organization is moved and the next request opens it.
	_, _ = m.d.tenant(ctx, org, asked)
	return nil
}

// switched reports whether the organization is on the target after all, because the outcome of a failed switch can be
// unknown.
func (m *mover) switched(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	defer cancel()
	o, err := m.d.find(ctx, store.Eq("org_id", m.org))
	return err == nil && o.State != Removed && o.Move == nil && store.BackendName(o.Place) == store.BackendName(m.to)
}

// releaseHold lets writes go on. If it fails, the replicas that wait end the hold themselves: see locate.
func (m *mover) releaseHold(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	defer cancel()
	_ = m.d.release(ctx, m.org, m.valid)
}

func sleep(ctx context.Context, d time.Duration) error {
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

// RollBackMove ends a move that has not switched yet: the organization stays where it is and the copy is removed.
// Errors: ErrUnknownTenant; ErrNotMoving; ErrMoving if everything is copied and only the switch is left;
// store.ErrUnavailable. If the move ended but removing the copy failed, FinishMove removes it.
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

// FinishMove removes the copy that a move has left behind, if there is one. The organization cannot be moved until this
// has ended, and after a failure it can be repeated. Errors: ErrUnknownTenant; ErrMoving during a move, or if another
// call took over; store.ErrUnavailable.
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
	valid := func(o *Organization) bool { return o.Finisher == org.Finisher }
	c := &claim{d: d, org: org.OrgID, owner: d.owner(org), valid: valid}
	// A mover, a former finisher or a reader of the old copy may go on until its lease ends.
	if err := sleep(ctx, d.store.Leases().Settled); err != nil {
		return err
	}
	if _, err := d.BySlug(ctx, org.Slug); err != nil { // moves the calls of this process off the copy
		return err
	}
	m, err := d.store.NewMover(ctx, org.OrgID, c.owner, org.Place, org.Former)
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

// removeCopy removes the documents on a backend, for at most one lease at a time, so that a call that takes over does
// not lose what it copies there.
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
