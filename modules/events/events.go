// Package events tells callers what happens to an organization's records: its event log, judged by the rights with
// which the records themselves are read.
package events

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fairqueue"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
)

// Module serves the event log. It is immutable once Explain was called, and safe for concurrent use.
type Module struct {
	hub
	feeds feeds

	keep  func() time.Duration
	kinds map[string]*operation.Row // what answers one record of each kind
	what  map[string][]store.What   // what can happen to records of each kind
}

// New returns a Module. keep returns for how long events are kept; background runs what goes on after a request, until
// the gateway stops.
func New(keep func() time.Duration, background func(string, func(context.Context)) bool) *Module {
	m := &Module{keep: keep}
	m.feeds = feeds{
		m: m, background: background, of: map[string]*feed{},
		turns: fairqueue.Queue[int64]{Size: catchingUp, Share: catchingUpOfOne, Places: catchUpWaiting},
	}
	return m
}

// Explain sets the rows of all operations, and what can happen to records by the name of their resource. It must be
// called before the module serves.
func (m *Module) Explain(rows []operation.Row, what func(resource string) []store.What) {
	m.kinds, m.what = map[string]*operation.Row{}, map[string][]store.What{}
	for i := range rows {
		if row := &rows[i]; row.Logged != nil {
			m.kinds[row.Logged.Resource], m.what[row.Logged.Resource] = row, what(row.Logged.Resource)
		}
	}
}

// Kept returns nothing, because package store keeps the log.
func (m *Module) Kept() []record.Kept { return nil }

// Event is what happened to one record.
type Event struct {
	ID       string `json:"id" doc:"Identifier of the event. Those of one organization are in the order of the log, and each is a cursor for after."`
	Kind     string `json:"kind" doc:"The kind of record, and what happened to it: created, updated, deleted, restored or purged. Records with a trash are purged when they are deleted for good."`
	Record   string `json:"record" doc:"Identifier of the record."`
	Revision int64  `json:"revision" doc:"Revision of the record after the change, as in its ETag."`
	Actor    string `json:"actor" doc:"Who made the change, as in the audit log: user:<number>, key:<identifier>, anonymous or system."`
	At       string `json:"at" doc:"When it happened: RFC 3339, UTC, milliseconds."`
}

// Page is a part of the log.
type Page struct {
	Next    string  `json:"next" doc:"What to send as after for what happens next. It is there at the end, too."`
	More    bool    `json:"more" doc:"Whether more events can be read now."`
	Results []Event `json:"results" doc:"The events, in their order. A part may have none although more follow."`
}

// anyone names changes that no caller made.
const anyone = "system"

// event returns a change as callers see it.
func event(id string, c *store.Event) Event {
	e := Event{
		ID: id, Kind: c.Kind + "." + string(c.What), Record: c.Record, Revision: c.Revision, Actor: c.Actor,
		At: texts.Time(c.CreatedAt),
	}
	if e.Actor == "" {
		e.Actor = anyone
	}
	return e
}

type listInput struct {
	After   string `json:"after" rule:"max=40" doc:"What follows the answer with this next, or the event with this id. Empty: nothing yet; next is where to begin." example:"k3f4x2m7qa-1042"`
	Kinds   string `json:"kinds" rule:"max=2000" doc:"Only these, separated by commas: kinds of records (contact, or contact.*), or what happened to them (contact.created). Empty: all that the caller may read." example:"contact,submission.created"`
	PerPage int64  `json:"per_page" rule:"min=1 max=9223372036854775807" default:"100" doc:"Events in an answer, from 1; cut to 1000."`
}

// Operations returns the rows.
func (m *Module) Operations() []operation.Row {
	example := Event{
		ID: "k3f4x2m7qa-1043", Kind: "contact.updated", Record: "665f1c2ab4d3e2f1a0b9c8e1", Revision: 3, Actor: "user:7",
		At: "2026-11-22T10:00:00.000Z",
	}
	return []operation.Row{m.streamOperation(), operation.Typed(operation.Row{
		Name: "events.list", Method: http.MethodGet, Path: "/api/events",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys, Rule: operation.HandlerDecides(),
			Weight: operation.Heavy,
		},
		Request: operation.Request{Teams: true},
		Response: operation.Response{
			Message: "Events found", Example: Page{Next: example.ID, Results: []Event{example}},
			Failures: []operation.Failure{
				{
					Code: http.StatusForbidden, Message: "Lacking necessary permission contacts", Data: map[string]any{"permission": "contacts"},
					When: "the caller may not read records of a kind that it names",
				},
				{
					Code: http.StatusForbidden, Message: "A key of this kind cannot read records of the kind contact",
					When: "the key is read-only, and reading these records needs another one",
				},
				operation.Refuses(http.StatusUnprocessableEntity, "a parameter has an unacceptable value", "after", fault.Format,
					"after must be the value of next, or the id of an event, as an answer had it"),
				operation.CursorGone(),
			},
		},
		Docs: operation.Docs{
			IDs: []string{"listEvents"}, Aside: true, Tag: "Events", Summary: "List events",
			Description: "Answers what happened to records since a cursor, in order, without their values. A caller is told " +
				"of exactly those records that it may read, and of the end of those that it might read. The log begins with the " +
				"first call; begin with a call without after, then read the lists, then go on with next: nothing is missed. " +
				"Events are kept for as long as the operator says, and no longer than that once nobody reads them.",
		},
	}, m.list)}
}

func (m *Module) list(ctx context.Context, c *operation.Call, in listInput) (Page, error) {
	asked, err := m.choose(c.Principal, c.Tenant, in.Kinds)
	if err != nil {
		return Page{}, err
	}
	return asked.read(ctx, c, in.After, int(min(in.PerPage, operation.MostPerPage)))
}

// Read is events.list for a principal: it returns events after a cursor, at most limit. kinds are as in a call. Errors:
// those of a call.
func (m *Module) Read(
	ctx context.Context, t *tenants.Tenant, p *tenants.Principal, kinds, cursor string, limit int,
) (Page, error) {
	asked, err := m.choose(p, t, kinds)
	if err != nil {
		return Page{}, err
	}
	return asked.read(ctx, callOf(t, p), cursor, limit)
}

// At returns those of the events with the identifiers that a principal may read now, in the order of the log. gone are those
// that the log lacks. kinds are as in a call. Errors: those of a call.
func (m *Module) At(
	ctx context.Context, t *tenants.Tenant, p *tenants.Principal, kinds string, ids []string,
) (found []Event, gone []string, err error) {
	asked, err := m.choose(p, t, kinds)
	if err != nil {
		return nil, nil, err
	}
	return asked.at(ctx, callOf(t, p), ids)
}

// callOf returns a call of the principal.
func callOf(t *tenants.Tenant, p *tenants.Principal) *operation.Call {
	c := operation.NewCall(nil, func(string) string { return "" })
	c.Tenant, c.Principal, c.Scope = t, p, p.Scope(t, nil)
	c.Workspace = t.Workspace().Scoped(c.Scope)
	return c
}

// Readable returns those of the names of kinds that the principal may read.
func (m *Module) Readable(p *tenants.Principal, t *tenants.Tenant, names []string) (may []string) {
	for _, name := range names {
		if _, err := m.choose(p, t, name); err == nil {
			may = append(may, name)
		}
	}
	return may
}

// Shown reports for each of the events, which were read earlier, whether the caller may read it now. One that the log no
// longer has is shown only to callers who see the records of all teams. Errors: those of a call.
func (m *Module) Shown(ctx context.Context, c *operation.Call, events []Event) ([]bool, error) {
	shown := make([]bool, len(events))
	if len(events) == 0 {
		return shown, nil
	}
	asked, err := m.choose(c.Principal, c.Tenant, "")
	if err != nil {
		return nil, err
	}
	for i := range events {
		kind, _, _ := strings.Cut(events[i].Kind, ".")
		_, shown[i] = asked.what[kind]
	}
	if c.Scope.All {
		return shown, nil
	}
	var ids []string
	for i := range events {
		if shown[i] {
			ids = append(ids, events[i].ID)
		}
	}
	found, _, err := asked.at(ctx, c, ids)
	for i := range events {
		shown[i] = slices.ContainsFunc(found, func(e Event) bool { return e.ID == events[i].ID })
	}
	return shown, err
}

// at returns those of the events that a call may be told, in the order of the log. gone are those that the log lacks.
func (h choice) at(ctx context.Context, c *operation.Call, ids []string) (found []Event, gone []string, err error) {
	log, err := c.Tenant.Follow(ctx)
	if err != nil {
		return nil, nil, err
	}
	var positions []int64
	for _, id := range ids {
		if position, err := log.Position(id); err == nil {
			positions = append(positions, position)
		} else {
			gone = append(gone, id)
		}
	}
	all, lacks, err := c.Tenant.Workspace().EventsAt(ctx, h.query(c, len(positions)), positions)
	for _, position := range lacks {
		gone = append(gone, log.Cursor(position))
	}
	slices.SortFunc(all, func(a, b store.Event) int { return cmp.Compare(a.Position(), b.Position()) })
	for i := range all {
		found = append(found, event(log.Cursor(all[i].Position()), &all[i]))
	}
	return found, gone, err
}

// read returns what a call may be told after a cursor.
func (h choice) read(ctx context.Context, c *operation.Call, cursor string, limit int) (Page, error) {
	part, err := c.Events(ctx, "after", cursor, h.query(c, limit))
	if err != nil {
		return Page{}, err
	}
	out := Page{Next: part.Next(), More: part.More, Results: []Event{}}
	for i := range part.Events.Events {
		change := &part.Events.Events[i]
		out.Results = append(out.Results, event(part.ID(change.Position()), change))
	}
	return out, nil
}

// choice is what a reader wants to know: what happened, by the kind of record.
type choice struct {
	m    *Module
	what map[string][]store.What
}

// choose reads the names of kinds; empty means all that the principal may read. Errors: a *fault.Error for unknown
// names; the refusal of a kind that is named.
func (m *Module) choose(p *tenants.Principal, t *tenants.Tenant, text string) (choice, error) {
	out := choice{m, map[string][]store.What{}}
	may := func(kind string) error {
		row := m.kinds[kind]
		if err := row.Admits(p, ""); err != nil {
			return operation.Forbidden("A key of this kind cannot read records of the kind " + kind)
		}
		return row.Rule.Check(p, t)
	}
	if strings.TrimSpace(text) == "" {
		for kind := range m.kinds {
			if may(kind) == nil {
				out.what[kind] = m.what[kind]
			}
		}
		return out, nil
	}
	what, err := m.Parse("kinds", strings.Split(text, ","))
	if err != nil {
		return out, err
	}
	for _, kind := range slices.Sorted(maps.Keys(what)) {
		if err := may(kind); err != nil {
			return out, err
		}
	}
	out.what = what
	return out, nil
}

// Parse reads names of kinds, and of what happens to their records. Error: a *fault.Error about the named field.
func (m *Module) Parse(field string, names []string) (map[string][]store.What, error) {
	var errs fault.List
	out := map[string][]store.What{}
	for _, name := range names {
		kind, happened, _ := strings.Cut(strings.TrimSpace(name), ".")
		all, known := m.what[kind]
		switch {
		case !known:
			errs.Add(field, fault.Unknown, "there are no events of %q; there are those of %s", texts.Clip(kind),
				strings.Join(slices.Sorted(maps.Keys(m.what)), ", "))
		case happened == "" || happened == "*":
			out[kind] = all
		case !slices.Contains(all, store.What(happened)):
			errs.Add(field, fault.Unknown, "a %s is never %q; it is %s", kind, texts.Clip(happened), joined(all))
		case !slices.Contains(out[kind], store.What(happened)):
			out[kind] = append(slices.Clone(out[kind]), store.What(happened))
		}
	}
	return out, errs.Err()
}

func joined(all []store.What) string {
	names := make([]string, len(all))
	for i, what := range all {
		names[i] = string(what)
	}
	return strings.Join(names, ", ")
}

// query returns the query for what a call may be told.
func (h choice) query(c *operation.Call, limit int) store.EventsQuery {
	return store.EventsQuery{
		Kinds: slices.Sorted(maps.Keys(h.what)), Limit: limit,
		See: func(ctx context.Context, kind string, changes []store.Event) ([]store.Seen, error) {
			seen, err := h.m.kinds[kind].Logged.See(ctx, c, changes)
			for i := range seen {
				if seen[i] == store.Lost || !slices.Contains(h.what[kind], changes[i].What) {
					seen[i] = store.Hidden
				}
			}
			return seen, err
		},
	}
}
