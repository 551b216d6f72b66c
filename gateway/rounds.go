package gateway

import (
	"context"
	"errors"
	"time"

	"tenantry/tenants"
)

// round is work for all organizations that replicas share: one takes a turn at a time, and a round has as many turns as it
// takes.
type round struct {
	chore string
	turn  time.Duration // after this no further organization is begun
	hold  time.Duration // after this the turn of a replica that died is free for others
	every time.Duration // between two rounds, unless the last one left work
	page  int           // organizations that are listed at once
}

// takeTurn calls each with the organizations that follow, and end when there are no more; both report whether work is
// left. It does nothing if another replica has the turn or no round is due, and reports whether it took a turn. Errors:
// store.ErrUnavailable, store.ErrConflict.
func (a *App) takeTurn(
	ctx context.Context, r round, each func(context.Context, *tenants.Organization) (left bool), end func(context.Context) (left bool),
) (taken bool, err error) {
	held, cancel := context.WithTimeout(ctx, r.hold)
	defer cancel()
	chore, err := a.directory.ClaimChore(held, r.chore, r.hold)
	if chore == nil || err != nil {
		return false, err
	}
	defer func() {
		giveCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
		defer cancel()
		err = errors.Join(err, a.directory.ReleaseChore(giveCtx, chore))
	}()
	over := func(began time.Time) bool { return time.Since(began) >= r.turn || held.Err() != nil }
	for began := time.Now(); !over(began); {
		page, err := a.directory.List(held, chore.After, r.page)
		if err != nil {
			return true, err
		}
		if len(page) == 0 {
			if !end(held) && !chore.Again {
				chore.Next = a.now().Add(r.every).UnixMilli()
			}
			chore.After, chore.Again = "", false
			return true, nil
		}
		for i := 0; i < len(page) && !over(began); i++ {
			left := each(held, &page[i])
			chore.After, chore.Again = page[i].Slug, chore.Again || left
		}
	}
	return true, nil
}
