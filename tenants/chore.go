package tenants

import (
	"context"
	"errors"
	"time"

	"tenantry/backends/store"
)

// Chore is something that one replica at a time does for all organizations, in rounds.
type Chore struct {
	store.Meta
	Until int64  `json:"until"`           // Unix milliseconds until which a replica is at it
	After string `json:"after,omitempty"` // slug of the last organization it was done for; empty: a round ended
	Next  int64  `json:"next"`            // Unix milliseconds before which no other round begins
	Again bool   `json:"again,omitempty"` // the round left something to do
}

// Take returns the chore of that identifier, which nobody else is handed for as long as hold, or until it is
// given back. Nil: another replica is at it, or no round begins yet. Error: store.ErrUnavailable.
func (d *Directory) Take(ctx context.Context, id string, hold time.Duration) (*Chore, error) {
	write := d.chores.Replace
	rec, err := d.chores.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		rec, err, write = &Chore{Meta: store.Meta{ID: id}}, nil, d.chores.Insert
	}
	now := d.now()
	until := now.Add(hold).UnixMilli()
	if err != nil || now.UnixMilli() < rec.Until && rec.Until <= until || rec.After == "" && now.UnixMilli() < rec.Next {
		return nil, err
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

// Give notes how far the chore has come and lets others take it. Errors: store.ErrConflict where its time was
// up and somebody else took it, store.ErrUnavailable.
func (d *Directory) Give(ctx context.Context, c *Chore) error {
	c.Until = 0
	return d.chores.Replace(ctx, c)
}
