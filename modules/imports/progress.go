package imports

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"tenantry/internal/background"
	"tenantry/modules/imports/bundle"
	"tenantry/operation"
)

// heartbeat saves the progress while the import waits or makes none for long, until quiet is called. quiet returns
// once nothing is saved any more. If another call has marked the import as interrupted, it is stopped.
func (u *importJob) heartbeat(ctx context.Context, stop func(error)) (quiet func()) {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(heartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := u.overdue(); err != nil {
				stop(err)
			}
			if err := background.Try(func() error {
				u.mu.Lock()
				defer u.mu.Unlock()
				return u.saveProgress(ctx)
			}); err != nil && ctx.Err() == nil {
				stop(err)
			}
		}
	})
	return func() { cancel(); telling.Wait() }
}

// progress saves the progress every heartbeatEvery. An error says that the import was marked as interrupted, and
// another may be running; other errors are logged, because the next save is as good.
func (u *importJob) progress(ctx context.Context, p bundle.Progress) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at = p
	return u.saveProgress(ctx)
}

// saveProgress is progress without new progress. The caller holds the lock.
func (u *importJob) saveProgress(ctx context.Context) error {
	if u.Now().Sub(u.noted) < heartbeatEvery {
		return nil
	}
	u.noted = u.Now()
	place := 0
	if u.ticket != nil {
		place = u.ticket.before()
	}
	err := u.change(ctx, func(i *Import) {
		i.State, i.Message, i.Step, i.Bytes, i.Place = running, "", u.at.Phase, u.at.Bytes, place
	})
	if err != nil && !errors.Is(err, errTaken) && ctx.Err() == nil {
		u.Log.WarnContext(
			ctx, "progress of an import could not be saved", "organization", u.of.Org.Slug, "import", u.job.ID, "error",
			err,
		)
		err = nil
	}
	return err
}

// markWaiting saves at once that the import is waiting.
func (u *importJob) markWaiting(ctx context.Context, stop func(error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at, u.noted = bundle.Progress{Phase: waiting}, time.Time{}
	if err := u.saveProgress(ctx); err != nil {
		stop(err)
	}
}

// markBegun notes that the import has begun.
func (u *importJob) markBegun() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at = bundle.Progress{Phase: bundle.PhaseReading}
}

// turn waits until the import may continue. An error says why it must end.
func (u *importJob) turn(ctx context.Context, stop func(error)) error {
	if err := u.overdue(); err != nil {
		stop(err)
		return err
	}
	return u.ticket.turn(ctx)
}

// overdue returns an error if the import takes too long.
func (u *importJob) overdue() error {
	took := u.Now().Sub(u.arrived)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case took > maxWait && u.at.Phase == waiting:
		return errNoTurn
	case took > maxTime:
		return errLate
	}
	return nil
}

// lateMessage says why an import was ended because it took too long, and what is stored.
func lateMessage(cause error, r bundle.Report) string {
	switch stored := r.Created + r.Updated; {
	case errors.Is(cause, errNoTurn):
		return fmt.Sprintf(
			"It could not begin for %s because of other imports. Nothing was stored; send the same file again later",
			minutes(maxWait),
		)
	case stored == 0 || r.DryRun:
		return fmt.Sprintf("It was stopped after %s. Nothing was stored; send it in several files", minutes(maxTime))
	default:
		return fmt.Sprintf(
			"It was stopped after %s, and %d lines were stored; send the same file again to continue", minutes(maxTime),
			stored,
		)
	}
}

func minutes(d time.Duration) string { return fmt.Sprintf("%d minutes", int(d.Minutes())) }

var errTaken = &operation.Problem{
	Code: http.StatusConflict, Message: "The import made no progress for too long; send the file again",
}

// change changes the record of an import that is still the running one of the organization.
func (u *importJob) change(ctx context.Context, change func(*Import)) error {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	job, err := u.all.Update(ctx, u.job.ID, func(i *Import) error {
		if i.Only == "" {
			return errTaken
		}
		change(i)
		return nil
	})
	if err == nil {
		u.job = job
	}
	return err
}
