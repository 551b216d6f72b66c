package webhooks

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// lostError says that the event log lacks events that wait.
type lostError struct{ ids []string }

// Error says what happened.
func (e *lostError) Error() string { return "the event log no longer has some of what waits" }

// read reads what the round sends, with the rights of this moment: what waits and is due, and then what is to be sent again,
// or follows. Errors: see isGone; *lostError; store.ErrUnavailable.
func (r *round) read(ctx context.Context, who *tenants.Principal) error {
	p := r.p
	r.next, r.due = *p, map[string]bool{}
	kinds := r.h.Kinds
	if len(kinds) > 0 {
		kinds = r.m.Events.Readable(who, r.t, kinds)
	}
	nothing := len(r.h.Kinds) > 0 && len(kinds) == 0 // is for this account
	due, held := p.due(r.m.Now().UnixMilli())
	known := map[string]Waiting{}
	for _, w := range p.Waiting {
		known[w.ID] = w
	}
	ids := make([]string, len(due))
	for i, w := range due {
		ids[i], r.due[w.ID] = w.ID, true
	}
	if len(ids) > 0 && !nothing {
		found, gone, err := r.m.Events.At(ctx, r.t, who, kinds, ids)
		if err != nil {
			return err
		}
		if len(gone) > 0 {
			return &lostError{gone}
		}
		for _, e := range found {
			r.items = append(r.items, item{event: e, waits: known[e.ID]})
		}
	}
	room := min(roundEvents-len(due), mostWaiting-len(p.Waiting))
	if room <= 0 {
		r.more = len(due) > 0 // once there is room
		return nil
	}
	read, err := r.follow(ctx, who, kinds, nothing, room)
	for _, e := range read {
		w := Waiting{ID: e.ID, Record: e.Record}
		switch _, waits := known[e.ID]; {
		case waits:
		case held[e.Record]:
			r.added = append(r.added, w)
		default:
			r.items = append(r.items, item{event: e, waits: w})
		}
	}
	return err
}

// follow reads what is to be sent again, or else what follows the cursor.
func (r *round) follow(ctx context.Context, who *tenants.Principal, kinds []string, nothing bool, limit int) ([]Event, error) {
	if r.p.AgainFrom == 0 {
		part, err := r.m.following(ctx, r.t, r.h, r.p, who, kinds, nothing, limit)
		r.next.Cursor, r.more = part.Next, part.More
		return part.Events, err
	}
	ids, last, more, err := r.m.sentSince(ctx, r.t.Workspace(), r.h, r.p, limit)
	if err != nil {
		return nil, err
	}
	r.more = true
	if r.next.AgainAfter = last; !more {
		r.next.AgainFrom = 0
	}
	if nothing || len(ids) == 0 {
		return nil, nil
	}
	found, _, err := r.m.Events.At(ctx, r.t, who, kinds, ids)
	return found, err
}

// sentSince returns the next events that are to be sent again, how far their notes were read, and whether there are more.
func (m *Module) sentSince(
	ctx context.Context, ws *store.Workspace, h *Hook, p *Progress, limit int,
) (ids []string, last string, more bool, err error) {
	last = cmp.Or(p.AgainAfter, noteID(h.ID, 0))
	for range notesPages {
		found, err := m.Deliveries.In(ws).FindPart(ctx, store.Query{
			Filter: store.All(store.Where(store.F("id"), store.OpGt, last), store.Where(store.F("id"), store.OpLte, noteID(h.ID, lastPosition))),
			Sort:   []store.Order{store.Asc("id")}, Limit: roundEvents, Bytes: store.BatchBytes,
		})
		if err != nil {
			return nil, "", false, err
		}
		for i := range found.Records {
			if len(ids) == limit {
				return ids, last, true, nil
			}
			d := &found.Records[i]
			if d.Webhook == h.ID && d.LastAt >= p.AgainFrom && !slices.ContainsFunc(p.Later, func(w Waiting) bool { return w.ID == d.Event.ID }) {
				ids = append(ids, d.Event.ID)
			}
			last = found.Records[i].ID
		}
		if !found.Cut && len(found.Records) < roundEvents {
			return ids, last, false, nil
		}
	}
	return ids, last, true, nil
}

// following reads the events that follow the cursor. nothing: none is for the account.
func (m *Module) following(
	ctx context.Context, t *tenants.Tenant, h *Hook, p *Progress, who *tenants.Principal, kinds []string, nothing bool, limit int,
) (Part, error) {
	if nothing {
		return m.Events.Read(ctx, t, who, nil, "", 1)
	}
	from := p.Cursor
	m.mu.Lock()
	if over, ok := m.read[pair{t.Org.OrgID, h.ID}]; ok && over.rev == p.Rev {
		from = over.cursor
	}
	m.mu.Unlock()
	return m.Events.Read(ctx, t, who, kinds, from, limit)
}

// pass notes that there is nothing to send up to a cursor. That is stored now and then.
func (m *Module) pass(ctx context.Context, t *tenants.Tenant, h *Hook, p *Progress, to string) error {
	key := pair{t.Org.OrgID, h.ID}
	m.mu.Lock()
	over, ok := m.read[key]
	if !ok || over.rev != p.Rev {
		over = passed{rev: p.Rev, at: time.Now()}
	}
	over.cursor = to
	late := p.Cursor == "" || time.Since(over.at) > skipSaved && to != p.Cursor
	if m.read[key] = over; late {
		delete(m.read, key)
	}
	m.mu.Unlock()
	if !late {
		return nil
	}
	p.Cursor = to
	return m.Progress.In(t.Workspace()).Replace(ctx, p)
}
