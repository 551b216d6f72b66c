package failures

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

const (
	cheapPath = "/api/form/collections/schema" // reads no document
)

// watchedKey is a key with the outcomes of its requests on each replica.
type watchedKey struct {
	id, token string

	mu       sync.Mutex
	ending   time.Time // when its revocation was asked for
	revoked  time.Time // when it was acknowledged
	by       int       // the replica that did it
	accepted [fixture.ReplicaCount]time.Time
	refused  [fixture.ReplicaCount]time.Time // first
}

// watch calls every replica with many keys all the time. A replica that refused a key must not accept it again, except
// while a change is spreading, and must not refuse a valid one.
type watch struct {
	*fixture.Trio
	org   *gatewaytest.Org
	keys  []*watchedKey
	focus atomic.Pointer[watchedKey] // is asked for more often than the others
	asked atomic.Int64
	away  atomic.Int64 // answers that could not be given
	stop  atomic.Bool
	wg    sync.WaitGroup
}

func (w *watch) start(t *testing.T) {
	for i := range w.Replicas {
		w.wg.Go(func() {
			for n := i; !w.stop.Load(); n++ {
				w.look(t, i, w.keys[n%len(w.keys)])
				time.Sleep(2 * time.Millisecond)
			}
		})
		w.wg.Go(func() {
			for !w.stop.Load() {
				w.look(t, i, w.focus.Load())
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
}

func (w *watch) end(t *testing.T) {
	t.Helper()
	w.stop.Store(true)
	w.wg.Wait()
	if away, asked := w.away.Load(), w.asked.Load(); away*100 > asked {
		t.Errorf("%d of %d answers were 503, want at most 1 %%; the log of the first replica: %.4000s",
			away, asked, w.Replicas[0].Log)
	}
}

// look calls one replica with one key.
func (w *watch) look(t *testing.T, replica int, k *watchedKey) {
	began := time.Now()
	code := w.Ask(t, replica, w.org.Host, cheapPath, k.token)
	w.asked.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	first := k.refused[replica]
	switch {
	case code == http.StatusOK && !first.IsZero() && began.After(first) && !k.revoked.IsZero() && began.Sub(k.revoked) > fixture.AgreeWithin:
		t.Errorf("replica %d accepts the key %s again, %s after its first refusal, want it refused",
			replica, k.id, began.Sub(first))
	case code == http.StatusOK && replica == k.by && !k.revoked.IsZero() && began.After(k.revoked):
		t.Errorf("replica %d accepts the key %s that it revoked itself, want it refused", replica, k.id)
	case code == http.StatusOK:
		k.accepted[replica] = time.Now()
	case code == http.StatusForbidden && k.ending.IsZero():
		t.Errorf("replica %d refuses the valid key %s, want it accepted", replica, k.id)
	case code == http.StatusForbidden && first.IsZero():
		k.refused[replica] = time.Now()
	case code == http.StatusServiceUnavailable: // told by a busy machine, to few
		w.away.Add(1)
	case code != http.StatusForbidden:
		t.Errorf("replica %d answers %d, want 403", replica, code)
	}
}

// revoke revokes a key on one replica.
func (w *watch) revoke(t *testing.T, k *watchedKey, by int) {
	t.Helper()
	w.focus.Store(k)
	k.mu.Lock()
	k.ending = time.Now()
	k.mu.Unlock()
	if _, err := control.Call[control.Key](t.Context(), w.Replicas[by].Commands, "key.revoke", control.KeyRef{Org: w.org.Slug, ID: k.id}); err != nil {
		t.Fatalf("revoking: got %v, want no error", err)
	}
	k.mu.Lock()
	k.revoked, k.by = time.Now(), by
	k.mu.Unlock()
}

// settle waits until every replica refuses the key.
func (w *watch) settle(t *testing.T, k *watchedKey) {
	t.Helper()
	for !k.over() {
		if time.Since(k.revoked) > 2*fixture.AgreeAtLast {
			t.Fatalf("the key %s is not refused everywhere, want it refused", k.id)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (k *watchedKey) over() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.ContainsFunc(k.refused[:], time.Time.IsZero)
}

// figures checks and logs how long replicas accepted revoked keys.
func (w *watch) figures(t *testing.T, what string, keys []*watchedKey) {
	t.Helper()
	var same, others, sinceAsked []time.Duration
	for _, k := range keys {
		k.mu.Lock()
		for i := range k.accepted {
			late := max(0, k.accepted[i].Sub(k.revoked))
			sinceAsked = append(sinceAsked, max(0, k.accepted[i].Sub(k.ending)))
			if i == k.by {
				same = append(same, late)
			} else {
				others = append(others, late)
			}
		}
		k.mu.Unlock()
	}
	slices.Sort(same)
	slices.Sort(others)
	slices.Sort(sinceAsked)
	p99 := others[(len(others)*99+99)/100-1]
	t.Logf("%s: %d revocations; last answer that accepted, after the acknowledgement: other replicas median %s, p99 %s, longest %s; same replica longest %s; after it was asked for, anywhere, longest %s",
		what, len(keys), round(others[len(others)/2]), round(p99), round(others[len(others)-1]), round(same[len(same)-1]), round(sinceAsked[len(sinceAsked)-1]))
	if p99 > fixture.AgreeWithin || others[len(others)-1] > fixture.AgreeAtLast {
		t.Errorf("%[1]s: revoked keys are accepted for %[2]s (p99), at most %[3]s, want %[4]s and %[5]s",
			what, p99, others[len(others)-1], fixture.AgreeWithin, fixture.AgreeAtLast)
	}
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
