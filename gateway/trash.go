package gateway

import (
	"context"
	"errors"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/modules/audit"
	"tenantry/tenants"
)

// The trash of all organizations, and deleted organizations themselves, are emptied in rounds. A round goes over all
// organizations, in as many turns as it takes; one replica at a time takes a turn.
const (
	trashChore = "000000000000000000000001"
	trashTick  = time.Minute      // between two turns that a replica tries to take
	trashRound = time.Hour        // between two rounds, unless the last one was not completed
	trashTurn  = 40 * time.Second // after this no further organization is begun
	trashEach  = 10 * time.Second // timeout for one organization
	sealEach   = 5 * time.Second  // timeout for sealing its audit log, in addition
	trashHold  = time.Minute      // after this the turn of a replica that died is free for others
	// trashGrace is longer than a restoration takes, and than the clocks of replicas differ, because a record must not
	// be restored and erased at the same time.
	trashGrace = 10 * time.Minute
)

// sweepFiles removes what is left of files that are gone.
func (a *App) sweepFiles(ctx context.Context, t *tenants.Tenant) (left bool, err error) {
	err = background.Try(func() error {
		left, err = a.files.Sweep(ctx, t)
		return err
	})
	return left, err
}

// expired returns the time, in milliseconds, before which deleted records have expired; 0: records never expire.
func (s *Services) expired() int64 {
	keep := s.settings().Trash.Keep
	if keep == 0 {
		return 0
	}
	return s.now().Add(-keep).UnixMilli()
}

// takeTrashTurn calls EmptyTrash and logs its error.
func (a *App) takeTrashTurn(ctx context.Context) {
	if _, err := a.EmptyTrash(ctx); err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "the trash could not be emptied and will be retried", "error", err)
	}
}

// EmptyTrash takes one turn of erasing expired records and organizations. It does nothing if another replica has the
// turn or no round is due, and reports whether it took a turn. Errors: store.ErrUnavailable, store.ErrConflict.
func (a *App) EmptyTrash(ctx context.Context) (taken bool, err error) {
	return a.takeTurn(ctx, round{chore: trashChore, turn: trashTurn, hold: trashHold, every: trashRound, page: 1},
		func(ctx context.Context, org *tenants.Organization) bool {
			switch {
			case org.IsDue(a.now()):
				return a.erase(ctx, org.Slug)
			case org.State != tenants.Removed:
				return a.emptyTrashOf(ctx, org.Slug)
			}
			return false
		},
		func(ctx context.Context) bool { return a.seal(ctx, a.directory.Own()) })
}

// erase erases an organization that was deleted long ago. It reports whether it ran out of time.
func (a *App) erase(ctx context.Context, slug string) (left bool) {
	org, _, err := a.directory.RemoveDue(ctx, slug)
	if errors.Is(err, tenants.ErrNotDeleted) { // it was restored just now
		return false
	}
	if err != nil {
		a.log.WarnContext(ctx, "a deleted organization could not be erased and will be retried",
			"organization", slug, "error", err)
		return ctx.Err() != nil
	}
	subject := (&tenants.Principal{Kind: tenants.System}).Subject()
	if err := a.audit.Erased(ctx, a.directory.Own(), org, subject); err != nil {
		a.log.ErrorContext(ctx, "the erasure of an organization could not be recorded in the audit log",
			"organization", slug, "error", err)
	}
	a.log.InfoContext(ctx, "a deleted organization was erased",
		"organization", slug, "documents", org.Ending.Documents, "places", org.Ending.Places)
	return false
}

// seal seals the audit log of an organization, or of the installation, and signs its head. It reports whether it ran out
// of time. Its timeout is separate from that of the trash.
func (a *App) seal(ctx context.Context, t *tenants.Tenant) (left bool) {
	ctx, cancel := context.WithTimeout(ctx, sealEach)
	defer cancel()
	err := background.Try(func() error { return errors.Join(a.seals.Seal(ctx, t), a.heads.Advance(ctx, t)) })
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "the audit log could not be sealed and will be retried",
			"organization", t.Org.Slug, "error", err)
	}
	return err != nil && ctx.Err() != nil
}

// emptyTrashOf erases the expired records of an organization and its expired answers for repeated requests, and seals
// its audit log. It reports whether it ran out of time.
func (a *App) emptyTrashOf(outer context.Context, slug string) (left bool) {
	ctx, cancel := context.WithTimeout(outer, trashEach)
	defer cancel()
	keep := a.settings().Trash.Keep // once, because it may change meanwhile
	before := a.now().Add(-keep - trashGrace).UnixMilli()
	erased := 0
	t, err := a.directory.BySlug(ctx, slug)
	if err == nil {
		t = t.Through((*store.Workspace).BeyondQuota)
		failed := background.Try(func() error { return a.idempotency.Forget(ctx, t.Workspace()) })
		if failed != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "expired answers for repeated requests could not be removed and will be retried",
				"organization", slug, "error", failed)
		}
	}
	if err == nil {
		var failed error
		if left, failed = a.sweepFiles(ctx, t); failed != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "bytes that no file uses could not be removed and will be retried",
				"organization", slug, "error", failed)
		}
	}
	if err == nil {
		failed := background.Try(func() error { return a.directory.TrimEvents(ctx, t, a.settings().Events.Keep) })
		if failed != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "old changes could not be removed from the log and will be retried",
				"organization", slug, "error", failed)
		}
	}
	if err == nil {
		more, failed := a.forgetMail(ctx, t)
		if left = left || more; failed != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "old mails could not be removed, or administrators not told of keys, and it will be retried",
				"organization", slug, "error", failed)
		}
	}
	if err == nil {
		failed := background.Try(func() error {
			more, err := a.webhooks.Trim(ctx, t)
			left = left || more
			return err
		})
		if failed != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "old notes of deliveries could not be removed and will be retried",
				"organization", slug, "error", failed)
		}
	}
	if err == nil {
		failed := background.Try(func() error { return a.schedules.Trim(ctx, t) })
		if failed != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "old runs of reports could not be removed and will be retried",
				"organization", slug, "error", failed)
		}
	}
	for i := 0; err == nil && i < len(a.rows); i++ {
		row := &a.rows[i]
		if row.Expire == nil || keep == 0 {
			continue
		}
		c := a.systemCall(row, t)
		report := func(id string) {
			erased++
			rec := audit.Record{
				Operation: "trash.purge", Subject: c.Principal.Subject(), Outcome: audit.OK,
				Facts: map[string]string{row.Resource: id},
			}
			if err := a.audit.Write(ctx, t.Workspace(), rec); err != nil {
				a.log.ErrorContext(ctx, "the erasure of a record could not be recorded in the audit log",
					"organization", slug, row.Resource, id, "error", err)
			}
		}
		failed := background.Try(func() error {
			more, err := row.Expire(ctx, c, before, report)
			left = left || more
			return err
		})
		if failed != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "some of the trash could not be emptied and will be retried",
				"organization", slug, "operation", row.Name, "error", failed)
		}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, tenants.ErrUnknownTenant) {
		a.log.WarnContext(ctx, "the trash of an organization could not be emptied", "organization", slug, "error", err)
	}
	if erased > 0 {
		a.log.InfoContext(ctx, "expired records were erased from the trash", "organization", slug, "records", erased)
	}
	return err == nil && a.seal(outer, t) || left
}
