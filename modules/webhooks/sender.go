package webhooks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/tenants"
)

// How often this process looks for what to send, besides being woken by what it does itself.
const (
	tick       = 500 * time.Millisecond // for tries that are due
	lookEvery  = 2 * time.Second        // for organizations with webhooks, and for events of other processes
	idleLook   = 10 * time.Second       // for events of other processes, where nothing has happened for long
	ownLook    = time.Minute            // for events of this process alone, of which it is told
	idleAfter  = 10 * time.Minute
	holdFor    = 10 * time.Second // the lease of a process that sends
	restAfter  = 20 * time.Millisecond
	workLimit  = 5 * time.Minute // for one organization at a time
	keepNotes  = 7 * 24 * time.Hour
	forgetting = 500 // notes that are removed at once
	trimFor    = 3 * time.Second
)

// sending is what this process knows of an organization that has webhooks.
type sending struct {
	org  tenants.Organization
	busy bool
	// news: something happened, or may have. next is when to look without news.
	news bool
	next time.Time // by the clock of Deps.Now; zero: only if there is news
	look time.Time // by the clock of the machine
	last time.Time // when there was something to send
}

// Start sends in the background until work is closed.
func (m *Module) Start(work *background.Work) {
	m.Events.ListenAll(m.note)
	work.Go("sending to webhooks", func(ctx context.Context) { m.run(ctx, work) })
}

// note notes that events of the organization were logged. It does nothing for organizations without webhooks.
func (m *Module) note(org int64) {
	m.mu.Lock()
	known := m.orgs[org]
	if known != nil {
		known.news = true
	}
	m.mu.Unlock()
	if known != nil {
		m.rouse()
	}
}

// look has this process look for webhooks of the organization at once.
func (m *Module) look(org int64) {
	m.mu.Lock()
	if m.orgs[org] == nil {
		m.orgs[org] = &sending{org: tenants.Organization{OrgID: org}}
	}
	m.orgs[org].news = true
	m.mu.Unlock()
	m.rouse()
}

func (m *Module) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run has organizations worked on that may have something to send.
func (m *Module) run(ctx context.Context, work *background.Work) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var looked time.Time
	for {
		if time.Since(looked) >= lookEvery || m.unknown() {
			if err := m.refresh(ctx); err != nil && ctx.Err() == nil {
				m.Log.WarnContext(ctx, "organizations with webhooks could not be found and will be looked for again", "error", err)
			}
			looked = time.Now()
		}
		for _, s := range m.due() {
			if !work.Go("sending to webhooks of an organization", func(ctx context.Context) { m.work(ctx, s) }) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-m.wake:
		}
	}
}

// unknown reports whether there are organizations of which only the number is known.
func (m *Module) unknown() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.orgs {
		if s.org.Slug == "" {
			return true
		}
	}
	return false
}

// refresh reads which organizations have webhooks.
func (m *Module) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	found, err := m.Directory.Sending(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[int64]bool{}
	for i := range found {
		org := &found[i]
		there[org.OrgID] = true
		if s := m.orgs[org.OrgID]; s != nil {
			s.org = *org
		} else {
			m.orgs[org.OrgID] = &sending{org: *org, news: true}
		}
	}
	for number, s := range m.orgs {
		if !there[number] && !s.busy {
			delete(m.orgs, number)
		}
	}
	return nil
}

// due returns the organizations to work on now, and marks them busy.
func (m *Module) due() (all []*sending) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, s := range m.orgs {
		if s.busy || s.org.Slug == "" {
			continue
		}
		retry := !s.next.IsZero() && !m.Now().Before(s.next)
		if s.news || retry || !now.Before(s.look) {
			if s.news || retry {
				s.last = now
			}
			s.busy, s.news = true, false
			all = append(all, s)
		}
	}
	return all
}

// work sends what waits for the webhooks of an organization.
func (m *Module) work(ctx context.Context, s *sending) {
	m.mu.Lock()
	slug, number := s.org.Slug, s.org.OrgID
	m.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
	var next time.Time
	var sent bool
	look := ownLook
	err := background.Try(func() error {
		t, err := m.Directory.BySlug(limited, slug)
		if err != nil || t.Org.State != tenants.Active {
			return err
		}
		if m.Shared || t.Workspace().Remote() {
			look = lookEvery
		}
		next, sent, err = m.serve(limited, t, number)
		return err
	})
	if err != nil && ctx.Err() == nil && !errors.Is(err, tenants.ErrUnknownTenant) {
		m.Log.WarnContext(ctx, "events could not be sent to webhooks and will be retried", "organization", slug, "error", err)
	}
	if retry := m.Now().Add(lookEvery); err != nil && (next.IsZero() || retry.Before(next)) {
		next = retry // other webhooks of the organization may go on sooner
	}
	select { // so that what happens in quick succession is read together
	case <-time.After(restAfter):
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if sent || s.last.IsZero() {
		s.last = now
	}
	if now.Sub(s.last) > idleAfter {
		look = max(look, idleLook)
	}
	s.busy, s.next, s.look = false, next, now.Add(look)
	if s.news || !next.IsZero() && !next.After(m.Now()) {
		m.rouse()
	}
}

// serve sends what waits for the webhooks of an organization. It returns when the next try is due; zero: there is none.
// sent: there may have been something of other processes.
func (m *Module) serve(ctx context.Context, t *tenants.Tenant, number int64) (next time.Time, sent bool, err error) {
	hooks, err := m.Hooks.In(t.Workspace()).Find(ctx, store.Query{Limit: mostHooks + 1})
	if err != nil {
		return next, false, err
	}
	if len(hooks) == 0 {
		return next, false, m.Directory.ForgetSending(ctx, &t.Org)
	}
	var ready []*Hook
	for i := range hooks {
		if _, idle := hooks[i].idle(); !idle {
			ready = append(ready, &hooks[i])
		}
	}
	if !m.Shared {
		next, err = m.all(ctx, t, ready)
		return next, false, err
	}
	waits, err := m.waits(ctx, t, ready)
	if err != nil || !waits {
		return next, false, err
	}
	held, err := m.Directory.HoldChore(ctx, chore(number), holdFor, func(ctx context.Context) error {
		next, err = m.all(ctx, t, ready)
		return err
	})
	if !held {
		next = m.Now().Add(lookEvery)
	}
	return next, held, err
}

// chore returns the identifier of the chore of sending to the webhooks of an organization.
func chore(org int64) string { return fmt.Sprintf("7765626%017x", org) }

// waits reports whether something may have to be sent, without sending it. Other processes may be doing that.
func (m *Module) waits(ctx context.Context, t *tenants.Tenant, hooks []*Hook) (bool, error) {
	for _, h := range hooks {
		p, err := m.Progress.In(t.Workspace()).Get(ctx, h.ID)
		if errors.Is(err, store.ErrNotFound) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if p.NextTry > m.Now().UnixMilli() {
			continue
		}
		due, _ := p.due(m.Now().UnixMilli())
		if p.Cursor == "" || len(due) > 0 || p.AgainFrom > 0 {
			return true, nil
		}
		who, err := m.Accounts.AccountPrincipal(ctx, t, h.Account)
		if errors.Is(err, tenants.ErrDenied) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		r := &round{m: m, t: t, h: h, p: p}
		err = r.read(ctx, who)
		if isGone(err) || len(r.items) > 0 || len(r.added) > 0 {
			return true, nil
		}
		if err == nil {
			err = m.pass(ctx, t, h, p, r.next.Cursor)
		}
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return false, err
		}
	}
	return false, nil
}

// all sends to the webhooks at the same time. It returns when the next try is due; zero: there is none.
func (m *Module) all(ctx context.Context, t *tenants.Tenant, hooks []*Hook) (next time.Time, err error) {
	var mu sync.Mutex
	var sending sync.WaitGroup
	for _, h := range hooks {
		sending.Go(func() {
			var at time.Time
			failed := background.Try(func() (err error) {
				if err := m.working.Enter(ctx, t.Org.OrgID); err != nil {
					return err
				}
				defer m.working.Leave(t.Org.OrgID)
				at, err = m.deliver(ctx, t, h)
				return err
			})
			if errors.Is(failed, store.ErrConflict) || errors.Is(failed, store.ErrNotFound) { // somebody has changed it meanwhile
				failed, at = nil, m.Now()
			}
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, failed)
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		})
	}
	sending.Wait()
	return next, err
}

// Trim removes notes that are older than a week, and what is left of webhooks that were deleted. It reports whether notes
// are left over, because there were too many. Error: store.ErrUnavailable.
func (m *Module) Trim(ctx context.Context, t *tenants.Tenant) (left bool, err error) {
	ws := t.Workspace().BeyondQuota()
	notes, old := m.Deliveries.In(ws), m.Now().Add(-keepNotes).UnixMilli()
	for began := time.Now(); ; {
		if time.Since(began) > trimFor {
			return true, nil
		}
		found, err := notes.Find(ctx, store.Query{
			Filter: store.Where(store.F("created_at"), store.OpLt, old), Sort: []store.Order{store.Asc("created_at")}, Limit: forgetting,
		})
		if err != nil {
			return false, err
		}
		if len(found) == 0 {
			break
		}
		gone := make([]*Delivery, len(found))
		for i := range found {
			gone[i] = &found[i]
		}
		if err := notes.Delete(ctx, gone...); err != nil {
			return false, err
		}
	}
	return false, m.Progress.In(ws).Each(ctx, store.Filter{}, store.Either, func(p *Progress) error {
		if _, err := m.Hooks.In(ws).Get(ctx, p.ID); !errors.Is(err, store.ErrNotFound) {
			return err
		}
		m.mu.Lock()
		delete(m.read, pair{t.Org.OrgID, p.ID})
		m.mu.Unlock()
		return m.Progress.In(ws).Delete(ctx, p)
	})
}
