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
	mostWaiting = 1000        // events that wait, before no more are read
	notesPages  = 20          // pages of notes that are looked through at once for what is to be sent again
	mostRefused = 4           // records of which an event was refused, of roundLanes
	mostDue     = 400         // events that waited, so that there is room for others
	roundLanes  = perPair     // tries under way at once; what happened to one record is sent one by one
	roundAge    = time.Second // after this no further try of the round begins, because rights may have changed
	giveUpAfter = 3 * 24 * time.Hour
	outageBegan = time.Minute      // before AwaySince at most: the round before, and clocks that differ
	longestRest = 10 * time.Minute // of a receiver that accepts nothing, while there is what it has not refused
	refusedRest = 30 * time.Second // of one that is there, and refuses all that it was sent
	shortRest   = time.Second      // after a round that sent only what was refused before, and was accepted nothing of it
	skipSaved   = time.Minute      // how often it is stored that events were passed over
)

// pauses are the times between tries within a round. They are short, because the other events of a lane wait.
func pauses() []time.Duration { return []time.Duration{100 * time.Millisecond, 400 * time.Millisecond} }

// backoff returns how long to wait after so many rounds in which an event was not accepted.
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
	p     *Progress
	s     signer
	began time.Time
	to    string

	items []item          // what is sent; each is written by its lane alone
	due   map[string]bool // what waited and was due, by event
	added []Waiting       // what was read, and waits for an earlier event of its record
	next  Progress        // where the round ends: the cursor, and what is sent again
	more  bool            // whether there is more to read

	failed atomic.Int64 // tries in a row that were neither accepted nor refused, of all lanes
	gone   atomic.Bool
	wait   atomic.Int64 // the longest time that the receiver asked for, in nanoseconds
}

// item is an event of a round, and what came of it.
type item struct {
	outcome
	event Event
	waits Waiting   // what is known from rounds before
	first time.Time // of the first try
	tries int       // of this round
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
		now := m.Now()
		switch next := p.next(); {
		case p.NextTry > now.UnixMilli():
			return time.UnixMilli(p.NextTry), nil
		case !more && next == 0:
			return time.Time{}, nil
		case !more && next > now.UnixMilli():
			return time.UnixMilli(next), nil
		case time.Since(began) > lookEvery:
			return now, nil
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

// oneRound sends what is due, and stores what came of it. It reports whether there may be more to read.
func (m *Module) oneRound(ctx context.Context, t *tenants.Tenant, h *Hook, p *Progress) (more bool, err error) {
	who, err := m.Accounts.AccountPrincipal(ctx, t, h.Account)
	if errors.Is(err, tenants.ErrDenied) {
		return false, m.pause(ctx, t, h, p, accountGone)
	}
	if err != nil {
		return false, err
	}
	r := &round{m: m, t: t, h: h, p: p, to: receiver(h.URL)}
	err = r.read(ctx, who)
	lost, ok := errors.AsType[*lostError](err)
	if ok && p.Cursor != "" {
		_, err = m.Events.Read(ctx, t, who, nil, p.Cursor, 1) // the cursor may be lost, too
	}
	switch {
	case isGone(err):
		return false, m.pause(ctx, t, h, p, logGone)
	case ok:
		return false, m.pause(ctx, t, h, p, waitGone, lost.ids...)
	}
	if err != nil {
		return false, err
	}
	if len(r.items) == 0 {
		if len(r.due) == 0 && len(r.added) == 0 && p.AgainFrom == r.next.AgainFrom && p.AgainAfter == r.next.AgainAfter {
			return r.more, m.pass(ctx, t, h, p, r.next.Cursor)
		}
		r.settle()
		return r.more, m.Progress.In(t.Workspace().BeyondQuota()).Replace(ctx, p)
	}
	r.began = time.Now()
	if r.s, err = m.signerOf(ctx, t, h); err != nil {
		return false, err
	}
	r.order()
	r.send(ctx)
	if !slices.ContainsFunc(r.items, func(i item) bool { return i.tries > 0 }) {
		return true, ctx.Err()
	}
	r.settle()
	if err := m.save(ctx, t, h, p, r.items); err != nil {
		return false, err
	}
	switch {
	case r.gone.Load():
		return false, m.pause(ctx, t, h, p, receiverGone)
	case slices.ContainsFunc(r.items, func(i item) bool {
		return i.tries > 0 && !i.accepted() && m.Now().UnixMilli()-i.waits.Since >= giveUpAfter.Milliseconds()
	}):
		return false, m.pause(ctx, t, h, p, receiverAway)
	}
	return r.more, nil
}

// order has the events of each record in the order of the log, and records of which nothing was refused before others. While
// the receiver accepts nothing, chance decides among them, so that what it would accept is found.
func (r *round) order() {
	slices.SortFunc(r.items, func(a, b item) int { return cmp.Compare(position(a.event.ID), position(b.event.ID)) })
	rank, seed := map[string]uint64{}, maphash.MakeSeed()
	for _, i := range r.items {
		if _, known := rank[i.event.Record]; known {
			continue
		}
		rank[i.event.Record] = uint64(min(i.waits.Tries, 1)) << 32
		if r.p.Tries > 0 {
			rank[i.event.Record] += maphash.String(seed, i.event.Record) >> 32
		}
	}
	slices.SortStableFunc(r.items, func(a, b item) int { return cmp.Compare(rank[a.event.Record], rank[b.event.Record]) })
}

// send sends the events in lanes. What happened to one record is in one lane, and in its order.
func (r *round) send(ctx context.Context) {
	var lanes [roundLanes][]*item
	seed := maphash.MakeSeed()
	for i := range r.items {
		n := maphash.String(seed, r.items[i].event.Record) % roundLanes
		lanes[n] = append(lanes[n], &r.items[i])
	}
	var sending sync.WaitGroup
	for _, lane := range lanes {
		if len(lane) > 0 {
			sending.Go(func() { r.lane(ctx, lane) })
		}
	}
	sending.Wait()
}

// lane sends events one after the other. After a failure it leaves out what happened to the same record later.
func (r *round) lane(ctx context.Context, lane []*item) {
	leave, err := r.m.enter(ctx, r.t.Org.OrgID, r.to)
	if err != nil {
		return
	}
	defer leave()
	stuck := map[string]bool{}
	for _, i := range lane {
		if stuck[i.event.Record] {
			continue
		}
		if r.over(ctx) {
			return
		}
		stuck[i.event.Record] = !r.one(ctx, i)
	}
}

// over reports whether no further try of the round may begin.
func (r *round) over(ctx context.Context) bool {
	return ctx.Err() != nil || time.Since(r.began) > roundAge || r.gone.Load() || r.wait.Load() > 0 || r.failed.Load() >= 2*roundLanes
}

// one tries to deliver an event, a few times.
func (r *round) one(ctx context.Context, into *item) bool {
	for n := 0; ; n++ {
		o := r.m.try(ctx, r.h, r.s, &into.event)
		if ctx.Err() != nil && !o.accepted() { // this process ends, or has lost the webhook
			return false
		}
		r.m.count(&o)
		if into.outcome = o; into.tries == 0 {
			into.first = o.at
		}
		into.tries++
		if o.accepted() {
			r.failed.Store(0)
			return true
		}
		if !o.refused() {
			r.failed.Add(1)
		}
		if o.gone {
			r.gone.Store(true)
		}
		if o.wait > 0 {
			for was := r.wait.Load(); int64(o.wait) > was && !r.wait.CompareAndSwap(was, int64(o.wait)); was = r.wait.Load() {
			}
		}
		if n >= len(pauses()) || o.refused() || r.over(ctx) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pauses()[n]):
		}
	}
}

// settle moves the progress on by what came of the round.
func (r *round) settle() {
	p, now := r.p, r.m.Now()
	waiting := slices.DeleteFunc(slices.Clone(p.Waiting), func(w Waiting) bool { return r.due[w.ID] })
	waiting = append(waiting, r.added...)
	accepted, fresh, rest := false, false, refusedRest
	for i := range r.items {
		one := &r.items[i]
		if one.tries > 0 && one.accepted() {
			accepted = true
			continue
		}
		if w := &one.waits; one.tries > 0 {
			if fresh = fresh || w.Tries == 0; !one.refused() {
				rest = longestRest
			}
			w.Since, w.Tries = cmp.Or(w.Since, now.UnixMilli()), w.Tries+1
			w.Next = now.Add(backoff(w.Tries)).UnixMilli()
		}
		waiting = append(waiting, one.waits)
	}
	p.Waiting, p.Cursor = waiting, r.next.Cursor
	p.AgainAfter = r.next.AgainAfter
	if p.sort(); r.next.AgainFrom < p.AgainFrom {
		p.sentAgain()
	}
	r.plan(now, accepted, fresh, rest)
}

// plan says when the next round may begin. An event that is refused while others are accepted waits alone; a receiver that
// accepts nothing of what is new to it is left alone for a time, at most for rest. In each lane what is new comes first, so if
// a round is cut short, some of it was tried.
func (r *round) plan(now time.Time, accepted, fresh bool, rest time.Duration) {
	p := r.p
	switch {
	case accepted:
		p.answered()
	case fresh:
		p.AwaySince, p.Tries = cmp.Or(p.AwaySince, now.UnixMilli()), p.Tries+1
		p.NextTry = now.Add(min(backoff(p.Tries), rest)).UnixMilli()
	case slices.ContainsFunc(r.items, func(i item) bool { return i.tries > 0 }):
		p.NextTry = now.Add(shortRest).UnixMilli()
	}
	if wait := time.Duration(r.wait.Load()); wait > 0 {
		p.NextTry = max(p.NextTry, now.Add(wait).UnixMilli())
	}
}

// saveTimeout bounds storing what came of a round, also when this process ends.
const saveTimeout = 5 * time.Second

// save stores the notes of a round together with the progress. Error: store.ErrConflict if somebody else has changed the
// progress; the events are sent again then.
func (m *Module) save(ctx context.Context, t *tenants.Tenant, h *Hook, p *Progress, items []item) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	ws := t.Workspace().BeyondQuota()
	notes := m.Deliveries.In(ws)
	var ids []string
	for i := range items {
		if items[i].tries > 0 {
			ids = append(ids, deliveryID(h.ID, items[i].event.ID))
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
	for i := range items {
		one := &items[i]
		if one.tries == 0 {
			continue
		}
		id := deliveryID(h.ID, one.event.ID)
		d := known[id]
		if d == nil {
			d = &Delivery{Meta: store.Meta{ID: id, CreatedAt: one.first.UnixMilli()}, Webhook: h.ID, Event: one.event}
			added = append(added, d)
		} else {
			d.Event, changed = one.event, append(changed, d)
		}
		d.Tries += one.tries - 1
		d.note(&one.outcome)
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

// pause tells that the webhook is paused, and why, and stores it with the progress, without the events that were lost. If
// that fails, both are done again.
func (m *Module) pause(ctx context.Context, t *tenants.Tenant, h *Hook, p *Progress, why string, lost ...string) error {
	ws := t.Workspace().BeyondQuota()
	paused, err := m.Hooks.In(ws).Get(ctx, h.ID)
	if err != nil {
		return err
	}
	if paused.URL != h.URL && (why == receiverGone || why == receiverAway) {
		return nil // it was the receiver at the former address
	}
	if m.Paused != nil {
		since, _ := p.failing()
		if err := m.Paused(ctx, t, h, time.UnixMilli(cmp.Or(since, h.UpdatedAt)), why); err != nil {
			return err
		}
	}
	if !paused.Paused {
		paused.Paused, paused.Reason = true, why
	}
	if p.hurry(); why == logGone {
		*p = Progress{Meta: p.Meta}
	}
	p.forget(lost)
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
