package usage

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

func newMeter(t *testing.T) (*Meter, *tenantstest.World) {
	t.Helper()
	w := tenantstest.New(t, tenantstest.Options{})
	work := background.New(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { work.Close(context.Background()) })
	m := New(slog.New(slog.DiscardHandler), time.Now, 1000, work.Go)
	w.Store.Keep(m.kind.Spec())
	return m, w
}

// stored returns how many requests are.
func stored(t *testing.T, m *Meter, of *tenants.Tenant) (n int64) {
	t.Helper()
	days, err := m.kind.In(of.Workspace()).Find(t.Context(), store.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range days {
		for _, c := range days[i].Operations {
			n += c.Requests
		}
	}
	return n
}

// TestFlush_LosesNothing: not what is counted while a round lets go of an organization that nobody had asked since the
// last one.
func TestFlush_LosesNothing(t *testing.T) {
	t.Parallel()
	m, w := newMeter(t)
	tenant, op := w.Tenant(t, "acme"), &operation.Row{Name: "things.list"}
	rounds := []func(){func() {}, func() { m.Flush(t.Context()) }, func() { m.Flush(t.Context()); m.Flush(t.Context()) }}
	for _, beforeIt := range rounds {
		for _, afterIt := range rounds {
			m.put(tenant, true, func(of *ledger) {
				beforeIt()
				of.add(op, Counts{Requests: 1})
				beforeIt = func() {}
				afterIt()
				afterIt = func() {}
			})
		}
	}
	m.Flush(t.Context())
	if got := stored(t, m, tenant); got != 9 {
		t.Errorf("%d requests are stored of 9", got)
	}
}

// TestFlushRoundsReachEveryOrganization holds that a flush cut short continues with the organizations that were
// left.
func TestFlushRoundsReachEveryOrganization(t *testing.T) {
	t.Parallel()
	const many, rounds = 96, 40
	m, w := newMeter(t)
	op := &operation.Row{Name: "things.list"}
	var all []*tenants.Tenant
	for i := range many {
		all = append(all, w.Tenant(t, fmt.Sprint("o", i)))
	}
	left := many
	for range rounds {
		for _, of := range all {
			m.Count(of, op, true, 200, 0, 0)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int32
		m.now = func() time.Time {
			if calls.Add(1) == many/2 {
				cancel()
			}
			return time.Now()
		}
		m.Flush(ctx)
		cancel()
		m.now = time.Now
		left = 0
		for _, of := range all {
			if stored(t, m, of) == 0 {
				left++
			}
		}
		if left == 0 {
			return
		}
	}
	t.Errorf("after %d rounds nothing is stored of %d organizations", rounds, left)
}

// TestPendingUsageIsBounded holds that usage of more organizations than may wait is stored early and evicted, while
// requests go on. Nothing is lost, and anonymous callers cause no writes.
func TestPendingUsageIsBounded(t *testing.T) {
	t.Parallel()
	const many, most, each = 120, 16, 10
	m, w := newMeter(t)
	m.most = most
	op := &operation.Row{Name: "things.list"}
	var all []*tenants.Tenant
	for i := range many {
		all = append(all, w.Tenant(t, fmt.Sprint("o", i)))
	}
	sum := func() (n int64) {
		for _, of := range all {
			n += stored(t, m, of)
		}
		return n
	}
	settles := func() {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); m.Waiting() > most && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		}
		if n := m.Waiting(); n > most {
			t.Errorf("%d organizations are kept, of which %d may be", n, most)
		}
	}
	for _, of := range all {
		m.Count(of, op, false, 403, 0, 0)
	}
	settles()
	if n := sum(); n != 0 {
		t.Errorf("strangers made it write %d", n)
	}
	m.Flush(t.Context())
	m.live.Clear() // what they asked of those that are kept
	m.kept.Store(0)

	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range each {
				for _, of := range all {
					m.Count(of, op, true, 200, 0, 0)
				}
			}
		})
	}
	asking.Wait()
	settles()
	if sum() == 0 {
		t.Error("nothing is stored before its time")
	}
	m.Flush(t.Context())
	if n := sum(); n != 4*each*many {
		t.Errorf("%d requests are stored of %d", n, 4*each*many)
	}
}

// TestFlush_TellsWhenItWasAsked: whatever waits, for somebody who is known or for a store that is away, is counted for
// the hour and the day in which it was asked.
func TestFlush_TellsWhenItWasAsked(t *testing.T) {
	t.Parallel()
	m, w := newMeter(t)
	op := &operation.Row{Name: "things.list"}
	away, cancel := context.WithCancel(t.Context())
	cancel()
	at := func(clock string) {
		now, err := time.Parse(time.DateTime, "2026-11-"+clock+":00")
		if err != nil {
			t.Fatal(err)
		}
		m.now = func() time.Time { return now }
	}
	round := func(clock string, ctx context.Context, tenants ...*tenants.Tenant) {
		at(clock)
		m.Flush(ctx)
		for _, of := range tenants {
			m.Count(of, op, of.Org.Slug != "strangers", 200, 0, 0)
		}
	}
	asked, failed := w.Tenant(t, "strangers"), w.Tenant(t, "failed")
	for _, clock := range []string{"21 00:10", "21 00:11"} { // one of them in each round
		round(clock, t.Context(), asked)
	}
	for _, clock := range []string{"21 13:58", "21 13:59"} {
		round(clock, t.Context())
	}
	m.Count(asked, op, true, 200, 0, 0)
	round("21 14:00", t.Context())
	for _, clock := range []string{"21 22:30", "21 23:30", "22 00:30", "22 00:31"} {
		round(clock, away, failed)
	}
	round("22 01:00", t.Context())
	for of, want := range map[*tenants.Tenant]string{
		asked:  "2026-11-21: 3 map[00:2 13:1]",
		failed: "2026-11-21: 2 map[22:1 23:1], 2026-11-22: 2 map[00:2]",
	} {
		days, err := m.kind.In(of.Workspace()).Find(t.Context(), store.Query{Sort: []store.Order{store.Asc("day")}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range days {
			hours := map[string]int64{}
			for name, c := range days[i].Hours {
				hours[name] = c.Requests
			}
			got = append(got, fmt.Sprintf("%s: %d %v", days[i].Day, days[i].Operations[op.Name].Requests, hours))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: stored is %s, want %s", of.Org.Slug, strings.Join(got, ", "), want)
		}
	}
}
