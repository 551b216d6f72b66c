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

// The trash of all organizations is emptied in rounds, and these in turns. Organizations are part of it.
const (
	trashChore = "000000000000000000000001"
	trashTick  = time.Minute      // between two turns of a replica
	trashRound = time.Hour        // between two rounds, but where the last one left something
	trashTurn  = 40 * time.Second // after which no other organization is begun
	trashEach  = 10 * time.Second // for one organization
	sealEach   = 5 * time.Second  // for its audit log besides
	trashHold  = time.Minute      // after which a replica that says nothing has ended
	// trashGrace is more than a restoration takes, and more than the clocks of replicas differ: what is
	// about to end is restored by nobody any more.
	trashGrace = 10 * time.Minute
)

// expired returns the time before which records were deleted that are kept no longer; 0: all are.
func (s *Services) expired() int64 {
	if s.cfg.Trash.Keep == 0 {
		return 0
	}
	return s.now().Add(-s.cfg.Trash.Keep).UnixMilli()
}

// keepTrashEmpty takes a turn of EmptyTrash and logs why one failed.
func (a *App) keepTrashEmpty(ctx context.Context) {
	if _, err := a.EmptyTrash(ctx); err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "the trash could not be emptied, and will be later", "error", err)
	}
}

// EmptyTrash takes one turn of erasing what was deleted long ago, unless another replica takes one or no round is due.
// It reports whether it took one. Errors: store.ErrUnavailable, store.ErrConflict.
func (a *App) EmptyTrash(ctx context.Context) (taken bool, err error) {
	held, cancel := context.WithTimeout(ctx, trashHold)
	defer cancel()
	chore, err := a.directory.ClaimChore(held, trashChore, trashHold)
	if chore == nil || err != nil {
		return false, err
	}
	defer func() {
		giving, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
		defer cancel()
		err = errors.Join(err, a.directory.ReleaseChore(giving, chore))
	}()
	for began := time.Now(); time.Since(began) < trashTurn && held.Err() == nil; {
		page, err := a.directory.List(held, chore.After, 1)
		if err != nil {
			return true, err
		}
		if len(page) == 0 {
			if !a.sealIn(held, a.directory.Own()) && !chore.Again {
				chore.Next = a.now().Add(trashRound).UnixMilli()
			}
			chore.After, chore.Again = "", false
			return true, nil
		}
		org, left := &page[0], false
		switch {
		case org.IsDue(a.now()):
			left = a.erase(held, org.Slug)
		case org.State != tenants.Removed:
			left = a.expireIn(held, org.Slug)
		}
		chore.After, chore.Again = org.Slug, chore.Again || left
	}
	return true, nil
}

// erase ends an organization that was deleted long ago, and reports whether it had not the time for all of it.
func (a *App) erase(ctx context.Context, slug string) (left bool) {
	org, _, err := a.directory.RemoveDue(ctx, slug)
	if errors.Is(err, tenants.ErrNotDeleted) { // it was undeleted just now
		return false
	}
	if err != nil {
		a.log.WarnContext(ctx, "a deleted organization could not be erased, and will be later", "organization", slug, "error", err)
		return ctx.Err() != nil
	}
	subject := (&tenants.Principal{Kind: tenants.System}).Subject()
	if err := a.audit.Erased(ctx, a.directory.Own(), org, subject); err != nil {
		a.log.ErrorContext(ctx, "the erasure of an organization could not be recorded in the audit log", "organization", slug, "error", err)
	}
	a.log.InfoContext(ctx, "a deleted organization was erased", "organization", slug, "documents", org.Ending.Documents, "places", org.Ending.Places)
	return false
}

// sealIn seals the audit log of an organization, or of the installation, and reports whether it had not the time for
// all of it. The trash has a time of its own.
func (a *App) sealIn(ctx context.Context, t *tenants.Tenant) (left bool) {
	ctx, cancel := context.WithTimeout(ctx, sealEach)
	defer cancel()
	err := background.Try(func() error { return a.seals.Seal(ctx, t) })
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "the audit log could not be sealed, and will be later", "organization", t.Org.Slug, "error", err)
	}
	return err != nil && ctx.Err() != nil
}

// expireIn empties the trash of an organization, of which answers that were kept for a day are part, and reports
// whether it had not the time for all of it.
func (a *App) expireIn(outer context.Context, slug string) (left bool) {
	ctx, cancel := context.WithTimeout(outer, trashEach)
	defer cancel()
	before := a.now().Add(-a.cfg.Trash.Keep - trashGrace).UnixMilli()
	ended := 0
	t, err := a.directory.BySlug(ctx, slug)
	if err == nil {
		t = t.Through((*store.Workspace).BeyondQuota)
		failed := background.Try(func() error { return a.repeats.Forget(ctx, t.Workspace()) })
		if failed != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "answers that are kept no longer could not be removed, and are tried again later", "organization", slug, "error", failed)
		}
	}
	for i := 0; err == nil && i < len(a.rows); i++ {
		row := &a.rows[i]
		if row.Expire == nil || a.cfg.Trash.Keep == 0 {
			continue
		}
		c := a.own(row, t)
		tell := func(id string) {
			ended++
			rec := audit.Record{Operation: "trash.purge", Subject: c.Principal.Subject(), Outcome: audit.OK, Facts: map[string]string{row.Resource: id}}
			if err := a.audit.Write(ctx, t.Workspace(), rec); err != nil {
				a.log.ErrorContext(ctx, "the end of a record could not be recorded in the audit log", "organization", slug, row.Resource, id, "error", err)
			}
		}
		failed := background.Try(func() error {
			more, err := row.Expire(ctx, c, before, tell)
			left = left || more
			return err
		})
		if failed != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "some of the trash could not be emptied, and is tried again later", "organization", slug, "operation", row.Name, "error", failed)
		}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, tenants.ErrUnknownTenant) {
		a.log.WarnContext(ctx, "the trash of an organization cannot be reached", "organization", slug, "error", err)
	}
	if ended > 0 {
		a.log.InfoContext(ctx, "records ended that were deleted long ago", "organization", slug, "records", ended)
	}
	return err == nil && a.sealIn(outer, t) || left
}
