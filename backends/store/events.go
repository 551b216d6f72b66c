package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"tenantry/backends/driver"
)

// What is what happened to a record.
type What string

// A record of a kind with SoftDelete is deleted when it comes into the trash, and purged when it is deleted for good.
// Other records are deleted for good.
const (
	WasCreated  What = "created"
	WasUpdated  What = "updated"
	WasDeleted  What = "deleted"
	WasRestored What = "restored"
	WasPurged   What = "purged"
)

// Happens returns what can happen to records of the kind.
func (s *Spec) Happens() []What {
	all := []What{WasCreated, WasUpdated, WasDeleted}
	if s.SoftDelete {
		all = append(all, WasRestored, WasPurged)
	}
	return all
}

// Event is an entry of an organization's event log: what happened to one record, without values of it. Its
// identifier is its position in the log, and CreatedAt the time of the write.
type Event struct {
	Meta
	Kind     string `json:"kind,omitempty"` // see Store.Tell; empty: nothing happened at this position
	What     What   `json:"what,omitempty"`
	Record   string `json:"record,omitempty"`   // its identifier
	Revision int64  `json:"revision,omitempty"` // of the record after the change
	Actor    string `json:"actor,omitempty"`    // see Workspace.By
	Gone     bool   `json:"gone,omitempty"`     // the record was deleted for good
	// Of is the value of the field that names the record's definition, see Spec.Of.
	Of string `json:"of,omitempty"`
	// Teams are those of the record after the change. Were are those before it, if it Moved to other teams.
	Teams []string `json:"teams,omitempty"`
	Moved bool     `json:"moved,omitempty"`
	Were  []string `json:"were,omitempty"`

	Seen Seen `json:"-"` // in the answer to a query
}

// Position returns the place of the entry in the log. Positions ascend in the order in which the changes of each record
// were made. They may have gaps.
func (c *Event) Position() int64 {
	n, _ := strconv.ParseInt(c.ID, 16, 64) // made by positionID
	return n
}

// positionID returns the identifier of the entry at a position. Identifiers have the order of positions.
func positionID(position int64) string { return fmt.Sprintf("%024x", position) }

// EventsKind is the name of the kind of entries of logs.
const EventsKind = "events"

func newEvents() *Kind[Event] { return Must[Event](Spec{Name: EventsKind, Uncounted: true}) }

// Tell says under which names event logs tell of the records of kinds; of other kinds they tell nothing. Without it there
// are no logs. It must be called once, before the first workspace is opened.
func (s *Store) Tell(names map[*Spec]string) {
	s.told = map[string]*Spec{}
	s.Keep(s.events.spec)
	for spec, name := range names {
		spec.told = name
		s.told[name] = spec
	}
}

// Happens returns what can happen to records of the kind of that name, see Tell.
func (s *Store) Happens(name string) []What { return s.told[name].Happens() }

// OnEvents sets the function that is called after each commit of changes that were logged. It must not block, and must
// be set before the first workspace is opened.
func (s *Store) OnEvents(committed func(org int64)) { s.committed = committed }

// By returns the workspace with a name of the caller, which entries of the log get as their Actor.
func (w *Workspace) By(actor string) *Workspace {
	c := *w
	c.actor = actor
	return &c
}

// prior is what a record was before it is written, as far as logs tell it.
type prior struct {
	deleted bool
	teams   []string
	of      string // of deletions only
}

// priorOf returns what a record is when it is read; nil if it is live and has no teams.
func (k *Kind[T]) priorOf(rec *T) *prior {
	if k.trash == nil && k.teams == nil {
		return nil
	}
	v, p := reflect.ValueOf(rec).Elem(), prior{}
	p.deleted = k.trash != nil && v.FieldByIndex(k.trash).Bool()
	if k.teams != nil {
		if list := v.FieldByIndex(k.teams); list.Len() > 0 {
			for i := range list.Len() {
				p.teams = append(p.teams, list.Index(i).String())
			}
		}
	}
	return p.orNil()
}

// orNil returns nil if the record is live and has no teams.
func (p prior) orNil() *prior {
	if !p.deleted && len(p.teams) == 0 {
		return nil
	}
	return &p
}

// last returns what a record is right before it is deleted for good.
func (k *Kind[T]) last(rec *T) *prior {
	p := k.spec.tells(k.values(reflect.ValueOf(rec).Elem()))
	return &p
}

// tells returns what declared values of a record tell.
func (s *Spec) tells(values []any) (p prior) {
	for i, f := range s.collection.Fields {
		if i >= len(values) {
			return p
		}
		switch {
		case f.Name == "teams" && s.Teams:
			p.teams, _ = values[i].([]string)
		case f.Name == "deleted" && s.SoftDelete:
			p.deleted, _ = values[i].(bool)
		case f.Name == s.Of && s.Of != "":
			p.of, _ = values[i].(string)
		}
	}
	return p
}

// telling is what the log is told of a write, beyond the write itself.
type telling struct {
	spec  *Spec  // of the record; nil: nothing
	was   *prior // nil: it was live and had no teams
	actor string
}

// change returns the entry of a write; ok is false if the log does not tell of it.
func (t *telling) change(w *driver.Write) (c Event, ok bool) {
	if t.spec == nil || t.spec.told == "" {
		return c, false
	}
	was := prior{}
	if t.was != nil {
		was = *t.was
	}
	is := t.spec.tells(w.Doc.Values)
	c = Event{Kind: t.spec.told, Record: w.Doc.ID, Revision: w.Doc.Rev + 1, Actor: t.actor, Of: is.of, Teams: is.teams}
	switch w.Op {
	case driver.Insert:
		c.What, c.Revision = WasCreated, 1
		return c, true
	case driver.Replace:
		if !slices.Equal(was.teams, is.teams) {
			c.Moved, c.Were = true, was.teams
		}
		switch {
		case is.deleted && !was.deleted:
			c.What = WasDeleted
		case was.deleted && !is.deleted:
			c.What = WasRestored
		default:
			c.What = WasUpdated
		}
		return c, true
	case driver.Delete:
		c.What, c.Gone, c.Of, c.Teams = WasDeleted, true, was.of, was.teams
		if t.spec.SoftDelete {
			c.What = WasPurged
		}
		return c, true
	case driver.Put, driver.Hold:
	}
	return c, false
}

// entries returns the entries of the writes, without positions.
func entries(writes []driver.Write, told []telling) (all []Event) {
	for i := range told {
		if c, ok := told[i].change(&writes[i]); ok {
			all = append(all, c)
		}
	}
	return all
}

// positions gives out positions in the log of an organization whose engine this process uses alone, and knows which of
// them are of writes that have not ended. The zero value must load before it is used.
type positions struct {
	mu    sync.Mutex
	of    driver.Workspace // from which next was read
	next  int64
	taken map[int64]bool // the first positions of writes that have not ended
}

// load reads the last position from the workspace, unless that was done before.
func (p *positions) load(ctx context.Context, drv driver.Workspace, of *driver.Collection) error {
	if p.of == drv {
		return nil
	}
	found, err := drv.Find(ctx, driver.Query{Collection: of, Sort: []driver.Order{{Ref: idRef(), Desc: true}}, Limit: 1})
	if err != nil {
		return fmt.Errorf("reading the end of the event log: %w", err)
	}
	if p.next = max(p.next, 1); len(found) > 0 {
		last, err := strconv.ParseInt(found[0].ID, 16, 64)
		if err != nil {
			return fmt.Errorf("the event log has an entry that is not its own, %s: %w", found[0].ID, err)
		}
		p.next = max(p.next, last+1)
	}
	p.of = drv
	return nil
}

// take reserves n positions, from first on, until end is called.
func (p *positions) take(
	ctx context.Context, drv driver.Workspace, of *driver.Collection, n int,
) (first int64, end func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(ctx, drv, of); err != nil {
		return 0, nil, err
	}
	first = p.next
	p.next += int64(n)
	if p.taken == nil {
		p.taken = map[int64]bool{}
	}
	p.taken[first] = true
	return first, func() {
		p.mu.Lock()
		delete(p.taken, first)
		p.mu.Unlock()
	}, nil
}

// settled returns the last position up to which nothing will be added.
func (p *positions) settled(ctx context.Context, drv driver.Workspace, of *driver.Collection) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(ctx, drv, of); err != nil {
		return 0, err
	}
	last := p.next - 1
	for first := range p.taken {
		last = min(last, first-1)
	}
	return last, nil
}

// count takes n positions from the counter of the workspace, which several processes use.
func (p *positions) count(
	ctx context.Context, drv driver.Workspace, of *driver.Collection, n int,
) (first int64, err error) {
	p.mu.Lock()
	err = p.load(ctx, drv, of)
	atLeast := p.next - 1
	p.mu.Unlock()
	if err != nil {
		return 0, err
	}
	last, err := drv.Counter(ctx, eventsCounter, int64(n), atLeast)
	return last - int64(n) + 1, err
}

// eventsCounter is the counter of positions on engines that several processes use.
const eventsCounter = "events"

// logged returns the writes with those of their log entries before them, and how many these are. After the write, end
// must be called with its error.
func (h *home) logged(
	ctx context.Context, r *residence, writes []driver.Write, told []telling,
) (all []driver.Write, n int, end func(error), err error) {
	found := entries(writes, told)
	if n = len(found); n == 0 {
		return writes, 0, func(error) {}, nil
	}
	kind, shared := h.store.events, h.store.Remote(r.backend())
	var first int64
	var done func()
	if shared {
		first, err = h.log.count(ctx, r.drv, kind.spec.collection, n)
	} else {
		first, done, err = h.log.take(ctx, r.drv, kind.spec.collection, n)
	}
	if err != nil {
		return nil, 0, nil, err
	}
	all = make([]driver.Write, n, n+len(writes))
	for i := range found {
		if all[i], err = h.entry(&found[i], first+int64(i)); err != nil {
			return nil, 0, nil, err
		}
	}
	return append(all, writes...), n, func(err error) {
		switch {
		case !shared:
			done()
		case err != nil:
			h.unuse(r, first, n)
		}
		if err == nil && h.store.committed != nil {
			h.store.committed(h.who.org)
		}
	}, nil
}

// entry returns the write of an entry at a position.
func (h *home) entry(c *Event, position int64) (driver.Write, error) {
	c.ID, c.CreatedAt = positionID(position), h.store.now().UnixMilli()
	c.UpdatedAt = c.CreatedAt
	doc, err := h.store.events.encode(c)
	return driver.Write{Collection: h.store.events.spec.collection, Op: driver.Insert, Doc: doc}, err
}

// unuse fills the positions of a write that has failed, so that readers of other processes do not wait for it. If it
// fails, they wait until the entry would be settled.
func (h *home) unuse(r *residence, first int64, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), locateTimeout)
	defer cancel()
	for i := range n {
		if w, err := h.entry(&Event{}, first+int64(i)); err == nil {
			_ = r.drv.Write(ctx, []driver.Write{w})
		}
	}
}

// shifted corrects the position of an engine's error by the number of writes that precede those of the caller.
func shifted(err error, before int) error {
	if dup, is := errors.AsType[*driver.DuplicateError](err); is {
		dup.Position -= before
	}
	if conflict, is := errors.AsType[*driver.ConflictError](err); is {
		conflict.Position -= before
	}
	return err
}

// Bounds of reading a log.
const (
	eventsPage = 500 // entries that are read at once
	eventsRead = 4   // pages that one call reads at most
	// A change of another process counts as settled after this many leases: its write is acknowledged within one or
	// never, and the rest is for clocks that differ.
	settledAfter = 4
)

// EventsQuery asks for changes.
type EventsQuery struct {
	After int64    // only later ones
	Kinds []string // names of kinds, see Store.Tell
	Of    string   // only of records with this definition, if it is set
	Limit int      // from 1
	// See says of changes of one kind which of them the reader sees.
	See func(ctx context.Context, kind string, changes []Event) ([]Seen, error)
}

// asks reports whether the query is about the change.
func (q *EventsQuery) asks(c *Event) bool {
	return c.Kind != "" && slices.Contains(q.Kinds, c.Kind) && (q.Of == "" || c.Of == q.Of)
}

// Seen says whether a reader sees a change.
type Seen byte

// The reader sees the change if it sees the record. Lost: the reader saw the record before the change, and does not see
// it any more.
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

// ErrEventsGone: changes after the position may have been removed from the log.
var ErrEventsGone = errors.New("the event log no longer goes back so far")

// Events returns the next changes that the query asks for and its reader sees or has lost. Others are passed over; a
// call reads at most 2,000 entries, so that a part may be empty although More follow. Errors: ErrEventsGone, ErrUnavailable, ErrQuery.
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
	page, err = kind.In(all).Find(ctx, Query{
		Filter: Where(F("id"), driver.Gt, positionID(after)), Sort: []Order{Asc("id")}, Limit: eventsPage,
	})
	if err == nil && (len(page) == 0 || page[0].Position() > after+1) {
		err = all.checkKept(ctx, after)
	}
	if err != nil {
		return nil, false, err
	}
	more = len(page) == eventsPage
	if shared {
		n, err := all.confirmed(ctx, page, after)
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

// EventsEnd returns a position before which nothing will be added to the log, near its end. Errors: ErrUnavailable,
// ErrQuery.
func (w *Workspace) EventsEnd(ctx context.Context) (int64, error) {
	kind, r := w.store.events, w.home.at.Load()
	if !w.store.Remote(r.backend()) {
		last, err := w.home.log.settled(ctx, r.drv, kind.spec.collection)
		return last, translate(kind.spec, err)
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
		if len(page) < eventsPage {
			return last, nil // the log began a moment ago, with an entry after which all is logged
		}
	}
}

// confirmed returns how many of the entries are settled, on an engine that several processes use: their positions have
// no gap that a write under way could fill, and their writes are stored. Entries whose writes will never be stored are
// emptied.
func (w *Workspace) confirmed(ctx context.Context, page []Event, after int64) (int, error) {
	old := w.store.now().Add(-settledAfter * w.store.leases.Settled).UnixMilli()
	stored, err := w.revisions(ctx, page)
	if err != nil {
		return 0, err
	}
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
		happened := rev >= c.Revision
		if c.Gone {
			happened = !there
		} else if !there { // it was deleted for good since, or never stored
			happened = c.CreatedAt <= old || slices.ContainsFunc(page[i+1:], func(later Event) bool {
				return later.Record == c.Record && later.Kind == c.Kind
			})
		}
		switch {
		case happened:
		case c.CreatedAt > old:
			return i, nil
		default:
			c.Kind = ""
		}
	}
	return len(page), nil
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

// see sets which changes of the page the reader sees.
func (q *EventsQuery) see(ctx context.Context, page []Event) error {
	at := map[string][]int{}
	for i := range page {
		if q.asks(&page[i]) {
			at[page[i].Kind] = append(at[page[i].Kind], i)
		}
	}
	for kind, at := range at {
		changes := make([]Event, len(at))
		for n, i := range at {
			changes[n] = page[i]
		}
		seen, err := q.See(ctx, kind, changes)
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

// BeginEvents returns once all writes that are acknowledged from now on are logged, and the position in the log then.
// The placement of the organization must say since a time that it is Followed. Errors: ErrUnavailable, that of the
// context.
func (w *Workspace) BeginEvents(ctx context.Context, since time.Time) (int64, error) {
	h := w.home
	r, err := h.ask(ctx, 0)
	if err != nil {
		return 0, err
	}
	if !r.Followed {
		return 0, fmt.Errorf("%w: the organization is not followed", ErrQuery)
	}
	if h.store.Remote(r.backend()) {
		// Writes under a placement that was read before may be acknowledged until its lease ends.
		select {
		case <-time.After(time.Until(since.Add(h.store.leases.Settled))):
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	} else {
		h.writing.Lock()   // until the writes of this process that began before have ended
		h.writing.Unlock() //nolint:staticcheck // later ones know the placement
	}
	return h.mark(ctx)
}

// mark stores an entry that tells nothing, and returns its position.
func (h *home) mark(ctx context.Context) (position int64, err error) {
	r, err := h.permit(ctx)
	if err != nil {
		return 0, err
	}
	of, done := h.store.events.spec.collection, func() {}
	if h.store.Remote(r.backend()) {
		position, err = h.log.count(ctx, r.drv, of, 1)
	} else {
		position, done, err = h.log.take(ctx, r.drv, of, 1)
	}
	if err != nil {
		return 0, err
	}
	defer done()
	w, err := h.entry(&Event{}, position)
	if err == nil {
		err = r.drv.Write(ctx, []driver.Write{w})
	}
	return position, err
}
