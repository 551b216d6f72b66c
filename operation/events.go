package operation

import (
	"context"
	"errors"
	"net/http"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// Events are a part of the organization's event log.
type Events struct {
	store.Events

	log *tenants.EventLog
}

// ID returns the identifier of the change at a position, which is also the cursor after it.
func (c *Events) ID(position int64) string { return c.log.Cursor(position) }

// Log returns the event log.
func (c *Events) Log() *tenants.EventLog { return c.log }

// PositionOf returns the position that a cursor names. Errors: those of tenants.EventLog.Position.
func (c *Events) PositionOf(cursor string) (int64, error) { return c.log.Position(cursor) }

// Next returns the cursor after the part.
func (c *Events) Next() string { return c.log.Cursor(c.UpTo) }

// Events reads the event log after a cursor, which the named parameter of the call holds; without a cursor, it
// answers the end of the log, and has changes be logged from then on if they were not. Errors: a *fault.Error for a
// malformed cursor, the 410 of CursorGone, store.ErrUnavailable.
func (c *Call) Events(ctx context.Context, param, cursor string, q store.EventsQuery) (Events, error) {
	log, err := c.Tenant.Follow(ctx)
	if err != nil {
		return Events{}, err
	}
	out := Events{log: log}
	if cursor == "" {
		out.UpTo, err = c.Tenant.Workspace().EventsEnd(ctx)
	} else if q.After, err = log.Position(cursor); err == nil {
		out.Events, err = c.Tenant.Workspace().Events(ctx, q)
	}
	switch {
	case errors.Is(err, tenants.ErrCursor):
		err = fault.One(param, fault.Format, "%s must be the value of next, or the id of an event, as an answer had it", param)
	case errors.Is(err, store.ErrEventsGone):
		err = &Problem{Code: http.StatusGone, Message: cursorGone}
	}
	return out, err
}

const cursorGone = "The event log no longer goes back so far: get a new cursor from /api/events, then read the lists anew"

// CursorGone documents the refusal of a cursor.
func CursorGone() Failure {
	return Failure{
		Code: http.StatusGone, Message: cursorGone,
		When: "the changes after the cursor are no longer kept, or the organization was restored from a backup since",
	}
}
