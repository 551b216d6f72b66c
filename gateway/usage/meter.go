// Package usage counts what is asked of each organization, by day and operation. Counts are kept in memory
// and added to what is stored once a minute, so that a request waits for nothing.
package usage

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/api"
	"tenantry/backends/resource"
	"tenantry/backends/store"
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
	tries        = 10
)

// How the parts of a day are named, and how long the shorter ones are.
const (
	hourLayout   = "15"
	minuteLayout = "15:04"
	minutes      = 5 * time.Minute
)

// Meter counts, stores and serves. Safe for concurrent use, by several replicas.
type Meter struct {
	kind *resource.Of[Day]
	log  *slog.Logger
	now  func() time.Time

	operations []api.Operation // of the whole gateway

	live  sync.Map // organization's number to *ledger
	flush sync.Mutex
}

// ledger has what is not stored yet of one organization.
type ledger struct {
	latest atomic.Pointer[tenants.Tenant] // as whom it was asked last; it is read anew all the time
	since  atomic.Int64                   // Unix ms
	known  atomic.Bool                    // whether somebody asked who is known
	rows   sync.Map                       // operation to *tally
}

type tally struct{ requests, refused, micros, sent atomic.Int64 }

// New returns a Meter.
func New(log *slog.Logger, now func() time.Time) *Meter {
	return &Meter{log: log, now: now, kind: resource.Must(resource.Options[Day]{
		Traits: resource.Traits{Name: "usage_day"},
		Spec: store.Spec{
			Name: "usage", Aside: true, Indexes: []store.Index{{Fields: []string{"day"}, Unique: true}}, Access: []store.Access{{Where: []string{"day"}}, {Sort: []string{"day"}}},
		},
	})}
}

// Count counts an answer. What strangers asked is stored once somebody has asked who is known, or never: they make
// no organization write. Where the organization was asked the same before it takes no lock and no memory.
func (m *Meter) Count(t *tenants.Tenant, op *api.Operation, known bool, code, sent int, inStore time.Duration) {
	if m == nil || t == nil || t.Workspace() == nil { // nobody's
		return
	}
	found, ok := m.live.Load(t.Org.OrgID)
	if !ok {
		fresh := &ledger{}
		fresh.latest.Store(t)
		fresh.since.Store(m.now().UnixMilli())
		found, _ = m.live.LoadOrStore(t.Org.OrgID, fresh)
	}
	of := found.(*ledger)
	if of.latest.Load() != t {
		of.latest.Store(t)
	}
	n := Counts{Requests: 1, Micros: inStore.Microseconds(), Sent: int64(sent)}
	if code == http.StatusForbidden || code == http.StatusTooManyRequests {
		n.Refused = 1
	}
	of.add(op, n)
	if known && !of.known.Load() {
		of.known.Store(true)
	}
}

// Flush stores what waits. What a store does not take now waits on; it may be counted twice where the
// store took it and could not say so. Organizations on a backend that is away wait for the next round.
func (m *Meter) Flush(ctx context.Context) {
	m.flush.Lock()
	defer m.flush.Unlock()
	measuring, cancel := context.WithTimeout(ctx, measureRound)
	defer cancel()
	away := map[string]bool{}
	m.live.Range(func(key, value any) bool {
		of := value.(*ledger)
		t := of.latest.Load()
		since, now := time.UnixMilli(of.since.Load()).UTC(), m.now().UTC()
		known, taken := of.known.Swap(false), of.take()
		if len(taken) == 0 || !known && since.YearDay() != now.YearDay() { // nobody has asked since the last round, or strangers alone
			m.live.Delete(key)
			return ctx.Err() == nil
		}
		err := ctx.Err()
		if known && err == nil && !away[t.Org.Backend] {
			err = m.write(ctx, measuring, t, since, taken)
		}
		switch {
		case !known:
			of.give(taken)
		case away[t.Org.Backend], errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrConflict), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
			away[t.Org.Backend] = !errors.Is(err, store.ErrConflict)
			of.give(taken)
			of.known.Store(true)
		default:
			of.since.Store(now.UnixMilli())
			if err != nil { // the organization may be gone
				m.log.WarnContext(ctx, "what was asked of an organization could not be noted", "organization", t.Org.Slug, "error", err)
			}
		}
		return ctx.Err() == nil
	})
}

// add adds to what was counted of an operation.
func (l *ledger) add(op *api.Operation, n Counts) {
	row, ok := l.rows.Load(op)
	if !ok {
		row, _ = l.rows.LoadOrStore(op, &tally{})
	}
	c := row.(*tally)
	c.requests.Add(n.Requests)
	c.refused.Add(n.Refused)
	c.micros.Add(n.Micros)
	c.sent.Add(n.Sent)
}

// take returns what was counted, and begins anew.
func (l *ledger) take() map[*api.Operation]Counts {
	taken := map[*api.Operation]Counts{}
	l.rows.Range(func(key, value any) bool {
		c := value.(*tally)
		if n := c.requests.Swap(0); n > 0 {
			taken[key.(*api.Operation)] = Counts{n, c.refused.Swap(0), c.micros.Swap(0), c.sent.Swap(0)}
		}
		return true
	})
	return taken
}

// give puts back what could not be stored.
func (l *ledger) give(taken map[*api.Operation]Counts) {
	for op, n := range taken {
		l.add(op, n)
	}
}

// write adds counts to those of a day. Replicas change one record, which each reads again where another
// came between. Whoever begins a day ends those that are kept no longer.
func (m *Meter) write(ctx, measuring context.Context, t *tenants.Tenant, at time.Time, counted map[*api.Operation]Counts) error {
	ws := t.Workspace()
	ctx, cancel := context.WithTimeout(ctx, ws.Hold()+writeTime)
	defer cancel()
	in, day := m.kind.In(ws), at.Format(time.DateOnly)
	id := hex.EncodeToString([]byte(day)) + "0000"
	change := func(d *Day) error {
		if d.Operations == nil {
			d.Operations = map[string]Counts{}
		}
		var all Counts
		for op, n := range counted {
			d.Operations[op.Name] = n.and(d.Operations[op.Name])
			all.add(n)
		}
		d.note(at, all)
		if now := m.now(); now.Sub(time.UnixMilli(d.Measured)) >= measureEvery && measuring.Err() == nil {
			ctx, cancel := context.WithTimeout(measuring, measureTime)
			defer cancel()
			if n, err := ws.Documents(ctx); err == nil { // else those of before stay for an hour
				d.Documents = n
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
		_, err := in.Update(ctx, id, change)
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		begun := &Day{Day: day}
		begun.ID = id
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

// note counts for the hour and the minutes of a time.
func (d *Day) note(at time.Time, n Counts) {
	if d.Hours == nil {
		d.Hours = map[string]Counts{}
	}
	if d.Minutes == nil {
		d.Minutes = map[string]Counts{}
	}
	hour, minute := at.Format(hourLayout), at.Truncate(minutes).Format(minuteLayout)
	d.Hours[hour], d.Minutes[minute] = n.and(d.Hours[hour]), n.and(d.Minutes[minute])
	if ended := at.Add(-time.Hour); ended.Day() == at.Day() {
		maps.DeleteFunc(d.Minutes, func(minute string, _ Counts) bool { return minute <= ended.Truncate(minutes).Format(minuteLayout) })
	}
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
func oldest(now time.Time) string { return now.UTC().AddDate(0, 0, -Kept).Format(time.DateOnly) }
