package tenants

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
)

// EventLog says that the changes of an organization's records are logged, because somebody follows them.
type EventLog struct {
	// Name distinguishes the logs that the organization has had. A restoration begins another one.
	Name  string `json:"name"`
	Since int64  `json:"since"`           // when it was begun, in Unix milliseconds
	Whole bool   `json:"whole,omitempty"` // all changes are logged
	Read  int64  `json:"read"`            // when it was last read, in Unix milliseconds, to readNoted
}

// readNoted is how exactly EventLog.Read is known.
const readNoted = 12 * time.Hour

// ErrCursor: the text is not a position in a event log.
var ErrCursor = errors.New("not a position in the event log")

// Cursor returns the position as callers know it, which is also the identifier of the change at that position.
func (l *EventLog) Cursor(position int64) string {
	return l.Name + "-" + strconv.FormatInt(position, 10)
}

// Position returns the position that a cursor of this log names. Errors: ErrCursor; store.ErrEventsGone for a cursor
// of another log.
func (l *EventLog) Position(cursor string) (int64, error) {
	name, number, ok := strings.Cut(cursor, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case !ok || err != nil || n < 0 || len(name) != nameLength || strconv.FormatInt(n, 10) != number:
		return 0, ErrCursor
	case name != l.Name:
		return 0, store.ErrEventsGone
	}
	return n, nil
}

const nameLength = 10

// newLogName returns a name that no other log has.
func newLogName() string { return strings.ToLower(rand.Text()[:nameLength]) }

// Follow returns the organization's event log, and begins it if nobody follows yet. That takes as long as a lease
// (store.Leases.Settled) on engines that several processes use. Follow notes that the log is read. Errors:
// ErrUnknownTenant, store.ErrUnavailable, that of the context.
func (d *Directory) Follow(ctx context.Context, t *Tenant) (*EventLog, error) {
	now := d.now().UnixMilli()
	if l := t.Org.EventLog; l != nil && l.Whole && now-l.Read < readNoted.Milliseconds() {
		return l, nil
	}
	id := store.Eq("org_id", t.Org.OrgID)
	org, err := d.change(ctx, id, func(o *Organization) error {
		if o.EventLog == nil {
			o.EventLog = &EventLog{Name: newLogName(), Since: now}
		}
		o.EventLog.Read = now
		return nil
	})
	if err != nil || org.EventLog.Whole {
		return org.log(), err
	}
	name := org.EventLog.Name
	since := time.Now().Add(-time.Duration(d.now().UnixMilli()-org.EventLog.Since) * time.Millisecond)
	if err = t.workspace.BeginEvents(ctx, since); err != nil {
		return nil, fmt.Errorf("beginning the event log: %w", err)
	}
	org, err = d.change(ctx, id, func(o *Organization) error {
		if o.EventLog == nil || o.EventLog.Name != name {
			return fmt.Errorf("%w: the event log was ended meanwhile", store.ErrUnavailable)
		}
		o.EventLog.Whole = true
		return nil
	})
	return org.log(), err
}

// Follow is Directory.Follow.
func (t *Tenant) Follow(ctx context.Context) (*EventLog, error) {
	if t.directory == nil {
		return nil, ErrUnknownTenant
	}
	return t.directory.Follow(ctx, t)
}

// log returns the organization's event log; nil if nobody follows.
func (o *Organization) log() *EventLog {
	if o == nil {
		return nil
	}
	return o.EventLog
}

// RenewEventLogs begins another event log for every organization that has one, so that those who follow read
// everything again: the control data and documents are of an earlier time now. Error: store.ErrUnavailable.
func (d *Directory) RenewEventLogs(ctx context.Context) error {
	return d.Each(ctx, func(o *Organization) error {
		if o.EventLog == nil || o.State == Removed {
			return nil
		}
		_, err := d.change(ctx, store.Eq("org_id", o.OrgID), func(o *Organization) error {
			o.renewLog()
			return nil
		})
		return err
	})
}

// renewLog gives the event log another name.
func (o *Organization) renewLog() {
	if o.EventLog != nil {
		renewed := *o.EventLog
		renewed.Name = newLogName()
		o.EventLog = &renewed
	}
}

// TrimEvents removes entries that are older than keep from the organization's event log, and ends the log if it was
// not read for so long. Webhooks read it only when something happens, so it goes on while there may be any. Errors:
// ErrUnknownTenant, store.ErrUnavailable.
func (d *Directory) TrimEvents(ctx context.Context, t *Tenant, keep time.Duration) error {
	before := d.now().Add(-keep).UnixMilli()
	l := t.Org.EventLog
	if l == nil {
		return nil
	}
	if t.Org.Sends != "" || cmp.Or(l.Read, l.Since) >= before-readNoted.Milliseconds() {
		_, err := t.workspace.TrimEvents(ctx, before)
		return err
	}
	org, err := d.change(ctx, store.Eq("org_id", t.Org.OrgID), func(o *Organization) error {
		if o.EventLog != nil && o.EventLog.Name == l.Name && o.EventLog.Read == l.Read && o.Sends == "" {
			o.EventLog = nil
		}
		return nil
	})
	if err != nil || org.EventLog != nil {
		return err
	}
	_, err = t.workspace.TrimEvents(ctx, d.now().UnixMilli())
	return err
}
