package store

import (
	"context"
	"errors"
	"fmt"
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

// OnEvents sets the function that is called when readers may find more in the log of an organization: after each write of
// changes that are logged, also one that was refused. It must not block, and must be set before the first workspace is
// opened.
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

// positions gives out positions in the log of an organization. On an engine that this process uses alone, it knows which
// of them are of writes that have not ended. The zero value reads the end of the log at its first use.
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
) (first int64, end func(error), err error) {
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
	return first, func(error) {
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

// reserve takes n positions for entries, from first on. After their write, end must be called with its error.
func (h *home) reserve(ctx context.Context, r *residence, n int) (first int64, end func(error), err error) {
	of := h.store.events.spec.collection
	if !h.store.Remote(r.backend()) {
		return h.log.take(ctx, r.drv, of, n)
	}
	first, err = h.log.count(ctx, r.drv, of, n)
	return first, func(err error) {
		if err != nil {
			h.fill(r, first, n)
		}
	}, err
}

// logged stores entries at the next positions, and then the writes, in one batch. The position of an error is that of the
// writes.
func (h *home) logged(ctx context.Context, r *residence, found []Event, writes []driver.Write, beyond bool) (err error) {
	first, end, err := h.reserve(ctx, r, len(found))
	if err != nil {
		return err
	}
	err = errAborted // if what follows panics
	defer func() { end(err) }()
	all := make([]driver.Write, len(found), len(found)+len(writes))
	for i := range found {
		if all[i], err = h.entry(&found[i], first+int64(i)); err != nil {
			return err
		}
	}
	err = shifted(h.keep(ctx, r, append(all, writes...), beyond), len(found))
	return err
}

var errAborted = errors.New("the write was aborted")

// entry returns the write of an entry at a position.
func (h *home) entry(c *Event, position int64) (driver.Write, error) {
	c.ID, c.CreatedAt = positionID(position), h.store.now().UnixMilli()
	c.UpdatedAt = c.CreatedAt
	doc, err := h.store.events.encode(c)
	return driver.Write{Collection: h.store.events.spec.collection, Op: driver.Insert, Doc: doc}, err
}

// fill stores empty entries at the positions of a write that has failed, so that readers in other processes do not wait
// for it. If some of its entries were stored nevertheless, or fill fails, they wait until the entries would be settled.
func (h *home) fill(r *residence, first int64, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), locateTimeout)
	defer cancel()
	writes := make([]driver.Write, 0, n)
	for i := range n {
		if w, err := h.entry(&Event{}, first+int64(i)); err == nil {
			writes = append(writes, w)
		}
	}
	_ = r.drv.Write(ctx, writes)
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

// BeginEvents begins the event log, and returns once all writes that are acknowledged from now on are logged. The
// placement of the organization must have said since that time that it is Followed. Errors: ErrUnavailable, that of the
// context.
func (w *Workspace) BeginEvents(ctx context.Context, since time.Time) error {
	h := w.home
	r, err := h.ask(ctx, 0)
	if err != nil {
		return err
	}
	if !r.Followed {
		return fmt.Errorf("%w: the organization is not followed", ErrQuery)
	}
	if h.store.Remote(r.backend()) {
		// Writes under a placement that was read before may be acknowledged until its lease ends.
		select {
		case <-time.After(time.Until(since.Add(h.store.leases.Settled))):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	} else {
		h.writing.Lock()   // until the writes of this process that began before have ended
		h.writing.Unlock() //nolint:staticcheck // later ones know the placement
	}
	if r, err = h.permit(ctx); err != nil {
		return err
	}
	return h.logged(ctx, r, make([]Event, 1), nil, true) // nothing is complete before it
}
