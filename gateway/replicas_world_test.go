package gateway_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants/redistest"
)

const (
	// agreeWithin is how soon what one replica changed holds on the others: for all but one
	// in a hundred, and for every change.
	agreeWithin, agreeAtLast = 2 * time.Second, 5 * time.Second
	replicaCount             = 3
	cheapPath                = "/api/form/collections/schema" // reads no document
)

// trio are three replicas: one store, one Redis and one keyring file, each with a data
// folder of its own.
type trio struct {
	replicas [replicaCount]*gatewaytest.Gateway
	redis    *redistest.Server
	client   *http.Client
}

// startTrio needs a MongoDB server and an installed Redis; without either the test is skipped.
func startTrio(t *testing.T, options ...gatewaytest.Option) *trio {
	t.Helper()
	mongotest.URI(t)
	r := &trio{redis: redistest.Start(t)}
	for i := range r.replicas {
		r.replicas[i] = gatewaytest.Start(t, append(slices.Clone(options), r.join)...)
	}
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 30 * time.Second}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

// join makes a gateway a replica of the first one.
func (r *trio) join(c *config.Config, o *gateway.Options) {
	o.Leases = store.Leases{} // as what joins them by itself has
	c.Redis.Addrs = []string{r.redis.Addr}
	c.PublicURL = "http://{slug}.localhost" // addresses in answers name no port
	if first := r.replicas[0]; first != nil {
		c.Backends, c.Store, c.Control, c.Keyring = first.Config.Backends, first.Config.Store, first.Config.Control, first.Config.KeyringPath()
	}
}

// on returns the organization as one replica serves it.
func (r *trio) on(i int, o *gatewaytest.Org) *gatewaytest.Org {
	return &gatewaytest.Org{Gateway: r.replicas[i%replicaCount], Slug: o.Slug, Host: o.Host}
}

// ask sends a GET to one replica and returns the status, 0 where none came. It is made for
// load: the answer is read and not looked at.
func (r *trio) ask(t *testing.T, i int, host, path, key string) int {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.replicas[i].URL(path), nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Host = host
	req.Header.Set(keyHeader, key)
	resp, err := r.client.Do(req)
	if err != nil {
		t.Errorf("replica %d: %v", i, err)
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("replica %d: %v", i, err)
		return 0
	}
	return resp.StatusCode
}

// agree waits until a change that replica by acknowledged is shown by all: by that one at
// once, by the others in time. It returns how long the slowest took.
func (r *trio) agree(t *testing.T, what string, by int, o *gatewaytest.Org, shown func(*gatewaytest.Org) bool) time.Duration {
	t.Helper()
	acknowledged := time.Now()
	if !shown(r.on(by, o)) {
		t.Errorf("%s: the replica that was told of it does not know", what)
	}
	var slowest atomic.Int64
	var asking sync.WaitGroup
	for i := range r.replicas {
		asking.Go(func() {
			for !shown(r.on(i, o)) {
				if time.Since(acknowledged) > agreeAtLast {
					t.Errorf("%s: replica %d does not know after %s", what, i, agreeAtLast)
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			took := time.Since(acknowledged)
			raise(&slowest, int64(took))
			for range 3 {
				if took < agreeAtLast && !shown(r.on(i, o)) {
					t.Errorf("%s: replica %d knew and has forgotten", what, i)
				}
			}
		})
	}
	asking.Wait()
	took := time.Duration(slowest.Load())
	if took > agreeWithin {
		t.Errorf("%s: the last replica knew after %s", what, took)
	}
	return took
}

// watchedKey is a key, and what became of requests with it on each replica.
type watchedKey struct {
	id, token string

	mu       sync.Mutex
	ending   time.Time // when its revocation was asked for
	revoked  time.Time // when it was acknowledged
	by       int       // the replica that did it
	accepted [replicaCount]time.Time
	refused  [replicaCount]time.Time // first
}

// watch asks every replica with many keys all the time. A replica that refused a key must
// not take it again, but for the moment in which a change may still spread; none that is
// good may be refused.
type watch struct {
	*trio
	org   *gatewaytest.Org
	keys  []*watchedKey
	focus atomic.Pointer[watchedKey] // is asked for more often than the others
	asked atomic.Int64
	away  atomic.Int64 // answers that could not be given
	stop  atomic.Bool
	wg    sync.WaitGroup
}

func (w *watch) start(t *testing.T) {
	for i := range w.replicas {
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
		t.Errorf("%d of %d answers were 503; the log of the first replica: %.4000s", away, asked, w.replicas[0].Log)
	}
}

// look asks one replica with one key.
func (w *watch) look(t *testing.T, replica int, k *watchedKey) {
	began := time.Now()
	code := w.ask(t, replica, w.org.Host, cheapPath, k.token)
	w.asked.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	first := k.refused[replica]
	switch {
	case code == http.StatusOK && !first.IsZero() && began.After(first) && !k.revoked.IsZero() && began.Sub(k.revoked) > agreeWithin:
		t.Errorf("replica %d takes the key %s again, %s after it was first refused", replica, k.id, began.Sub(first))
	case code == http.StatusOK && replica == k.by && !k.revoked.IsZero() && began.After(k.revoked):
		t.Errorf("replica %d takes the key %s that it revoked itself", replica, k.id)
	case code == http.StatusOK:
		k.accepted[replica] = time.Now()
	case code == http.StatusForbidden && k.ending.IsZero():
		t.Errorf("replica %d refuses the key %s, which is good", replica, k.id)
	case code == http.StatusForbidden && first.IsZero():
		k.refused[replica] = time.Now()
	case code == http.StatusServiceUnavailable: // told by a busy machine, to few
		w.away.Add(1)
	case code != http.StatusForbidden:
		t.Errorf("replica %d answers %d", replica, code)
	}
}

// revoke revokes a key on one replica.
func (w *watch) revoke(t *testing.T, k *watchedKey, by int) {
	t.Helper()
	w.focus.Store(k)
	k.mu.Lock()
	k.ending = time.Now()
	k.mu.Unlock()
	if _, err := control.Call[control.Key](t.Context(), w.replicas[by].Commands, "key.revoke", control.KeyRef{Org: w.org.Slug, ID: k.id}); err != nil {
		t.Fatalf("revoking: %v", err)
	}
	k.mu.Lock()
	k.revoked, k.by = time.Now(), by
	k.mu.Unlock()
}

// settle waits until every replica refuses the key.
func (w *watch) settle(t *testing.T, k *watchedKey) {
	t.Helper()
	for !k.over() {
		if time.Since(k.revoked) > 2*agreeAtLast {
			t.Fatalf("the key %s is not refused everywhere", k.id)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (k *watchedKey) over() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.ContainsFunc(k.refused[:], time.Time.IsZero)
}

// figures check for how long replicas went on taking revoked keys, and say it.
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
	if p99 > agreeWithin || others[len(others)-1] > agreeAtLast {
		t.Errorf("%s: revoked keys are taken for %s (p99), at most %s", what, p99, others[len(others)-1])
	}
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// together calls a function n times at once and returns how often it returned each answer.
func together[T cmp.Ordered](n int, do func(i int) T) map[T]int {
	begin := make(chan struct{})
	answers := make(chan T, n)
	for i := range n {
		go func() {
			<-begin
			answers <- do(i)
		}()
	}
	close(begin)
	counts := map[T]int{}
	for range n {
		counts[<-answers]++
	}
	return counts
}

// tally describes counted answers in a fixed order.
func tally[T cmp.Ordered](counts map[T]int) string {
	var keys []T
	for k := range counts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	text := ""
	for _, k := range keys {
		text += fmt.Sprintf("%dx %v; ", counts[k], k)
	}
	return text
}
