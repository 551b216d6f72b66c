package operation

import (
	"context"
	"errors"

	"tenantry/tenants"
)

// EventStream is the media type of server-sent events.
const EventStream = "text/event-stream"

// Feed is the answer of a row with Response.Feeds: text that is sent while things happen, until the caller or its access
// has gone. It holds no room for the work.
type Feed struct {
	// Join is called when the header of the answer was sent. It takes the line, sends to it from then on, and closes it;
	// it may return before that.
	Join func(line Line)

	access *Access
}

// ErrBehind: the caller has not taken yet what it was sent.
var ErrBehind = errors.New("the caller has not taken yet what it was sent")

// Line is the connection of a caller to a Feed. It is not safe for concurrent use.
type Line interface {
	// Send sends a piece. With patient set it waits until the caller takes it. Otherwise it keeps what the caller does not
	// take at once, and later calls, which may have an empty piece, send that first. Until the caller has taken all of it,
	// they return ErrBehind and take no piece. With any other error, also if the caller takes nothing for five seconds,
	// the line is closed, and the caller may have got part of the piece.
	Send(piece []byte, patient bool) error
	// Confirm returns nil while the caller may have the feed, and the organization as it was confirmed last. Errors:
	// those of Access.Confirm.
	Confirm(ctx context.Context) (*tenants.Tenant, error)
	// Close hangs up. It may be called more than once.
	Close()
}

// Confirm returns nil while the caller may have the feed, and the organization as it was confirmed last. Errors: those of
// Access.Confirm.
func (f *Feed) Confirm(ctx context.Context) (*tenants.Tenant, error) {
	if err := f.access.Confirm(ctx); err != nil || f.access == nil {
		return nil, err
	}
	f.access.mu.Lock()
	defer f.access.mu.Unlock()
	return f.access.tenant, nil
}
