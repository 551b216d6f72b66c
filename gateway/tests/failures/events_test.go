package failures

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestEvents_WhileMoved has an organization followed while it is moved from one engine to the other and back, and written
// to: each acknowledged record must be told once.
func TestEvents_WhileMoved(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, twoBackends(t), fixture.ShortLeases)
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	next := acme.Get(t, key, "/api/events").Field("next").(string)
	var mu sync.Mutex
	told, wanted := map[string]int{}, map[string]bool{}
	var done atomic.Bool
	var running sync.WaitGroup
	for w := range 4 {
		running.Go(func() {
			for i := 0; !done.Load(); i++ {
				a := fixture.PostJSON(t, acme, key, "/api/contacts", fmt.Sprintf(`{"first_name":"W%d %d"}`, w, i))
				if id, ok := a.Field("id").(string); a.Code == http.StatusOK && ok {
					mu.Lock()
					wanted[id] = true
					mu.Unlock()
				}
				time.Sleep(50 * time.Millisecond) // the move ends when a pass over all that was written fits a hold
			}
		})
	}
	read := func() {
		for more := true; more; {
			a := acme.Get(t, key, "/api/events?kinds=contact&per_page=500&after="+next)
			if a.Code == http.StatusServiceUnavailable {
				return // while it is held
			}
			if a.Code != http.StatusOK {
				t.Errorf("got %d %s, want events", a.Code, a.Body)
				return
			}
			for _, e := range a.Field("results").([]any) {
				told[e.(map[string]any)["record"].(string)]++
			}
			next, more = a.Field("next").(string), a.Field("more").(bool)
		}
	}
	moved := make(chan error)
	go func() {
		for _, to := range []string{"other", "default"} {
			_, err := gatewaytest.Move(t.Context(), g.Commands, control.MoveRequest{Slug: "acme", To: to}, nil)
			moved <- err
		}
		close(moved)
	}()
	for open := true; open; {
		select {
		case err, ok := <-moved:
			if open = ok; err != nil {
				t.Errorf("the move: %v", err)
			}
		default:
			read()
		}
	}
	done.Store(true)
	running.Wait()
	fixture.Await(t, "all is settled", func() bool { read(); return len(told) >= len(wanted) })
	for id := range wanted {
		if told[id] != 1 {
			t.Errorf("contact %s is told %d times, want once", id, told[id])
		}
	}
	if len(wanted) < 50 {
		t.Errorf("%d contacts were made, which shows little", len(wanted))
	}
}
