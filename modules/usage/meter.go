// Package usage counts what is asked of each organization, by day and operation. Counts are kept in memory
// and added to what is stored once a minute, so that a request waits for nothing.
package usage

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/together"
	"tenantry/operation"
	"tenantry/tenants"
)

// Counts are what was asked of an operation.
type Counts struct {
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`
	Micros   int64 `json:"store_us"`
	Sent     int64 `json:"sent_bytes"`
}

func (c *Counts) add(more Counts) {
	c.Requests, c.Refused, c.Micros, c.Sent = c.Requests+more.Requests, c.Refused+more.Refused, c.Micros+more.Micros, c.Sent+more.Sent
}

func (c Counts) and(more Counts) Counts {
	c.add(more)
	return c
}

// Day is what was asked on one day, in UTC.
type Day struct {
	store.Meta
	Day        string            `json:"day" rule:"required" use:"filter" example:"2026-11-22"`
	Operations map[string]Counts `json:"operations"`
	Hours      map[string]Counts `json:"hours,omitempty"`   // "00" to "23"
	Minutes    map[string]Counts `json:"minutes,omitempty"` // "00:00", "00:05" to "23:55", of the last hour that was stored
	Documents  int64             `json:"documents"`
	Bytes      int64             `json:"bytes"`    // 0: the engine does not tell
	Measured   int64             `json:"measured"` // when documents and bytes were, Unix ms
}

// Kept is how many days are kept besides the present one.
const Kept = 90

const (
	measureEvery = time.Hour        // documents are counted that often
	measureTime  = 2 * time.Second  // which may take that long
	measureRound = 20 * time.Second // and so may that of all organizations in one round
	writeTime    = 5 * time.Second  // for one organization
	roundTime    = time.Minute      // for a round that many organizations made necessary
	tries        = 10
	flushWidth   = 16 // organizations stored at the same time
)

// How the parts of a day are named, and how long the shorter ones are.
const (
	hourLayout   = "15"
	minuteLayout = "15:04"
	minutes      = 5 * time.Minute
)

// Meter counts, stores and serves. Safe for concurrent use, by several replicas.
type Meter struct {
	kind *record.Of[Day]
	log  *slog.Logger
	now  func() time.Time

	operations []operation.Row // of the whole gateway

	most  int // of how many organizations something may wait before it is stored earlier
	begin func(what string, do func(context.Context)) bool
	early atomic.Bool // that was begun lately

	live  sync.Map // organization's number to *ledger
	kept  atomic.Int64
	flush sync.Mutex
}

// ledger has what is not stored yet of one organization.
type ledger struct {
	latest atomic.Pointer[tenants.Tenant] // as whom it was asked last; it is read anew all the time
	since  atomic.Int64                   // Unix ms; when the last round was
	known  atomic.Bool                    // whether somebody asked who is known
	rows   sync.Map                       // operation to *tally
	waits  []hour                         // what rounds before could not store, in its order; for rounds alone
}

// hour is what was counted within one, at about that time: hours that wait are few, however long they do.
type hour struct {
	at      time.Time // in UTC
	counted map[*operation.Row]Counts
}

// wait adds what a round has taken that began at that time.
func (l *ledger) wait(at time.Time, taken map[*operation.Row]Counts) {
	if n := len(l.waits); n == 0 || !l.waits[n-1].at.Truncate(time.Hour).Equal(at.Truncate(time.Hour)) {
		l.waits = append(l.waits, hour{at, taken})
		return
	}
	last := l.waits[len(l.waits)-1].counted
	for op, n := range taken {
		last[op] = n.and(last[op])
	}
}

// oldest returns since when something waits, or may.
func (l *ledger) oldest() int64 {
	if len(l.waits) > 0 {
		return l.waits[0].at.UnixMilli()
	}
	return l.since.Load()
}

func dayOf(at time.Time) string { return at.UTC().Format(time.DateOnly) }

type tally struct{ requests, refused, micros, sent atomic.Int64 }

// New returns a Meter. Where something waits of more organizations than most, begin is called to store that beside
// requests.
func New(log *slog.Logger, now func() time.Time, most int, begin func(what string, do func(context.Context)) bool) *Meter {
	return &Meter{log: log, now: now, most: most, begin: begin, kind: record.Must(record.Options[Day]{
		Traits: record.Traits{Name: "usage_day"},
		Spec: store.Spec{
			Name: "usage", Aside: true, Indexes: []store.Index{{Fields: []string{"day"}, Unique: true}}, Access: []store.Access{{Where: []string{"day"}}, {Sort: []string{"day"}}},
		},
	})}
}

// Count counts an answer. What strangers asked is stored once somebody has asked who is known, or never: they make
// no organization write. Where the organization was asked the same before it takes no lock and no memory.
func (m *Meter) Count(t *tenants.Tenant, op *operation.Row, known bool, code, sent int, inStore time.Duration) {
	if m == nil || t == nil || t.Workspace() == nil { // nobody's
		return
	}
	n := Counts{Requests: 1, Micros: inStore.Microseconds(), Sent: int64(sent)}
	if code == http.StatusForbidden || code == http.StatusTooManyRequests {
		n.Refused = 1
	}
	m.put(t, known, func(of *ledger) { of.add(op, n) })
}

// put adds to the ledger of an organization.
func (m *Meter) put(t *tenants.Tenant, known bool, add func(*ledger)) {
	for {
		found, ok := m.live.Load(t.Org.OrgID)
		if !ok {
			fresh := &ledger{}
			fresh.latest.Store(t)
			fresh.since.Store(m.now().UnixMilli())
			if found, ok = m.live.LoadOrStore(t.Org.OrgID, fresh); !ok && m.kept.Add(1) > int64(m.most) {
				m.hurry()
			}
		}
		of := found.(*ledger)
		if of.latest.Load() != t {
			of.latest.Store(t)
		}
		add(of)
		if known && !of.known.Load() {
			of.known.Store(true)
		}
		if now, _ := m.live.Load(t.Org.OrgID); now == found {
			return
		}
		rest := of.take() // a round let go of it meanwhile
		known = known || of.known.Load()
		add = func(of *ledger) { of.give(rest) }
	}
}

// Waiting returns of how many organizations something is kept in memory.
func (m *Meter) Waiting() int { return int(m.kept.Load()) }

// hurry begins rounds, until no more wait than may, unless somebody has. They take half of the time at most.
func (m *Meter) hurry() {
	if m.early.Swap(true) {
		return
	}
	m.begin("noting what was asked of many organizations", func(ctx context.Context) {
		defer m.early.Store(false)
		for m.Waiting() > m.most && ctx.Err() == nil {
			began := time.Now()
			round, cancel := context.WithTimeout(ctx, roundTime)
			m.Flush(round)
			cancel()
			select {
			case <-ctx.Done():
			case <-time.After(max(time.Second, time.Since(began))):
			}
		}
	})
}

// retire ends a ledger in which there was nothing to store. Who adds to it now finds that it has, or it is found here.
func (m *Meter) retire(t *tenants.Tenant, of *ledger) {
	if m.live.CompareAndDelete(t.Org.OrgID, of) {
		m.kept.Add(-1)
	}
	if rest := of.take(); len(rest) > 0 {
		m.put(t, of.known.Load(), func(of *ledger) { of.give(rest) })
	}
}

// Flush stores what waits. What a store does not take now waits on; it may be counted twice where the store took it and
// could not say so. Organizations on a backend that is away wait for the next round. Many are stored at the same time,
// since they share syncs, and those that have waited for longest first, so that where time is up it is not for the same
// ones each time. Where it waits of too many organizations what strangers alone asked is dropped; the others are let go
// in the next round, unless they have been asked again.
func (m *Meter) Flush(ctx context.Context) {
	m.flush.Lock()
	defer m.flush.Unlock()
	measuring, cancel := context.WithTimeout(ctx, measureRound)
	defer cancel()
	full := m.Waiting() > m.most
	if full {
		cancel() // others measure
	}
	type waiting struct {
		of    *ledger
		since int64
		last  int
	}
	var all []waiting
	m.live.Range(func(_, value any) bool {
		of := value.(*ledger)
		w := waiting{of: of, since: of.oldest()}
		if full && !of.known.Load() {
			w.last = 1 // it stays where the others make room
		}
		all = append(all, w)
		return true
	})
	slices.SortFunc(all, func(a, b waiting) int { return cmp.Or(cmp.Compare(a.last, b.last), cmp.Compare(a.since, b.since)) })
	var away sync.Map // backends
	_ = together.Each(flushWidth, len(all), func(i int) error {
		m.flushOne(ctx, measuring, all[i].of, full, &away)
		return ctx.Err()
	})
}

func (m *Meter) flushOne(ctx, measuring context.Context, of *ledger, full bool, away *sync.Map) {
	t, now := of.latest.Load(), m.now().UTC()
	since := time.UnixMilli(of.since.Swap(now.UnixMilli())).UTC()
	known := of.known.Swap(false)
	if taken := of.take(); len(taken) > 0 {
		of.wait(since, taken)
	}
	if !known { // strangers have asked, or nobody since the last round
		of.waits = slices.DeleteFunc(of.waits, func(one hour) bool { return dayOf(one.at) != dayOf(now) })
	}
	if len(of.waits) == 0 || !known && full && m.Waiting() > m.most {
		m.retire(t, of)
		return
	}
	if !known {
		return
	}
	err := ctx.Err()
	_, isAway := away.Load(t.Org.Backend)
	for err == nil && !isAway && len(of.waits) > 0 {
		next := slices.IndexFunc(of.waits, func(one hour) bool { return dayOf(one.at) != dayOf(of.waits[0].at) })
		if next < 0 {
			next = len(of.waits)
		}
		if err = m.write(ctx, measuring, t, of.waits[:next]); err == nil {
			of.waits = of.waits[next:]
		}
	}
	switch {
	case isAway, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrConflict), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		if !errors.Is(err, store.ErrConflict) {
			away.Store(t.Org.Backend, true)
		}
		of.known.Store(true)
	case err != nil: // the organization may be gone
		of.waits = nil
		m.log.WarnContext(ctx, "what was asked of an organization could not be noted", "organization", t.Org.Slug, "error", err)
	}
}

// add adds to what was counted of an operation: the requests last, since what is taken without any is left.
func (l *ledger) add(op *operation.Row, n Counts) {
	row, ok := l.rows.Load(op)
	if !ok {
		row, _ = l.rows.LoadOrStore(op, &tally{})
	}
	c := row.(*tally)
	c.refused.Add(n.Refused)
	c.micros.Add(n.Micros)
	c.sent.Add(n.Sent)
	c.requests.Add(n.Requests)
}

// take returns what was counted, and begins anew.
func (l *ledger) take() map[*operation.Row]Counts {
	taken := map[*operation.Row]Counts{}
	l.rows.Range(func(key, value any) bool {
		c := value.(*tally)
		if n := c.requests.Swap(0); n > 0 {
			taken[key.(*operation.Row)] = Counts{n, c.refused.Swap(0), c.micros.Swap(0), c.sent.Swap(0)}
		}
		return true
	})
	return taken
}

// give puts back what could not be stored.
func (l *ledger) give(taken map[*operation.Row]Counts) {
	for op, n := range taken {
		l.add(op, n)
	}
}

// write adds the counts of hours of one day. Replicas change one record, which each reads again where another
// came between. Whoever begins a day ends those that are kept no longer.
func (m *Meter) write(ctx, measuring context.Context, t *tenants.Tenant, hours []hour) error {
	ws, at := t.Workspace(), hours[0].at
	ctx, cancel := context.WithTimeout(ctx, ws.Hold()+writeTime)
	defer cancel()
	in := m.kind.In(ws)
	change := func(d *Day) error {
		for _, one := range hours {
			for op, n := range one.counted {
				d.Count(one.at, op.Name, n)
			}
		}
		if now := m.now(); now.Sub(time.UnixMilli(d.Measured)) >= measureEvery && measuring.Err() == nil {
			ctx, cancel := context.WithTimeout(measuring, measureTime)
			defer cancel()
			count := ws.Used
			if d.Measured == 0 { // once a day, so that what a killed process has not counted is found
				count = ws.Recount
			}
			if n, err := count(ctx); err == nil { // else those of before stay for an hour
				d.Documents = n.Documents
			}
			if n, err := ws.Size(ctx); err == nil {
				d.Bytes = n
			}
			if measuring.Err() == nil { // else the next round measures
				d.Measured = now.UnixMilli()
			}
		}
		return nil
	}
	for range tries {
		begun := NewDay(at)
		_, err := in.Update(ctx, begun.ID, change)
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err = change(begun); err == nil {
			err = in.Insert(ctx, begun)
		}
		if dup := new(store.DuplicateError); errors.As(err, &dup) { // another replica began it
			continue
		}
		if err == nil {
			err = m.forget(ctx, in, at)
		}
		return err
	}
	return store.ErrConflict
}

// NewDay returns the day of a time, on which nothing was asked yet.
func NewDay(at time.Time) *Day {
	d := &Day{Day: dayOf(at)}
	d.ID = hex.EncodeToString([]byte(d.Day)) + "0000"
	return d
}

// Count counts what was asked of an operation for the day, and for the hour and the minutes of a time, which is in UTC.
func (d *Day) Count(at time.Time, operation string, n Counts) {
	for _, counts := range []*map[string]Counts{&d.Operations, &d.Hours, &d.Minutes} {
		if *counts == nil {
			*counts = map[string]Counts{}
		}
	}
	d.Operations[operation] = n.and(d.Operations[operation])
	hour, minute := at.Format(hourLayout), at.Truncate(minutes).Format(minuteLayout)
	d.Hours[hour], d.Minutes[minute] = n.and(d.Hours[hour]), n.and(d.Minutes[minute])
	if ended := at.Add(-time.Hour); ended.Day() == at.Day() {
		maps.DeleteFunc(d.Minutes, func(minute string, _ Counts) bool { return minute <= ended.Truncate(minutes).Format(minuteLayout) })
	}
}

// Put stores days that an organization is to have had, which has none yet.
func (m *Meter) Put(ctx context.Context, t *tenants.Tenant, days []*Day) error {
	in := m.kind.In(t.Workspace())
	for _, d := range days {
		if err := in.Insert(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// forget ends the days that are kept no longer. Another replica may do so at the same time.
func (m *Meter) forget(ctx context.Context, in store.Collection[Day], at time.Time) error {
	old, err := in.Find(ctx, store.Query{Filter: store.Where(store.F("day"), store.OpLt, oldest(at)), LeaveOut: true})
	for i := range old {
		if gone := in.Delete(ctx, &old[i]); !errors.Is(gone, store.ErrConflict) {
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		m.log.WarnContext(ctx, "days of usage that are kept no longer could not be deleted; those who begin the next day try again", "error", err)
	}
	return nil
}

// oldest returns the first day that is kept.
func oldest(now time.Time) string { return dayOf(now.AddDate(0, 0, -Kept)) }
