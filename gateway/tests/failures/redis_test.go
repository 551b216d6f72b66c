package failures

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/proxytest"
	"tenantry/tenants"
	"tenantry/tenants/redistest"
)

// redisOutageLimit bounds the time of an answer while Redis fails: each step waits 200 ms, and the machine of the tests
// is busy.
const redisOutageLimit = 3 * time.Second

// proxiedRedis starts a Redis server behind a proxy, or one inside the process if none is installed.
func proxiedRedis(t *testing.T) *proxytest.Proxy {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		return proxytest.Start(t, miniredis.RunT(t).Addr())
	}
	return proxytest.Start(t, redistest.Start(t).Addr)
}

func redisFaults() []proxytest.Fault {
	return []proxytest.Fault{
		proxytest.Refused(), proxytest.Silent(), proxytest.Late(300, 0), proxytest.Reset(), proxytest.Cut(60), proxytest.Sliced(8, 20_000),
	}
}

// TestRedisInTrouble checks that every read is answered as usual or with service unavailable. Keys are looked up in the
// store and limits are applied locally, so that no caller is wrongly denied or admitted.
func TestRedisInTrouble(t *testing.T) {
	t.Parallel()
	for _, fault := range redisFaults() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			redis := proxiedRedis(t)
			w := fixture.NewQuietWorld(t, fixture.WithRedis(redis.Addr))
			p := w.A
			rows := rowCalls(w, p, contract(readsOf))
			good := goodAnswers(t, p, rows)
			_, cookie := p.Person(t, "person@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
			cold, revoked, never := fullKey(t, p), fullKey(t, p), fixture.RandomKey(t, tenants.ServerFull)
			path := "/api/campaigns/count"
			if a := p.Get(t, revoked.Token, path); a.Code != http.StatusOK {
				t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
			}

			redis.Break(t, fault)
			if _, err := control.Call[control.Key](t.Context(), p.Commands, "key.revoke", control.KeyRef{Org: p.Slug, ID: revoked.ID}); err != nil {
				t.Fatalf("revoking a key: got %v, want no error", err)
			}
			var away atomic.Int64
			for _, key := range []string{p.FullKey, cold.Token} {
				callAll(t, p, rows, gatewaytest.WithKey(key), func(r rowCall, a timed) {
					if !answers(t, r.String(), a, good[r.path], fixture.SampleFor(&r.op).Volatile, redisOutageLimit) {
						t.Logf("%s: 503 after %s", r, a.took)
						away.Add(1)
					}
				})
			}
			if away.Load() > 0 {
				t.Errorf("%d of %d reads with a key need Redis, want 0", away.Load(), 2*len(rows))
			}
			for what, key := range map[string]string{"revoked": revoked.Token, "unknown": never} {
				fixture.WantDenied(t, "a key that is "+what, p.Get(t, key, path))
			}
			// Sessions are in Redis: they work, or cannot be checked now.
			for range 3 {
				a := timeCall(t, p, fixture.Call{Method: http.MethodGet, Target: "/api/users/" + p.IDs[fixture.RefUser]}, gatewaytest.Cookie(cookie))
				if a.took > redisOutageLimit || a.Code != http.StatusOK && !fixture.IsUnavailable(t, "a session", a.Answer) {
					t.Errorf("a session: got %d %s after %s, want 200 or service unavailable in time",
						a.Code, a.Body, a.took)
				}
			}
			wantAlive(t, w.Gateway)
			if fault.Name != "sliced" { // a ping's answer is one piece
				fixture.ReadyIn(t, w.Gateway, http.StatusOK, "degraded", map[string]string{"redis": "down", "store": "ok"}, fixture.ReadyLimit)
			}
			if metricOf(t, w.Gateway, "tenantry_limits_local_total") == "0" {
				t.Error("tenantry_limits_local_total = 0, want some requests counted locally")
			}

			redis.Heal(t)
			for what, key := range map[string]string{"good": p.FullKey, "seen first in the outage": cold.Token} {
				if a := p.Get(t, key, path); a.Code != http.StatusOK {
					t.Errorf("a key that is %s, right after the outage: got %d %s, want 200", what, a.Code, a.Body)
				}
			}
			fixture.WantDenied(t, "the revoked key after the outage", p.Get(t, revoked.Token, path))
			fixture.AwaitWithin(t, "the session works again", healLimit, func() bool {
				a := p.Get(t, "", "/api/users/"+p.IDs[fixture.RefUser], gatewaytest.Cookie(cookie))
				if a.Code != http.StatusOK && !fixture.IsUnavailable(t, "the session after the outage", a) {
					t.Fatalf("the session after the outage: got %d %s, want 200 or service unavailable", a.Code, a.Body)
				}
				return a.Code == http.StatusOK
			})
			fixture.ReadyIn(t, w.Gateway, http.StatusOK, "ok", map[string]string{"redis": "ok"}, healLimit)
			wantQuietLog(t, w.Gateway, p.FullKey, cold.Token, revoked.Token, cookie.Value)
		})
	}
}

// TestLateRepliesNeverSwapIdentities looks up 64 keys of four organizations concurrently in a Redis whose replies are
// delayed or dropped. The log shows who called.
func TestLateRepliesNeverSwapIdentities(t *testing.T) {
	t.Parallel()
	const organizations, each, rounds = 4, 16, 12
	redis := proxiedRedis(t)
	var c fixture.Clock
	g := gatewaytest.Start(t, fixture.WithRedis(redis.Addr), c.Option)
	type caller struct {
		org *gatewaytest.Org
		key control.IssuedKey
		may bool
	}
	var callers []caller
	for n := range organizations {
		o := g.Org(t, fmt.Sprintf("org%d", n))
		for i := range each {
			may := i%2 == 0
			key := o.KeyWith(t, func(k *control.NewKey) {
				if may {
					k.Permissions = []string{string(tenants.Contacts)}
				}
			})
			callers = append(callers, caller{o, key, may})
		}
	}
	reveal := "/api/contacts/65f0000000000000000000aa/reveal-secret?field=none"
	expected := map[string]string{} // request to subject
	var mu sync.Mutex
	call := func(round int) (right, away int) {
		var running sync.WaitGroup
		for n, who := range callers {
			running.Go(func() {
				id := fmt.Sprintf("k8-%d-%d", round, n)
				started := time.Now()
				a := who.org.Get(t, who.key.Token, reveal, gatewaytest.Header("X-Request-Id", id))
				took := time.Since(started)
				mu.Lock()
				defer mu.Unlock()
				what := fmt.Sprintf("key %d in round %d", n, round)
				want := http.StatusForbidden
				if who.may {
					want = http.StatusUnprocessableEntity // the field is none
				}
				switch {
				case took > 2*redisOutageLimit: // 64 at once
					t.Errorf("%s: got %s, want at most %v", what, took, 2*redisOutageLimit)
				case fixture.IsUnavailable(t, what, a):
					away++
				case a.Code != want || a.Text() == fixture.DeniedBody:
					t.Errorf("%[1]s: got %[2]d %[3]s, want %[4]d", what, a.Code, a.Body, want)
				default:
					right++
					expected[id] = "key:" + who.key.ID
				}
			})
		}
		running.Wait()
		return right, away
	}
	if right, _ := call(0); right != len(callers) { // now Redis knows all of them
		t.Fatalf("%d of %d keys work before the outage, want %v", right, len(callers), len(callers))
	}
	for round := 1; round <= rounds; round++ {
		c.Advance(31 * time.Second) // what the process knows of them has to be looked up again
		switch round % 3 {
		case 1:
			redis.Break(t, proxytest.Lossy(40, 150, 140))
		case 2:
			redis.Heal(t)
		}
		call(round)
	}
	redis.Heal(t)
	c.Advance(31 * time.Second)
	if right, away := call(rounds + 1); right != len(callers) || away > 0 {
		t.Errorf("after the outage %d of %d keys work, %d not yet, want %v and no away",
			right, len(callers), away, len(callers))
	}
	seen := 0
	for line := range strings.Lines(g.Log.String()) {
		var l struct {
			Msg     string
			Request string `json:"request_id"`
			Subject string
		}
		if json.Unmarshal([]byte(line), &l) != nil || l.Msg != "request" || expected[l.Request] == "" {
			continue
		}
		seen++
		if l.Subject != expected[l.Request] {
			t.Errorf("request %s was taken for %s, want %s", l.Request, l.Subject, expected[l.Request])
		}
	}
	if seen != len(expected) || seen < 2*len(callers) {
		t.Errorf("the log has %d requests, want %d", seen, len(expected))
	}
	wantQuietLog(t, g)
}

// TestKeyExpiryIsCheckedInSharedCaches uses a real Redis and, if there is one, MongoDB: in the process that has used
// the key, and in one that knows it only from Redis.
func TestKeyExpiryIsCheckedInSharedCaches(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	var c fixture.Clock
	g := gatewaytest.Start(t, fixture.WithRedis(redis.Addr), c.Option)
	o := g.Org(t, "acme")
	key := o.KeyWith(t, func(k *control.NewKey) { k.Expires = 100 * time.Second }).Token
	path := "/api/campaigns/count"
	for range 2 {
		if a := o.Get(t, key, path); a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
		}
	}
	entries := func() int {
		found, err := redis.Open(t).Keys(t.Context(), o.Tenant(t).RedisPrefix()+"key:*").Result()
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if n := entries(); n != 1 {
		t.Fatalf("Redis knows %d keys, want 1", n)
	}
	c.Advance(90 * time.Second) // looked up again, in Redis
	if a := o.Get(t, key, path); a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
	}
	c.Advance(11 * time.Second) // less than what a look-up stays fresh
	fixture.WantDenied(t, "an expired key that was just used", o.Get(t, key, path))
	if n := entries(); n != 1 {
		t.Fatalf("Redis has forgotten the key; the next answer would prove nothing (%d), want 1", n)
	}
	c.Advance(60 * time.Second)
	fixture.WantDenied(t, "an expired key that Redis still knows", o.Get(t, key, path))
}
