package tenants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tenantry/backends/store"
)

// Chore is a task that one replica at a time carries out for all organizations, in rounds.
type Chore struct {
	store.Meta
	Until int64  `json:"until"`           // end of the current claim, in Unix milliseconds; 0: unclaimed
	After string `json:"after,omitempty"` // slug of the last organization done in this round; empty: the round ended
	Next  int64  `json:"next"`            // earliest start of the next round, in Unix milliseconds
	Again bool   `json:"again,omitempty"` // the round left work over
}

// restoreChore is in control data that are being restored.
const restoreChore = "000000000000000000000003"

// BeginRestore notes in the control workspace, which is empty, that it is being restored: no gateway serves it then.
func (k Kinds) BeginRestore(ctx context.Context, control *store.Workspace) error {
	err := k.Chores.In(control).Insert(ctx, &Chore{Meta: store.Meta{ID: restoreChore}})
	if _, again := errors.AsType[*store.DuplicateError](err); again {
		return nil
	}
	return err
}

// Restoring reports whether the control workspace is being restored, or a restoration of it was interrupted.
func (k Kinds) Restoring(ctx context.Context, control *store.Workspace) (bool, error) {
	_, err := k.Chores.In(control).Get(ctx, restoreChore)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// LastRestored returns the names of the kinds that are restored last, in this order: what makes control data those of an
// installation, and what says that they are being restored.
func LastRestored() []string { return []string{"installations", "chores"} }

// KindsWithKeys returns the kinds that hold keys of what organizations store, for store.CopyOptions. Organizations that
// the copy lacks have no workspace in it either.
func KindsWithKeys() []store.KeyKind {
	return []store.KeyKind{{Name: "installations"}, {Name: "organizations", Known: true}}
}

// choreRenewals is how often HoldChore renews its claim before that would expire.
const choreRenewals = 4

// choreSkew is how much clocks may differ: a claim that ends later than one made now would, by less than that, was made by
// a replica whose clock is ahead. One that ends later still is from before a clock was set back.
const choreSkew = time.Minute

// ClaimChore claims a chore for the duration hold, or until ReleaseChore. It returns nil if another replica has claimed
// it or the next round is not due yet. Error: store.ErrUnavailable.
func (d *Directory) ClaimChore(ctx context.Context, id string, hold time.Duration) (*Chore, error) {
	write := d.chores.Replace
	rec, err := d.chores.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		rec, err, write = &Chore{Meta: store.Meta{ID: id}}, nil, d.chores.Insert
	}
	if err != nil {
		return nil, err
	}
	now := d.now()
	until := now.Add(hold).UnixMilli()
	claimed := now.UnixMilli() < rec.Until && rec.Until <= until+choreSkew.Milliseconds()
	if claimed || rec.After == "" && now.UnixMilli() < rec.Next {
		return nil, nil
	}
	rec.Until = until
	err = write(ctx, rec)
	if _, dup := errors.AsType[*store.DuplicateError](err); dup || errors.Is(err, store.ErrConflict) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return rec, nil
}

// ReleaseChore stores how far the chore has come and ends the claim. Errors: store.ErrConflict if the claim expired and
// another replica claimed the chore; store.ErrUnavailable.
func (d *Directory) ReleaseChore(ctx context.Context, c *Chore) error {
	c.Until = 0
	return d.chores.Replace(ctx, c)
}

// HoldChore calls do while it holds the claim on a chore, however long that takes, and reports whether it could claim it:
// not if another replica has it. After the end of a process that holds it, others wait for the duration hold. The context
// of do ends when the claim is lost. Errors: that of do; store.ErrUnavailable.
func (d *Directory) HoldChore(ctx context.Context, id string, hold time.Duration, do func(context.Context) error) (held bool, err error) {
	chore, err := d.ClaimChore(ctx, id, hold)
	if chore == nil || err != nil {
		return false, err
	}
	claim := holding{d: d, chore: chore, hold: hold}
	doing, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	var lost error
	renewing.Go(func() {
		tick := time.NewTicker(hold / choreRenewals)
		defer tick.Stop()
		for {
			select {
			case <-doing.Done():
				return
			case <-tick.C:
			}
			if lost = claim.renew(ctx); lost != nil {
				cancel()
				return
			}
		}
	})
	err = do(doing)
	cancel()
	renewing.Wait()
	if lost != nil {
		return true, errors.Join(fmt.Errorf("the claim on the chore is lost: %w", lost), err)
	}
	return true, errors.Join(err, claim.write(ctx, 0))
}

// holding is a claim that is being renewed. Not safe for concurrent use.
type holding struct {
	d     *Directory
	chore *Chore
	hold  time.Duration
	tried []int64 // ends of the claim one of which may have been stored
}

// renew moves the end of the claim on. It returns an error if another replica has the chore, or may soon have it.
func (h *holding) renew(ctx context.Context) error {
	err := h.write(ctx, h.d.now().Add(h.hold).UnixMilli())
	last := time.UnixMilli(h.chore.Until).Add(-h.hold / choreRenewals) // to end before another replica begins
	if err == nil || !errors.Is(err, store.ErrConflict) && !h.d.now().After(last) {
		return nil
	}
	return err
}

// write stores the end of the claim, also if ctx ends meanwhile: a write that was given up may have been stored, and the
// next one conflicts with it. Errors: store.ErrConflict if another replica has the chore; store.ErrUnavailable.
func (h *holding) write(ctx context.Context, until int64) error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), h.hold/choreRenewals)
	defer stop()
	replace := func() error {
		c := *h.chore
		c.Until = until
		err := h.d.chores.Replace(ctx, &c)
		switch {
		case err == nil:
			*h.chore, h.tried = c, nil
		case !errors.Is(err, store.ErrConflict):
			h.tried = append(h.tried, until)
		}
		return err
	}
	err := replace()
	if !errors.Is(err, store.ErrConflict) || len(h.tried) == 0 {
		return err
	}
	stored, unread := h.d.chores.Get(ctx, h.chore.ID)
	switch {
	case unread != nil:
		return unread
	case !slices.Contains(h.tried, stored.Until):
		return err
	}
	*h.chore, h.tried = *stored, nil
	return replace()
}
