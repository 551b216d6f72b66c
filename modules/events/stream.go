package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fairqueue"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants"
)

const (
	feedTick      = 100 * time.Millisecond // between two looks at a tenth of the readers
	feedRound     = 10                     // ticks in which the access of each reader is confirmed
	feedHeartbeat = 15 * time.Second       // between two comments that keep connections open
	feedLife      = time.Hour              // after which a reader must ask again, so that its session ends in time
	feedPage      = 200                    // events that are sent at once
	feedNote      = time.Hour              // between two notes that the log is read
	// Readers that come back with an old cursor are told what they missed in turns: so many at a time, in all and of one
	// organization, and for so many parts before others have theirs.
	catchingUp, catchingUpOfOne = 8, 2
	catchUpParts                = 4
	catchUpWaiting              = 4096
	// At each tick readers that lag are told what they missed: at most so many parts, and so many of one reader.
	recovering, recoveringOfOne = 32, 8
	// A feed rests after it has sent something: so many times as long as that took, and at most so long. What happens
	// meanwhile is sent together, so that readers leave those who write their share of the processors. If much waits, it
	// rests after so long, and confirms access that is due.
	restTimes, restMost = 3, 50 * time.Millisecond
	passMost            = 50 * time.Millisecond
	sharedMost          = 16 // texts for several readers that are made at once
)

type streamInput struct {
	After string `json:"after" rule:"max=40" doc:"What follows the answer with this next, or the event with this id; Last-Event-ID takes precedence. Empty: what happens from now on." example:"k3f4x2m7qa-1042"`
	Kinds string `json:"kinds" rule:"max=2000" doc:"As in the list of events." example:"contact,submission.created"`
}

func (m *Module) streamOperation() operation.Row {
	row := operation.Typed(operation.Row{
		Name: "events.stream", Method: http.MethodGet, Path: "/api/events/stream",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys, Rule: operation.HandlerDecides(),
		},
		Request: operation.Request{Teams: true, Params: []operation.Param{{
			Name: "Last-Event-ID", In: operation.InHeader, Shape: operation.Text, Bounds: operation.Bounds{MaxLength: 40},
			Description: "The id of the last event that arrived, as browsers send it when they connect again.", Example: "k3f4x2m7qa-1042",
		}}},
		Response: operation.Response{
			Feeds: operation.EventStream,
			Failures: []operation.Failure{
				{
					Code: http.StatusForbidden, Message: "Lacking necessary permission contacts", Data: map[string]any{"permission": "contacts"},
					When: "the caller may not read records of a kind that it names",
				},
				operation.Refuses(http.StatusUnprocessableEntity, "a parameter has an unacceptable value", "after", fault.Format,
					"after must be the value of next, or the id of an event, as an answer had it"),
				operation.CursorGone(),
			},
		},
		Docs: operation.Docs{
			IDs: []string{"streamEvents"}, Aside: true, Tag: "Events", Summary: "Stream events",
			Description: "Sends events when they happen, as server-sent events: `id` is the event's, `event` its kind, and `data` " +
				"the event as the list has it. A comment comes every fifteen seconds. The connection is closed when the caller " +
				"loses rights, reads too slowly, or after an hour; connect again with the last id, which browsers do by " +
				"themselves, and nothing is missed.",
		},
	}, m.stream)
	return row
}

// stream answers with what happens from now on, or from after the cursor.
func (m *Module) stream(ctx context.Context, c *operation.Call, in streamInput) (operation.Result, error) {
	asked, err := m.choose(c.Principal, c.Tenant, in.Kinds)
	if err != nil {
		return operation.Result{}, err
	}
	cursor, err := c.RequestHeader("Last-Event-ID")
	if err != nil {
		return operation.Result{}, err
	}
	if cursor == "" {
		cursor = in.After
	}
	first, err := c.Events(ctx, "after", cursor, asked.query(c, 1))
	if err != nil {
		return operation.Result{}, err
	}
	view := viewOf(c.Scope)
	r := &reader{
		choice: asked, principal: c.Principal, scope: c.Scope, view: view, asked: view + fmt.Sprint(asked.what), began: time.Now(),
		at: first.UpTo,
	}
	if cursor != "" { // it was read only to refuse one that cannot be used
		r.resumed = true
		r.at, err = first.PositionOf(cursor)
	}
	t, log := c.Tenant, first.Log()
	return operation.Result{Feed: &operation.Feed{Join: func(line operation.Line) {
		r.line = line
		m.feeds.join(t, log, r)
	}}}, err
}

// reader is a connection that events are sent to.
type reader struct {
	choice

	line      operation.Line
	principal *tenants.Principal
	scope     store.Scope
	view      string // the same for readers that see the same records
	asked     string // the same for readers that are sent the same
	began     time.Time
	at        int64 // the position up to which it was told
	resumed   bool  // it said itself where it was
	gone      bool
	lagging   bool // it has not been told all that the others were
}

// viewOf names a scope.
func viewOf(s store.Scope) string {
	if s.All {
		return "*"
	}
	return strings.Join(slices.Sorted(slices.Values(s.Teams)), ",")
}

// feeds are the feeds of all organizations. Safe for concurrent use.
type feeds struct {
	m          *Module
	background func(string, func(context.Context)) bool
	turns      fairqueue.Queue[int64] // of readers that catch up

	mu    sync.Mutex
	ended bool
	of    map[string]*feed // by name of the event log
}

// feed sends the events of an organization to its readers. One goroutine runs it while it has readers.
type feed struct {
	m   *Module
	log *tenants.EventLog
	org int64

	mu      sync.Mutex
	joining []*reader
	ended   bool

	// The rest belongs to the goroutine.
	tenant *tenants.Tenant
	// confirmed: the tenant was resolved after the log was begun.
	confirmed bool
	at        int64 // the position up to which the log was read
	readers   []*reader
	noted     time.Time
	beat      time.Time // when comments were sent last
}

// join adds a reader to the feed of its organization, once it has been told what happened before.
func (s *feeds) join(t *tenants.Tenant, log *tenants.EventLog, r *reader) {
	ctx, cancel := context.WithTimeout(context.Background(), feedLife)
	defer cancel()
	hello := fmt.Sprintf("retry: 2000\nid: %s\n\n", log.Cursor(r.at))
	err := r.line.Send([]byte(hello), true)
	if err == nil {
		err = s.catchUp(ctx, t, log, r)
	}
	if err == nil && s.add(log, r) {
		return
	}
	begin := r.at
	if err == nil && r.resumed { // it may have named a position that the log has not reached
		begin, err = t.Workspace().EventsEnd(ctx)
	}
	if err != nil {
		r.line.Close()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		r.line.Close()
		return
	}
	f := s.of[log.Name]
	if f != nil && f.add(r) { // of another reader that came meanwhile
		return
	}
	f = &feed{
		m: s.m, log: log, org: t.Org.OrgID, tenant: t, at: min(begin, r.at), joining: []*reader{r}, noted: time.Now(),
		beat: time.Now(),
	}
	s.of[log.Name] = f
	if !s.background("sending events", func(ctx context.Context) { s.run(ctx, f) }) {
		r.line.Close()
		delete(s.of, log.Name)
	}
}

// catchUp tells a reader what happened before it joins, a few parts at a time: others have their turns in between.
func (s *feeds) catchUp(ctx context.Context, t *tenants.Tenant, log *tenants.EventLog, r *reader) error {
	for more := true; more; {
		if err := s.turns.Enter(ctx, t.Org.OrgID); err != nil {
			return err
		}
		var err error
		for n := 0; more && err == nil && n < catchUpParts; n++ {
			if _, err = r.line.Confirm(ctx); err == nil {
				more, err = s.m.tell(ctx, t, log, r, true)
			}
		}
		s.turns.Leave(t.Org.OrgID)
		if err != nil {
			return err
		}
		if s.isEnded() {
			return errEnded
		}
	}
	return nil
}

var errEnded = errors.New("the feeds have ended")

// add gives a reader to the feed of a log; it returns false if there is none.
func (s *feeds) add(log *tenants.EventLog, r *reader) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.of[log.Name]
	return f != nil && f.add(r)
}

// add gives the feed a reader; it returns false once the feed has ended.
func (f *feed) add(r *reader) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.joining = append(f.joining, r)
	}
	return !f.ended
}

// EndFeeds closes the connections of all readers, and those that come. They are to connect to another process.
func (m *Module) EndFeeds() {
	m.feeds.mu.Lock()
	defer m.feeds.mu.Unlock()
	m.feeds.ended = true
	for _, f := range m.feeds.of {
		m.Committed(f.org)
	}
}

func (s *feeds) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// run sends events until there is no reader, or ctx ends.
func (s *feeds) run(ctx context.Context, f *feed) {
	woken, stop := s.m.Listen(f.org)
	defer stop()
	tick := time.NewTicker(feedTick)
	defer tick.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	heard := woken // nil while it rests
	defer s.end(f)
	more := true // the log goes on, or may have before it was listened to
	for n, began := 0, time.Now(); ; {
		if !f.admit() || ctx.Err() != nil || s.isEnded() {
			return
		}
		look := false
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
			heard, look = woken, more
		case <-heard:
			look = true
		case <-tick.C:
			due := int(time.Since(began) / feedTick) // with those that were missed: all readers have their turn in a second
			for n = max(n, due-feedRound); n < due; {
				n++
				f.confirm(ctx, n)
				// Events of other processes are looked for.
				look = look || f.tenant.Workspace().Remote() && n%2 == 0 || n%feedRound == 0
			}
			f.recover(ctx, n)
			look = look && heard != nil
		}
		if look {
			at, passed := f.at, time.Now()
			var err error
			if more, err = f.advance(ctx, passed.Add(passMost)); err != nil {
				return
			}
			if f.at != at {
				heard = nil
				rest.Reset(min(restTimes*time.Since(passed), restMost))
			}
		}
		f.readers = slices.DeleteFunc(f.readers, func(r *reader) bool { return r.gone })
	}
}

// admit takes those that have joined. It returns false, and takes no more, if there are no readers.
func (f *feed) admit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.joining {
		r.lagging = r.at < f.at // the others were told something meanwhile
	}
	f.readers, f.joining = append(f.readers, f.joining...), nil
	f.ended = len(f.readers) == 0
	return !f.ended
}

// recover tells readers that lag what they have not been told, some of them at the tick n.
func (f *feed) recover(ctx context.Context, n int) {
	most := recovering
	for i := range f.readers {
		r := f.readers[(i+n)%len(f.readers)]
		for part := 0; r.lagging && !r.gone && part < recoveringOfOne; part++ {
			if most--; most < 0 {
				return
			}
			if !f.recoverOne(ctx, r) {
				break
			}
		}
	}
}

// recoverOne tells a reader that lags the next part of what it missed, and reports whether it took it.
func (f *feed) recoverOne(ctx context.Context, r *reader) bool {
	if err := r.line.Send(nil, false); err != nil { // what it was sent before comes first
		r.gone = !errors.Is(err, operation.ErrBehind)
		return false
	}
	_, err := f.m.tell(ctx, f.tenant, f.log, r, false)
	switch {
	case err == nil:
		r.lagging = r.at < f.at
	case !errors.Is(err, operation.ErrBehind):
		r.end()
	}
	return err == nil
}

// end closes what is left of a feed.
func (s *feeds) end(f *feed) {
	f.mu.Lock()
	f.ended = true
	left := append(f.readers, f.joining...)
	f.mu.Unlock()
	for _, r := range left {
		r.line.Close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[f.log.Name] == f {
		delete(s.of, f.log.Name)
	}
}

// confirm confirms the access of a part of the readers, and keeps connections open.
func (f *feed) confirm(ctx context.Context, n int) {
	for i := n % feedRound; i < len(f.readers); i += feedRound {
		r := f.readers[i]
		t, err := r.line.Confirm(ctx)
		switch {
		case err != nil, time.Since(r.began) > feedLife, !r.flushed():
			r.end()
		case t != nil:
			f.tenant, f.confirmed = t, true
		}
	}
	if time.Since(f.beat) >= feedHeartbeat {
		f.beat = time.Now()
		f.each(func(r *reader) { r.send([]byte(":\n\n")) })
	}
	if time.Since(f.noted) > feedNote {
		f.noted = time.Now()
		_, _ = f.tenant.Follow(ctx) // if it fails, the next note comes in time
	}
}

func (r *reader) end() {
	r.gone = true
	r.line.Close()
}

// advance sends what has happened, part after part until the time, and reports whether the log goes on. Errors:
// store.ErrEventsGone if the log has ended, that of the context.
func (f *feed) advance(ctx context.Context, until time.Time) (more bool, err error) {
	if log := f.tenant.Org.EventLog; f.confirmed && (log == nil || log.Name != f.log.Name) {
		return false, store.ErrEventsGone
	}
	for more = true; more && err == nil; {
		var part store.Events
		if part, err = f.m.all(ctx, f.tenant, f.at); err == nil && len(part.Events) > 0 {
			err = f.send(ctx, part.Events)
		}
		if err == nil {
			f.at, more = part.UpTo, part.More
		}
		if !time.Now().Before(until) {
			break
		}
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrEventsGone) {
		return false, nil // after an outage the readers still know where they were
	}
	return more, err
}

// all returns what follows a position in the log, whoever may read it.
func (m *Module) all(ctx context.Context, t *tenants.Tenant, after int64) (store.Events, error) {
	return t.Workspace().Events(ctx, store.EventsQuery{
		After: after, Kinds: slices.Collect(maps.Keys(m.kinds)), Limit: feedPage,
		See: func(_ context.Context, _ string, events []store.Event) ([]store.Seen, error) {
			return slices.Repeat([]store.Seen{store.Shown}, len(events)), nil
		},
	})
}

// send sends events to the readers that may know of them.
func (f *feed) send(ctx context.Context, events []store.Event) error {
	pieces := make([][]byte, len(events))
	for i := range events {
		pieces[i] = piece(f.log, &events[i])
	}
	seen := map[string][]bool{} // by view
	for _, r := range f.readers {
		if seen[r.view] == nil {
			var err error
			if seen[r.view], err = f.m.seen(ctx, f.tenant, r, events); err != nil {
				return err
			}
		}
	}
	textFor := func(r *reader) (text []byte) {
		for i := range events {
			if seen[r.view][i] && events[i].Position() > r.at && r.wants(&events[i]) {
				text = append(text, pieces[i]...)
			}
		}
		return text
	}
	shared := map[string][]byte{} // for readers that know none of the events yet
	first, last := events[0].Position(), events[len(events)-1].Position()
	for _, r := range f.readers {
		if _, made := shared[r.asked]; !made && r.at < first && len(shared) < sharedMost {
			shared[r.asked] = textFor(r)
		}
	}
	f.each(func(r *reader) {
		if r.lagging {
			return
		}
		text, made := shared[r.asked]
		if !made || r.at >= first {
			text = textFor(r)
		}
		r.send(text)
		if !r.lagging {
			r.at = max(r.at, last)
		}
	})
	return nil
}

// seen returns which events a reader may know of, if it may read their kinds.
func (m *Module) seen(ctx context.Context, t *tenants.Tenant, r *reader, events []store.Event) ([]bool, error) {
	c := operation.NewCall(nil, func(string) string { return "" })
	c.Tenant, c.Principal, c.Scope, c.Workspace = t, r.principal, r.scope, t.Workspace().Scoped(r.scope)
	shown := make([]bool, len(events))
	for kind, row := range m.kinds {
		var at []int
		var those []store.Event
		for i := range events {
			if events[i].Kind == kind {
				at, those = append(at, i), append(those, events[i])
			}
		}
		if len(at) == 0 {
			continue
		}
		seen, err := row.Logged.See(ctx, c, those)
		if err != nil {
			return nil, err
		}
		for n, i := range at {
			shown[i] = seen[n] == store.Shown
		}
	}
	return shown, nil
}

// wants reports whether the reader asked for the event.
func (h *choice) wants(e *store.Event) bool { return slices.Contains(h.what[e.Kind], e.What) }

// piece returns an event as it is sent.
func piece(log *tenants.EventLog, e *store.Event) []byte {
	shown := event(log.Cursor(e.Position()), e)
	data, _ := json.Marshal(shown) // cannot fail for texts and numbers
	return fmt.Appendf(nil, "id: %s\nevent: %s\ndata: %s\n\n", shown.ID, shown.Kind, data)
}

// flushed sends what the reader has not taken yet, and reports whether it may still take it.
func (r *reader) flushed() bool {
	err := r.line.Send(nil, false)
	return err == nil || errors.Is(err, operation.ErrBehind)
}

// send sends text without waiting. A reader that has not taken what came before lags from then on; one that has gone, or
// takes nothing for long, is cut off.
func (r *reader) send(text []byte) {
	if len(text) == 0 {
		return
	}
	switch err := r.line.Send(text, false); {
	case errors.Is(err, operation.ErrBehind):
		r.lagging = true
	case err != nil:
		r.gone = true
	}
}

// each calls do for all readers, several at a time.
func (f *feed) each(do func(*reader)) {
	var doing sync.WaitGroup
	share := max(1, (len(f.readers)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for part := range slices.Chunk(f.readers, share) {
		all := func() {
			for _, r := range part {
				if !r.gone {
					do(r)
				}
			}
		}
		if len(part) == len(f.readers) {
			all()
			return
		}
		doing.Go(all)
	}
	doing.Wait()
}

// tell sends a reader the next part of the log, and reports whether more follows.
func (m *Module) tell(
	ctx context.Context, t *tenants.Tenant, log *tenants.EventLog, r *reader, patient bool,
) (more bool, err error) {
	part, err := m.all(ctx, t, r.at)
	if err != nil {
		return false, err
	}
	shown, err := m.seen(ctx, t, r, part.Events)
	if err != nil {
		return false, err
	}
	var text bytes.Buffer
	for i := range part.Events {
		if e := &part.Events[i]; shown[i] && r.wants(e) {
			text.Write(piece(log, e))
		}
	}
	if text.Len() > 0 {
		if err := r.line.Send(text.Bytes(), patient); err != nil {
			return false, err
		}
	}
	r.at = part.UpTo
	return part.More, nil
}
