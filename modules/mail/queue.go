package mail

import (
	"context"
	"errors"
	"sync"
	"time"

	"tenantry/tenants"
)

// maxQueued bounds the organizations of a queue. Those that are left out are found by the next look at all.
const maxQueued = 100_000

// queue knows which organizations have mails that this process may send, and from when.
type queue struct {
	mu    sync.Mutex
	due   map[int64]time.Time
	busy  map[int64]bool // whose turn is being taken, so that no two senders of the process count against one limit
	woken chan struct{}
}

// put notes that an organization has a mail to send at that time, unless an earlier one is known.
func (q *queue) put(org int64, at time.Time) {
	q.mu.Lock()
	if known, is := q.due[org]; (!is || at.Before(known)) && (is || len(q.due) < maxQueued) {
		q.due[org] = at
	}
	q.mu.Unlock()
	q.wake()
}

// wake ends the wait of one sender.
func (q *queue) wake() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

// take returns the organization that has waited longest and forgets it until done is called. Without one that is due, it
// returns when the next is, if any.
func (q *queue) take(now time.Time) (org int64, next time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for o, at := range q.due {
		if !q.busy[o] && (org == 0 || at.Before(next)) {
			org, next = o, at
		}
	}
	if org == 0 || next.After(now) {
		return 0, next, false
	}
	delete(q.due, org)
	q.busy[org] = true
	return org, next, true
}

// done ends the turn of an organization that take returned.
func (q *queue) done(org int64) {
	q.mu.Lock()
	delete(q.busy, org)
	_, again := q.due[org]
	q.mu.Unlock()
	if again {
		q.wake()
	}
}

// Wake tells the sender of this process that mails of the organization were stored.
func (m *Module) Wake(t *tenants.Tenant) {
	if m.On() {
		m.queue.put(t.Org.OrgID, m.Now())
	}
}

// idle is how long the sender waits without a call of Wake, because the clock of the settings may be changed.
const idle = 15 * time.Second

// Serve sends mails of this process until ctx ends: one turn of an organization after another. find returns an
// organization; its error tenants.ErrUnknownTenant means that it has no mails to send.
func (m *Module) Serve(ctx context.Context, find func(context.Context, int64) (*tenants.Tenant, error)) {
	for ctx.Err() == nil {
		worked, next := m.Work(ctx, find)
		if worked {
			continue
		}
		wait := idle
		if !next.IsZero() {
			wait = max(min(idle, next.Sub(m.Now())), time.Millisecond)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-m.queue.woken:
		}
		timer.Stop()
	}
}

// Work takes one turn of an organization that has mails due, and reports whether there was one. next is when the next is
// due otherwise; zero: nothing is known to wait.
func (m *Module) Work(ctx context.Context, find func(context.Context, int64) (*tenants.Tenant, error)) (worked bool, next time.Time) {
	org, next, ok := m.queue.take(m.Now())
	if !ok {
		return false, next
	}
	m.queue.wake() // another sender, for other organizations
	defer m.queue.done(org)
	turn, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	t, err := find(turn, org)
	if err == nil {
		next, err = m.Turn(turn, t)
	}
	switch {
	case errors.Is(err, tenants.ErrUnknownTenant):
		return true, time.Time{}
	case err != nil:
		if ctx.Err() == nil {
			m.Log.WarnContext(ctx, "mails of an organization could not be sent and will be retried", "org", org, "error", err)
		}
		m.queue.put(org, m.Now().Add(afterError))
	case !next.IsZero():
		m.queue.put(org, next)
	}
	return true, next
}

// Look puts an organization into the queue if it has mails that wait.
func (m *Module) Look(ctx context.Context, t *tenants.Tenant) error {
	next, err := m.nextDue(ctx, t)
	if err == nil && !next.IsZero() {
		m.queue.put(t.Org.OrgID, next)
	}
	return err
}

const (
	turnTimeout = 3 * time.Minute
	afterError  = 10 * time.Second
)

// away remembers that the mail server cannot be used, so that not every mail waits for its timeout.
type away struct {
	mu       sync.Mutex
	until    time.Time
	failures int
}

// Bounds of the wait for a server that is away.
const (
	shortestAway = 5 * time.Second
	longestAway  = 5 * time.Minute
)

// paused returns until when the server is left alone; zero: it is not.
func (a *away) paused(now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.until) {
		return a.until
	}
	return time.Time{}
}

// failed notes that the server could not be used, and returns until when it is left alone, and whether it worked before.
func (a *away) failed(now time.Time) (until time.Time, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	first = a.failures == 0
	a.until = now.Add(min(longestAway, shortestAway<<min(a.failures, 10)))
	a.failures++
	return a.until, first
}

// works notes that the server works, and returns whether it was away.
func (a *away) works() (was bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was = a.failures > 0
	a.failures, a.until = 0, time.Time{}
	return was
}
