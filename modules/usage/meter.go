// Package usage counts the requests of each organization by day and operation. Counts are kept in memory and added to
// the store once a minute, so that requests do not wait for it.
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

// Counts are the counts of an operation.
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

// Day is the usage of one day in UTC.
type Day struct {
	store.Meta
	Day        string            `json:"day" rule:"required" use:"filter" example:"2026-11-22"`
	Operations map[string]Counts `json:"operations"`
	Hours      map[string]Counts `json:"hours,omitempty"`   // "00" to "23"
	Minutes    map[string]Counts `json:"minutes,omitempty"` // "00:00", "00:05" to "23:55", within the last hour stored
	Documents  int64             `json:"documents"`
	Bytes      int64             `json:"bytes"`    // 0: the engine does not report it
	Measured   int64             `json:"measured"` // when documents and bytes were measured, Unix ms
}

// Kept is how many days are kept before the current one.
const Kept = 90

const (
	measureEvery = time.Hour        // interval between measurements of documents and bytes
	measureTime  = 2 * time.Second  // for one measurement
	measureRound = 20 * time.Second // for the measurements of one round
	writeTime    = 5 * time.Second  // for storing one organization
	roundTime    = time.Minute      // for an early round, because of many organizations
	tries        = 10
	flushWidth   = 16 // organizations stored at the same time
)

// Names of the parts of a day, and the length of the shorter ones.
const (
	hourLayout   = "15"
	minuteLayout = "15:04"
	minutes      = 5 * time.Minute
)

// Meter counts usage, stores it and serves it. Safe for concurrent use, by several replicas.
type Meter struct {
	kind *record.Of[Day]
	log  *slog.Logger
	now  func() time.Time

	operations []operation.Row // of the whole gateway

	most  int // organizations with unsaved counts that start an early round
	begin func(what string, do func(context.Context)) bool
	early atomic.Bool // an early round is running

	live  sync.Map // organization's number to *ledger
	kept  atomic.Int64
	flush sync.Mutex
}

// ledger holds the unsaved counts of one organization.
type ledger struct {
	latest atomic.Pointer[tenants.Tenant] // the tenant of the last request
	since  atomic.Int64                   // Unix ms of the last round
	known  atomic.Bool                    // whether a known caller made a request
	rows   sync.Map                       // operation to *tally
	waits  []hour                         // what earlier rounds could not store, in order; only rounds use it
}

// hour holds the counts of one hour. There are few of them, however long they wait.
type hour struct {
	at      time.Time // in UTC
	counted map[*operation.Row]Counts
}

// wait adds the counts of a round that began at that time.
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

// oldest returns the time in Unix ms since when counts wait.
func (l *ledger) oldest() int64 {
	if len(l.waits) > 0 {
		return l.waits[0].at.UnixMilli()
	}
	return l.since.Load()
}

func dayOf(at time.Time) string { return at.UTC().Format(time.DateOnly) }

type tally struct{ requests, refused, micros, sent atomic.Int64 }

// New returns a Meter. If more organizations than most have unsaved counts, it calls begin to store them in the
// background.
func New(
	log *slog.Logger, now func() time.Time, most int, begin func(what string, do func(context.Context)) bool,
) *Meter {
	return &Meter{log: log, now: now, most: most, begin: begin, kind: record.Must(record.Options[Day]{
		Traits: record.Traits{Name: "usage_day"},
		Spec: store.Spec{
			Name: "usage", Uncounted: true, Indexes: []store.Index{{
				Fields: []string{"day"}, Unique: true,
			}}, Access: []store.Access{
				{Where: []string{"day"}}, {Sort: []string{"day"}},
			},
		},
	})}
}

// Count counts an answer. Requests of unknown callers are stored only together with those of a known one, so that
// strangers cannot make an organization write. If the operation was counted before, Count takes no lock and allocates
// nothing.
func (m *Meter) Count(t *tenants.Tenant, op *operation.Row, known bool, code, sent int, inStore time.Duration) {
	if m == nil || t == nil || t.Workspace() == nil { // an unknown host
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
				m.flushEarly()
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
		rest := of.take() // a round has removed the ledger meanwhile
		known = known || of.known.Load()
		add = func(of *ledger) { of.give(rest) }
	}
}

// Waiting returns how many organizations have unsaved counts.
func (m *Meter) Waiting() int { return int(m.kept.Load()) }

// flushEarly begins rounds until no more than most organizations wait, unless it is already running. Rounds take at
// most half of the time.
func (m *Meter) flushEarly() {
	if m.early.Swap(true) {
		return
	}
	m.begin("storing usage of many organizations", func(ctx context.Context) {
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

// retire removes a ledger without counts. Counts that are added at the same time are moved to a new one.
func (m *Meter) retire(t *tenants.Tenant, of *ledger) {
	if m.live.CompareAndDelete(t.Org.OrgID, of) {
		m.kept.Add(-1)
	}
	if rest := of.take(); len(rest) > 0 {
		m.put(t, of.known.Load(), func(of *ledger) { of.give(rest) })
	}
}

// Flush stores the waiting counts. Counts that a store refuses wait for the next round; they may be counted twice if
// the store took them without reporting success. Organizations on an unavailable backend wait for the next round. Many
// are stored at the same time because they share syncs, the longest waiting first, so that a round that runs out of
// time does not always miss the same ones. If too many organizations wait, counts of unknown callers alone are
// dropped; the other ledgers are removed in the next round unless they are used again.
func (m *Meter) Flush(ctx context.Context) {
	m.flush.Lock()
	defer m.flush.Unlock()
	measuring, cancel := context.WithTimeout(ctx, measureRound)
	defer cancel()
	full := m.Waiting() > m.most
	if full {
		cancel() // skip measurements
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
			w.last = 1 // kept if storing the others makes room
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
	if !known { // no known caller since the last round
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
	_, isAway := away.Load(t.Org.Home())
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
			away.Store(t.Org.Home(), true)
		}
		of.known.Store(true)
	case err != nil: // the organization may be gone
		of.waits = nil
		m.log.WarnContext(ctx, "usage of an organization could not be stored", "organization", t.Org.Slug, "error", err)
	}
}

// add adds to the counts of an operation; requests last, because take skips counts without requests.
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

// take returns the counts and resets them.
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

// give adds counts that could not be stored.
func (l *ledger) give(taken map[*operation.Row]Counts) {
	for op, n := range taken {
		l.add(op, n)
	}
}

// write adds the counts of hours of one day to the stored day. Replicas change the same record, so a conflict repeats
// the change. The replica that begins a day deletes expired ones.
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
			if d.Measured == 0 { // once a day, to correct counts that a killed process has lost
				count = ws.Recount
			}
			if n, err := count(ctx); err == nil { // otherwise the previous counts stay for an hour
				d.Documents = n.Documents
			}
			if n, err := ws.Size(ctx); err == nil {
				d.Bytes = n
			}
			if measuring.Err() == nil { // otherwise the next round measures
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
		if dup := new(store.DuplicateError); errors.As(err, &dup) { // another replica has begun the day
			continue
		}
		if err == nil {
			err = m.forget(ctx, in, at)
		}
		return err
	}
	return store.ErrConflict
}

// NewDay returns the day of a time without counts.
func NewDay(at time.Time) *Day {
	d := &Day{Day: dayOf(at)}
	d.ID = hex.EncodeToString([]byte(d.Day)) + "0000"
	return d
}

// Count adds to the day's counts of an operation, and to those of the hour and the minutes of a time in UTC.
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

// Put stores days of an organization that has none yet.
func (m *Meter) Put(ctx context.Context, t *tenants.Tenant, days []*Day) error {
	in := m.kind.In(t.Workspace())
	for _, d := range days {
		if err := in.Insert(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// forget deletes expired days. Another replica may do so at the same time.
func (m *Meter) forget(ctx context.Context, in store.Collection[Day], at time.Time) error {
	old, err := in.Find(ctx, store.Query{Filter: store.Where(store.F("day"), store.OpLt, oldest(at)), LeaveOut: true})
	for i := range old {
		if gone := in.Delete(ctx, &old[i]); !errors.Is(gone, store.ErrConflict) {
			err = errors.Join(err, gone)
		}
	}
	if err != nil {
		m.log.WarnContext(ctx, "expired days of usage could not be deleted; the next day tries again", "error", err)
	}
	return nil
}

// oldest returns the first day that is kept.
func oldest(now time.Time) string { return dayOf(now.AddDate(0, 0, -Kept)) }
