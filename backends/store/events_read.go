package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"tenantry/backends/driver"
)

// Bounds of reading a log.
const (
	eventsPage = 500 // entries that are read at once
	eventsRead = 4   // pages that one call reads at most
	// eventsAhead is how many pages after a part are searched for what shows that a record was stored again.
	eventsAhead = 40
	// An entry of another process counts as settled after this many leases: its write is acknowledged within one or
	// never, and the rest is for clocks that differ.
	settledAfter = 4
)

// EventsQuery asks for events.
type EventsQuery struct {
	After int64    // only later ones
	Kinds []string // names of kinds, see Store.Tell
	Of    string   // only of records with this definition, if it is set
	Limit int      // from 1
	// See says which events of one kind the reader sees.
	See func(ctx context.Context, kind string, events []Event) ([]Seen, error)
}

// asks reports whether the query is about the event.
func (q *EventsQuery) asks(c *Event) bool {
	return c.Kind != "" && slices.Contains(q.Kinds, c.Kind) && (q.Of == "" || c.Of == q.Of)
}

// Seen says whether a reader sees an event.
type Seen byte

// The reader sees the event if it sees the record. Lost: the reader saw the record before the event, and does not see it
// any more.
const (
	Hidden Seen = iota
	Shown
	Lost
)

// Events are a part of the log.
type Events struct {
	Events []Event
	// UpTo is the position up to which the log was read. Nothing will be added before it.
	UpTo int64
	// More: the log goes on.
	More bool
}

// ErrEventsGone: events after the position may have been removed from the log.
var ErrEventsGone = errors.New("the event log no longer goes back so far")

// Events returns the next events that the query asks for and its reader sees or has lost. Others are passed over; a call
// reads at most 2,000 entries, so that a part may be empty although More follow. Errors: ErrEventsGone, ErrUnavailable,
// ErrQuery.
func (w *Workspace) Events(ctx context.Context, q EventsQuery) (Events, error) {
	out := Events{UpTo: q.After}
	for range eventsRead {
		page, more, err := w.settledEvents(ctx, out.UpTo)
		if err != nil {
			return out, err
		}
		if err := q.see(ctx, page); err != nil {
			return out, err
		}
		for i := range page {
			if page[i].Seen != Hidden {
				if len(out.Events) == q.Limit {
					out.More = true
					return out, nil
				}
				out.Events = append(out.Events, page[i])
			}
			out.UpTo = page[i].Position()
		}
		if out.More = more; !more {
			return out, nil
		}
	}
	return out, nil
}

// EventsAt returns those of the events at the positions that the query asks for and its reader sees, in no order, and the
// positions that the log lacks. After and Limit are not considered; there may be at most MaxLimit positions. Errors:
// ErrUnavailable, ErrQuery.
func (w *Workspace) EventsAt(ctx context.Context, q EventsQuery, positions []int64) (found []Event, gone []int64, err error) {
	if w.home == nil {
		return nil, nil, fmt.Errorf("%w: the control workspace has no event log", ErrQuery)
	}
	ids := make([]string, len(positions))
	for i, at := range positions {
		ids[i] = positionID(at)
	}
	if len(ids) == 0 {
		return nil, nil, nil
	}
	found, err = w.store.events.In(w.whole()).Find(ctx, Query{Filter: In("id", ids...), Limit: len(ids)})
	if err == nil {
		err = q.see(ctx, found)
	}
	if err != nil {
		return nil, nil, err
	}
	gone = slices.DeleteFunc(slices.Clone(positions), func(at int64) bool {
		return slices.ContainsFunc(found, func(e Event) bool { return e.Position() == at })
	})
	return slices.DeleteFunc(found, func(e Event) bool { return e.Seen != Shown }), gone, nil
}

// settledEvents returns the next entries, up to the first to which something may still be added before it, and
// whether more follow that can be read now.
func (w *Workspace) settledEvents(ctx context.Context, after int64) (page []Event, more bool, err error) {
	if w.home == nil {
		return nil, false, fmt.Errorf("%w: the control workspace has no event log", ErrQuery)
	}
	kind, r := w.store.events, w.home.at.Load()
	shared, last := w.store.Remote(r.backend()), int64(math.MaxInt64)
	if !shared {
		if last, err = w.home.log.settled(ctx, r.drv, kind.spec.collection); err != nil {
			return nil, false, translate(kind.spec, err)
		}
	}
	all := w.whole()
	found, err := kind.In(all).FindPart(ctx, Query{
		Filter: Where(F("id"), driver.Gt, positionID(after)), Sort: []Order{Asc("id")}, Limit: eventsPage, Bytes: BatchBytes,
	})
	page = found.Records
	if err == nil && (len(page) == 0 || page[0].Position() > after+1) {
		err = all.checkKept(ctx, after)
	}
	if err != nil {
		return nil, false, err
	}
	more = len(page) == eventsPage || found.Cut
	if shared {
		n, err := all.confirmed(ctx, page, after, more)
		return page[:n], more && n == len(page), err
	}
	for i := range page {
		if page[i].Position() > last {
			return page[:i], false, nil
		}
	}
	return page, more, nil
}

// whole returns the workspace with all records of the organization.
func (w *Workspace) whole() *Workspace {
	return &Workspace{store: w.store, home: w.home, specs: w.specs, org: w.org}
}

// checkKept returns ErrEventsGone unless every entry after the position is still in the log. TrimEvents leaves the last
// entry that it could remove, and BeginEvents begins the log with an entry, so that positions before the first one are
// not complete.
func (w *Workspace) checkKept(ctx context.Context, after int64) error {
	first, err := w.store.events.In(w).First(ctx, Query{Sort: []Order{Asc("id")}})
	if errors.Is(err, ErrNotFound) || err == nil && first.Position() > after {
		return ErrEventsGone
	}
	return err
}

// TrimEvents removes entries from before a time in Unix milliseconds, and returns how many. Error: ErrUnavailable.
func (w *Workspace) TrimEvents(ctx context.Context, before int64) (n int64, err error) {
	log := w.store.events.In(w)
	for {
		page, err := log.Find(ctx, Query{Sort: []Order{Asc("id")}, Limit: eventsPage})
		if err != nil {
			return n, err
		}
		old := 0
		for old < len(page) && page[old].CreatedAt < before {
			old++
		}
		var gone []*Event
		for i := range max(0, old-1) {
			gone = append(gone, &page[i])
		}
		if len(gone) == 0 {
			return n, nil
		}
		if err := log.Delete(ctx, gone...); err != nil {
			return n, err
		}
		if n += int64(len(gone)); old < len(page) {
			return n, nil
		}
	}
}

// EventsEnd returns the position of an entry before which nothing will be added to the log, near its end. A position
// that no entry has may be given to one later: writes that are refused leave none. Errors: ErrEventsGone if the log has
// not begun, ErrUnavailable, ErrQuery.
func (w *Workspace) EventsEnd(ctx context.Context) (int64, error) {
	kind, r := w.store.events, w.home.at.Load()
	if !w.store.Remote(r.backend()) {
		last, err := w.home.log.settled(ctx, r.drv, kind.spec.collection)
		if err != nil {
			return 0, translate(kind.spec, err)
		}
		entry, err := kind.In(w.whole()).First(ctx, Query{
			Filter: Where(F("id"), driver.Lt, positionID(last+1)), Sort: []Order{Desc("id")},
		})
		if errors.Is(err, ErrNotFound) {
			return 0, ErrEventsGone
		}
		if err != nil {
			return 0, err
		}
		return entry.Position(), nil
	}
	old := w.store.now().Add(-settledAfter * w.store.leases.Settled).UnixMilli()
	before := positionID(math.MaxInt64)
	for last := int64(0); ; {
		page, err := kind.In(w.whole()).Find(ctx, Query{
			Filter: Where(F("id"), driver.Lt, before), Sort: []Order{Desc("id")}, Limit: eventsPage,
		})
		if err != nil {
			return 0, err
		}
		for i := range page {
			if last = page[i].Position(); page[i].CreatedAt <= old {
				return last, nil
			}
			before = page[i].ID
		}
		if last == 0 {
			return 0, ErrEventsGone
		}
		if len(page) < eventsPage {
			return last, nil // the log began a moment ago, with an entry after which all is logged
		}
	}
}

// confirmed returns how many of the entries are settled, on an engine that several processes use: their positions have
// no gap that a write under way could fill, and their writes are stored. Entries whose writes will never be stored are
// emptied. more: the log goes on after the page.
func (w *Workspace) confirmed(ctx context.Context, page []Event, after int64, more bool) (int, error) {
	old := w.store.now().Add(-settledAfter * w.store.leases.Settled).UnixMilli()
	stored, err := w.revisions(ctx, page)
	if err != nil {
		return 0, err
	}
	told := trail{}
	told.add(page)
	for i := range page {
		c := &page[i]
		if c.Position() != after+1 && c.CreatedAt > old {
			return i, nil
		}
		after = c.Position()
		if c.Kind == "" {
			continue
		}
		rev, there := stored[recordOf{c.Kind, c.Record}]
		young := c.CreatedAt > old
		happened, twice := told.happened(c, rev, there, young)
		if !happened && !young && more { // what shows it may be on later pages, as after an import of what was deleted
			if err := w.lookAhead(ctx, told, page[len(page)-1].ID); err != nil {
				return 0, err
			}
			more = false
			happened, _ = told.happened(c, rev, there, young)
		}
		switch {
		case young && (twice || !happened):
			return i, nil
		case !happened:
			c.Kind = ""
		}
	}
	return len(page), nil
}

// trail has the entries of each record, in their order.
type trail map[recordOf][]Event

func (t trail) add(page []Event) {
	for i := range page {
		if of := (recordOf{page[i].Kind, page[i].Record}); of.kind != "" {
			t[of] = append(t[of], page[i])
		}
	}
}

// happened reports whether the write of an entry was stored, by its record's revision, if that is there, and the entries
// that follow. twice: another entry has the same revision, and one of the two is being refused.
func (t trail) happened(c *Event, rev int64, there, young bool) (happened, twice bool) {
	later := t[recordOf{c.Kind, c.Record}]
	later = later[slices.IndexFunc(later, func(o Event) bool { return o.ID == c.ID })+1:]
	switch {
	case c.Gone: // if the record is there, it was made again since
		return !there || slices.ContainsFunc(later, func(o Event) bool { return o.What == WasCreated }), false
	case !there: // it was deleted for good since, or never stored
		return !young || len(later) > 0, false
	case rev < c.Revision: // whoever made a later revision had read this one; what was made again begins anew
		return slices.ContainsFunc(later, func(o Event) bool { return o.Revision > c.Revision }), false
	}
	return true, len(later) > 0 && !later[0].Gone && later[0].Revision == c.Revision
}

// lookAhead adds entries after one to the trail, of at most eventsAhead pages.
func (w *Workspace) lookAhead(ctx context.Context, told trail, after string) error {
	for range eventsAhead {
		found, err := w.store.events.In(w).FindPart(ctx, Query{
			Filter: Where(F("id"), driver.Gt, after), Sort: []Order{Asc("id")}, Limit: eventsPage, Bytes: BatchBytes,
		})
		if err != nil || len(found.Records) == 0 {
			return err
		}
		told.add(found.Records)
		after = found.Records[len(found.Records)-1].ID
	}
	return nil
}

// recordOf names a record in the log.
type recordOf struct{ kind, id string }

// revisions returns the revisions of the records of entries.
func (w *Workspace) revisions(ctx context.Context, page []Event) (map[recordOf]int64, error) {
	ids := map[string][]string{}
	for i := range page {
		if c := &page[i]; w.store.told[c.Kind] != nil && !slices.Contains(ids[c.Kind], c.Record) {
			ids[c.Kind] = append(ids[c.Kind], c.Record)
		}
	}
	all := map[recordOf]int64{}
	for kind, ids := range ids {
		found, err := w.Revisions(ctx, w.store.told[kind], ids)
		if err != nil {
			return nil, err
		}
		for id, rev := range found {
			all[recordOf{kind, id}] = rev
		}
	}
	return all, nil
}

// Revisions returns the revisions of those of the records that the workspace shows, in any state. There may be at most
// MaxLimit identifiers. Errors: ErrUnavailable, ErrQuery.
func (w *Workspace) Revisions(ctx context.Context, s *Spec, ids []string) (map[string]int64, error) {
	found := make(map[string]int64, len(ids))
	note := func(d *driver.Document) error {
		if d == nil { // the engine starts over
			clear(found)
		} else {
			found[d.ID] = d.Rev
		}
		return nil
	}
	_, err := w.documents(ctx, s, Query{Filter: In("id", ids...), State: Either, Limit: len(ids)}, note)
	return found, err
}

// see sets which events of the page the reader sees.
func (q *EventsQuery) see(ctx context.Context, page []Event) error {
	at := map[string][]int{}
	for i := range page {
		if q.asks(&page[i]) {
			at[page[i].Kind] = append(at[page[i].Kind], i)
		}
	}
	for kind, at := range at {
		events := make([]Event, len(at))
		for n, i := range at {
			events[n] = page[i]
		}
		seen, err := q.See(ctx, kind, events)
		if err != nil {
			return err
		}
		for n, i := range at {
			page[i].Seen = seen[n]
		}
	}
	return nil
}

// Covers reports whether the workspace shows records with these teams.
func (w *Workspace) Covers(teams []string) bool {
	return !w.scoped || w.scope.All || len(teams) == 0 ||
		slices.ContainsFunc(teams, func(team string) bool { return slices.Contains(w.scope.Teams, team) })
}
