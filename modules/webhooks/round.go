package webhooks

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// Bounds of a round: events that are read with the rights of that moment, and sent.
const (
	roundEvents = 500         // events of a round
	mostAhead   = 1500        // events after one that is not accepted, to what happened to other records
	roundLanes  = perPair     // tries under way at once; what happened to one record is sent one by one
	roundAge    = time.Second // after this no further try of the round begins, because rights may have changed
	giveUpAfter = 3 * 24 * time.Hour
	skipSaved   = time.Minute // how often it is stored that events were passed over
)

// pauses are the times between tries within a round. They are short, because the other events of a lane wait.
func pauses() []time.Duration { return []time.Duration{100 * time.Millisecond, 400 * time.Millisecond} }

// backoff returns how long to wait after so many rounds that delivered nothing.
func backoff(tries int) time.Duration {
	steps := []time.Duration{
		time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour,
		2 * time.Hour, 4 * time.Hour, 8 * time.Hour,
	}
	return steps[min(max(tries, 1), len(steps))-1]
}

// receiver returns the party whose turn a try is: the scheme, host and port of an address.
func receiver(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// pair is an organization and a receiver, which others may send to as well, or one of its webhooks: an import keeps their
// identifiers.
type pair struct {
	org int64
	of  string
}

// enter waits for the turn of a try. The caller calls leave after it. An organization takes only a part of the places at a
// receiver, so that its tries that hang do not keep those of others waiting.
func (m *Module) enter(ctx context.Context, org int64, to string) (leave func(), err error) {
	own := pair{org, to}
	if err := m.pairs.Enter(ctx, own); err != nil {
		return nil, err
	}
	if err := m.receivers.Enter(ctx, to); err != nil {
		m.pairs.Leave(own)
		return nil, err
	}
	if err := m.turns.Enter(ctx, org); err != nil {
		m.receivers.Leave(to)
		m.pairs.Leave(own)
		return nil, err
	}
	return func() { m.turns.Leave(org); m.receivers.Leave(to); m.pairs.Leave(own) }, nil
}

func (m *Module) count(o *outcome) {
	if m.Sent != nil {
		m.Sent(o.accepted())
	}
}

// round is one round of a webhook.
type round struct {
	m     *Module
	t     *tenants.Tenant
	h     *Hook
	s     signer
	began time.Time
	to    string

	refused atomic.Int64 // tries in a row that were not accepted, of all lanes
	gone    atomic.Bool
	wait    atomic.Int64 // the longest time that the receiver asked for, in nanoseconds
	results []result     // by event; each is written by its lane alone
}

// result is what came of one event in a round.
type result struct {
	outcome
	first time.Time // of the first try
	tries int
}

// passed is how far the events of a webhook were passed over since its progress was stored, in the revision rev.
type passed struct {
	rev    int64
	cursor string
	at     time.Time
}

// deliver sends to a webhook what waits for it, round after round, until nothing does or it must wait, or other webhooks of
// the organization have their turn. It returns when to come again; zero: when something happens.
func (m *Module) deliver(ctx context.Context, t *tenants.Tenant, h *Hook) (next time.Time, err error) {
	for began := time.Now(); ; {
		if t, h, err = m.current(ctx, t, h); err != nil || h == nil {
			return time.Time{}, err
		}
		p, err := m.progress(ctx, t, h)
		if err != nil {
			return time.Time{}, err
		}
		if at := time.UnixMilli(p.NextTry); p.NextTry > m.Now().UnixMilli() {
			return at, nil
		}
		more, err := m.oneRound(ctx, t, h, p)
		if err != nil || ctx.Err() != nil {
			return time.Time{}, cmp.Or(err, ctx.Err())
		}
		if p.NextTry > 0 {
			return time.UnixMilli(p.NextTry), nil
		}
		if !more {
			return time.Time{}, nil
		}
		if time.Since(began) > lookEvery {
			return m.Now(), nil
		}
	}
}

// current returns the organization and the webhook as they are now; nil if nothing is to be sent any more.
func (m *Module) current(ctx context.Context, t *tenants.Tenant, h *Hook) (*tenants.Tenant, *Hook, error) {
	t, err := m.Directory.BySlug(ctx, t.Org.Slug)
	if err != nil || t.Org.State != tenants.Active {
		return t, nil, err
	}
	h, err = m.Hooks.In(t.Workspace()).Get(ctx, h.ID)
	if errors.Is(err, store.ErrNotFound) {
		return t, nil, nil
	}
	if err == nil {
		if _, idle := h.idle(); idle {
			h = nil
		}
	}
	return t, h, err
}

// progress returns how far the webhook has come.
func (m *Module) progress(ctx context.Context, t *tenants.Tenant, h *Hook) (*Progress, error) {
	all := m.Progress.In(t.Workspace())
	p, err := all.Get(ctx, h.ID)
	if !errors.Is(err, store.ErrNotFound) {
		return p, err
	}
	p = &Progress{Meta: store.Meta{ID: h.ID}, Cursor: h.Begin}
	err = all.Insert(ctx, p)
	if taken := (*store.DuplicateError)(nil); errors.As(err, &taken) {
		return all.Get(ctx, h.ID)
	}
	return p, err
}

// oneRound sends the next events, and stores what came of it. It reports whether more can be sent at once.
func (m *Module) oneRound(ctx context.Context, t *tenants.Tenant, h *Hook, p *Progress) (more bool, err error) {
	who, err := m.Accounts.AccountPrincipal(ctx, t, h.Account)
	if errors.Is(err, tenants.ErrDenied) {
		return false, m.pause(ctx, t, h, p, accountGone)
	}
	if err != nil {
		return false, err
	}
	part, err := m.next(ctx, t, h, p, who)
	if isGone(err) {
		p.Cursor, p.Done = "", nil
		return false, m.pause(ctx, t, h, p, logGone)
	}
	if err != nil {
		return false, err
	}
	events := p.undone(part.Events)
	if len(events) == 0 && p.Head != "" { // what was not accepted is gone, or is not for this account any more
		p.Cursor, p.Done, p.Head, p.FailingSince, p.Tries, p.NextTry = part.Next, nil, "", 0, 0, 0
		return part.More, m.Progress.In(t.Workspace().BeyondQuota()).Replace(ctx, p)
	}
	if len(events) == 0 {
		return part.More, m.pass(ctx, t, h, p, part)
	}
	r := &round{m: m, t: t, h: h, began: time.Now(), to: receiver(h.URL)}
	if r.s, err = m.signerOf(ctx, t, h); err != nil {
		return false, err
	}
	r.send(ctx, events)
	if !slices.ContainsFunc(r.results, func(res result) bool { return res.tries > 0 }) {
		return true, ctx.Err()
	}
	settled := r.settle(p, part, events)
	if err := m.save(ctx, t, h, p, r, events); err != nil {
		return false, err
	}
	switch {
	case r.gone.Load():
		return false, m.pause(ctx, t, h, p, receiverGone)
	case p.Head != "" && m.Now().UnixMilli()-p.FailingSince >= giveUpAfter.Milliseconds():
		return false, m.pause(ctx, t, h, p, receiverAway)
	}
	return part.More || !settled, nil
}

// undone returns those of the events that were not delivered.
func (p *Progress) undone(events []Event) []Event {
	return slices.DeleteFunc(events, func(e Event) bool { return slices.Contains(p.Done, e.ID) })
}

// next reads the events that follow.
func (m *Module) next(ctx context.Context, t *tenants.Tenant, h *Hook, p *Progress, who *tenants.Principal) (Part, error) {
	kinds := h.Kinds
	if len(kinds) > 0 {
		if kinds = m.Events.Readable(who, t, kinds); len(kinds) == 0 { // nothing is for this account
			return m.Events.Read(ctx, t, who, nil, "", 1)
		}
	}
	from := p.Cursor
	m.mu.Lock()
	if over, ok := m.read[pair{t.Org.OrgID, h.ID}]; ok && over.rev == p.Rev {
		from = over.cursor
	}
	m.mu.Unlock()
	return m.Events.Read(ctx, t, who, kinds, from, min(roundEvents+len(p.Done), mostAhead))
}

// pass notes that there is nothing to send up to the end of the part. That is stored now and then.
func (m *Module) pass(ctx context.Context, t *tenants.Tenant, h *Hook, p *Progress, part Part) error {
	key := pair{t.Org.OrgID, h.ID}
	m.mu.Lock()
	over, ok := m.read[key]
	if !ok || over.rev != p.Rev {
		over = passed{rev: p.Rev, at: time.Now()}
	}
	over.cursor = part.Next
	late := p.Cursor == "" || len(p.Done) > 0 || time.Since(over.at) > skipSaved && part.Next != p.Cursor
	if m.read[key] = over; late {
		delete(m.read, key)
	}
	m.mu.Unlock()
	if !late {
		return nil
	}
	p.Cursor, p.Done = part.Next, nil
	return m.Progress.In(t.Workspace()).Replace(ctx, p)
}

// send sends the events in lanes. What happened to one record is in one lane, and in its order.
func (r *round) send(ctx context.Context, events []Event) {
	r.results = make([]result, len(events))
	lanes := make([][]int, min(roundLanes, len(events)))
	seed := maphash.MakeSeed()
	for i := range events {
		if len(lanes) > 0 {
			n := maphash.String(seed, events[i].Record) % uint64(len(lanes))
			lanes[n] = append(lanes[n], i)
		}
	}
	var sending sync.WaitGroup
	for _, lane := range lanes {
		if len(lane) > 0 {
			sending.Go(func() { r.lane(ctx, events, lane) })
		}
	}
	sending.Wait()
}

// lane sends events one after the other. After a failure it leaves out what happened to the same record later.
func (r *round) lane(ctx context.Context, events []Event, lane []int) {
	leave, err := r.m.enter(ctx, r.t.Org.OrgID, r.to)
	if err != nil {
		return
	}
	defer leave()
	var stuck map[string]bool
	for _, i := range lane {
		if r.over(ctx) {
			return
		}
		if e := &events[i]; !stuck[e.Record] && !r.one(ctx, e, &r.results[i]) {
			if stuck == nil {
				stuck = map[string]bool{}
			}
			stuck[e.Record] = true
		}
	}
}

// over reports whether no further try of the round may begin.
func (r *round) over(ctx context.Context) bool {
	return ctx.Err() != nil || time.Since(r.began) > roundAge || r.gone.Load() || r.wait.Load() > 0 || r.refused.Load() >= 2*roundLanes
}

// one tries to deliver an event, a few times.
func (r *round) one(ctx context.Context, e *Event, into *result) bool {
	for n := 0; ; n++ {
		o := r.m.try(ctx, r.h, r.s, e)
		if ctx.Err() != nil && !o.accepted() { // this process ends, or has lost the webhook
			return false
		}
		r.m.count(&o)
		if into.outcome = o; into.tries == 0 {
			into.first = o.at
		}
		into.tries++
		if o.accepted() {
			r.refused.Store(0)
			return true
		}
		r.refused.Add(1)
		if o.gone {
			r.gone.Store(true)
		}
		if o.wait > 0 {
			r.wait.Store(max(r.wait.Load(), int64(o.wait)))
		}
		if n >= len(pauses()) || r.over(ctx) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pauses()[n]):
		}
	}
}

// settle moves the progress on by what was delivered. It reports whether every event of the part was.
func (r *round) settle(p *Progress, part Part, events []Event) bool {
	accepted := map[string]bool{}
	for _, id := range p.Done {
		accepted[id] = true
	}
	some, head := false, ""
	for i := range events {
		if res := &r.results[i]; res.tries > 0 && res.accepted() {
			accepted[events[i].ID], some = true, true
		} else if res.tries > 0 && head == "" {
			head = events[i].ID
		}
	}
	open := slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return accepted[e.ID] })
	if len(open) == 0 {
		p.Cursor, p.Done = part.Next, nil
	} else {
		first := position(open[0].ID)
		p.Cursor = before(open[0].ID)
		p.Done = slices.DeleteFunc(sortedIDs(accepted), func(id string) bool { return position(id) < first })
	}
	r.plan(p, head, some)
	return len(open) == 0
}

func sortedIDs(ids map[string]bool) []string {
	all := make([]string, 0, len(ids))
	for id := range ids {
		all = append(all, id)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(position(a), position(b)) })
	return all
}

// plan says when to try again; head is the first event that was not accepted, if there is one.
func (r *round) plan(p *Progress, head string, some bool) {
	now := r.m.Now()
	if head == "" {
		p.Head, p.FailingSince, p.Tries, p.NextTry = "", 0, 0, 0
		return
	}
	if p.Head != head || p.FailingSince == 0 {
		p.Head, p.FailingSince = head, now.UnixMilli()
	}
	if p.Tries++; some {
		p.Tries = 1
	}
	p.NextTry = now.Add(max(backoff(p.Tries), time.Duration(r.wait.Load()))).UnixMilli()
}

// saveTimeout bounds storing what came of a round, also when this process ends.
const saveTimeout = 5 * time.Second

// save stores the notes of a round together with the progress. Error: store.ErrConflict if somebody else has changed the
// progress; the events are sent again then.
func (m *Module) save(ctx context.Context, t *tenants.Tenant, h *Hook, p *Progress, r *round, events []Event) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	ws := t.Workspace().BeyondQuota()
	notes := m.Deliveries.In(ws)
	var ids []string
	for i := range events {
		if r.results[i].tries > 0 {
			ids = append(ids, deliveryID(h.ID, events[i].ID))
		}
	}
	known := map[string]*Delivery{}
	for part := range slices.Chunk(ids, store.MaxLimit) {
		found, err := notes.Find(ctx, store.Query{Filter: store.In("id", part...), Limit: len(part)})
		if err != nil {
			return err
		}
		for i := range found {
			known[found[i].ID] = &found[i]
		}
	}
	b := ws.Batch()
	var added, changed []*Delivery
	for i := range events {
		res := &r.results[i]
		if res.tries == 0 {
			continue
		}
		id := deliveryID(h.ID, events[i].ID)
		d := known[id]
		if d == nil {
			d = &Delivery{Meta: store.Meta{ID: id, CreatedAt: res.first.UnixMilli()}, Webhook: h.ID, Event: events[i]}
			added = append(added, d)
		} else {
			d.Event, changed = events[i], append(changed, d)
		}
		d.Tries += res.tries - 1
		d.note(&res.outcome)
	}
	err := cmp.Or(
		notes.StageInsert(b, added...), notes.StageReplace(ctx, b, changed...), m.Progress.In(ws).StageReplace(ctx, b, p),
	)
	if err != nil {
		b.Discard()
		return err
	}
	return b.Commit(ctx)
}

// pause tells that the webhook is paused, and why, and stores it with the progress. If that fails, both are done again.
func (m *Module) pause(ctx context.Context, t *tenants.Tenant, h *Hook, p *Progress, why string) error {
	ws, since := t.Workspace().BeyondQuota(), time.UnixMilli(cmp.Or(p.FailingSince, h.UpdatedAt))
	if m.Paused != nil {
		if err := m.Paused(ctx, t, h, since, why); err != nil {
			return err
		}
	}
	paused, err := m.Hooks.In(ws).Get(ctx, h.ID)
	if err != nil {
		return err
	}
	if !paused.Paused {
		paused.Paused, paused.Reason = true, why
	}
	p.Head, p.FailingSince, p.Tries, p.NextTry = "", 0, 0, 0
	b := ws.Batch() // a webhook that goes on without its progress would leave events out in silence
	if err := cmp.Or(m.Progress.In(ws).StageReplace(ctx, b, p), m.Hooks.In(ws).StageReplace(ctx, b, paused)); err != nil {
		b.Discard()
		return err
	}
	if err := b.Commit(ctx); err != nil {
		return err
	}
	*h = *paused
	m.Log.WarnContext(ctx, "a webhook was paused", "organization", t.Org.Slug, "webhook", h.ID, "reason", why)
	return nil
}
