package failures

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/mongo/mongotest"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/proxytest"
	"tenantry/operation"
)

// mongoOutageLimit bounds the time of an answer while MongoDB fails: a call has ten seconds, the audit record of a call
// that timed out another one, and the rest is for a busy machine. Most answers are faster, see below.
const mongoOutageLimit = 14 * time.Second

// silentServerLimit bounds that time for a server that is silent or missing. A silent server is given up after six
// seconds, and the audit record tries for two more.
const silentServerLimit = 12 * time.Second

func mongoFaults() []proxytest.Fault {
	return []proxytest.Fault{
		proxytest.Refused(), proxytest.Silent(), proxytest.Late(300, 0), proxytest.Reset(), proxytest.Cut(700), proxytest.Sliced(64, 500),
	}
}

// dropsReplies reports whether the fault suppresses all replies.
func dropsReplies(f proxytest.Fault) bool {
	return f.Name == "refused" || f.Name == "silent" || f.Name == "reset"
}

// knownOutageLimit bounds the time of an answer during a known outage: most are immediate, and now and then one looks
// for the server for two seconds.
const knownOutageLimit = 5 * time.Second

// costly reports whether good answers of the operation cost a password hash or use something up.
func costly(op *operation.Row) bool { s := fixture.SampleFor(op); return s.Slow || s.Once }

// TestMongoInTrouble checks that every operation answers correctly or with service unavailable, in bounded time; that
// each reveal is audited; and that everything recovers by itself.
func TestMongoInTrouble(t *testing.T) {
	t.Parallel()
	for _, fault := range mongoFaults() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			mongo, uri := proxiedMongo(t)
			w := fixture.NewQuietWorld(t, onMongo(t, uri))
			p := w.A
			reads := rowCalls(w, p, contract(readsOf))
			writes := rowCalls(w, p, contract(func(op *operation.Row) bool { return keyed(op) && !readsOf(op) && !costly(op) }))
			for _, r := range writes { // what one of them changes is not changed again
				if a := timeCall(t, p, r.ask, gatewaytest.WithKey(p.FullKey)); a.Code >= 400 {
					t.Fatalf("%s before the outage: got %d %s, want a code below 400", r, a.Code, a.Body)
				}
			}
			good := goodAnswers(t, p, reads)
			cold, stranger := fullKey(t, p).Token, w.B.FullKey

			mongo.Break(t, fault)
			var away, right atomic.Int64
			var disclosed sync.Map // requests that were answered with a secret
			within := mongoOutageLimit
			if dropsReplies(fault) {
				within = silentServerLimit
			}
			judge := func(r rowCall, a timed) {
				if !answers(t, r.String(), a, good[r.path], fixture.SampleFor(&r.op).Volatile, within) {
					away.Add(1)
					if strings.Contains(a.Text(), p.FirstSecret) {
						t.Errorf("%s reveals what it answers to be unavailable, want it without %q", r, p.FirstSecret)
					}
					return
				}
				right.Add(1)
				if strings.Contains(a.Text(), p.FirstSecret) {
					disclosed.Store(a.Header.Get("X-Request-Id"), true)
				}
			}
			began := time.Now()
			for _, key := range []string{p.FullKey, cold} {
				callAll(t, p, reads, gatewaytest.WithKey(key), judge)
			}
			t.Logf("after %s: %d right, %d unavailable", time.Since(began), right.Load(), away.Load())
			callAll(t, p, writes, gatewaytest.WithKey(p.FullKey), func(r rowCall, a timed) {
				if a.took > within {
					t.Errorf("%s took %s, want at most %v", r, a.took, within)
				}
				if a.Code >= 500 && !fixture.IsUnavailable(t, r.String(), a.Answer) {
					t.Errorf("%s: got %d %s, want an answer or service unavailable", r, a.Code, a.Body)
				}
			})
			// A key of another organization is refused, or cannot be checked now.
			if a := p.Get(t, stranger, "/api/campaigns/count"); !fixture.IsUnavailable(t, "a stranger's key", a) {
				fixture.WantDenied(t, "a stranger's key", a)
			}
			wantAlive(t, w.Gateway)
			if dropsReplies(fault) {
				fixture.ReadyIn(t, w.Gateway, http.StatusServiceUnavailable, "failed", map[string]string{"store": "down", "redis": "ok"}, fixture.ReadyLimit)
				if right.Load() > 0 {
					t.Errorf("%d answers come from nowhere, want 0", right.Load())
				}
				wantRevealRefused(t, p)
			} else if right.Load() == 0 {
				t.Errorf("nothing works with %s replies, want at least 1", fault.Name)
			}

			mongo.Heal(t)
			wantAllBack(t, p, reads, good, p.FullKey, cold)
			fixture.ReadyIn(t, w.Gateway, http.StatusOK, "ok", map[string]string{"store": "ok"}, healLimit)
			wantRecorded(t, p, &disclosed)
			wantQuietLog(t, w.Gateway, p.FullKey, cold, p.FirstSecret)
		})
	}
}

// wantRevealRefused fails the test unless a reveal soon answers service unavailable.
func wantRevealRefused(t *testing.T, p *fixture.Party) {
	t.Helper()
	reveal := fixture.Call{Method: http.MethodGet, Target: "/api/contacts/" + p.IDs[fixture.RefContact] + "/reveal-secret?field=" + fixture.SecretField}
	var slowest time.Duration
	for range 5 {
		a := timeCall(t, p, reveal, gatewaytest.WithKey(p.FullKey))
		if !fixture.IsUnavailable(t, "revealing", a.Answer) {
			t.Errorf("revealing: got %d %s, want service unavailable", a.Code, a.Body)
		}
		slowest = max(slowest, a.took)
	}
	t.Logf("revealing is refused within %s", slowest)
	if slowest > knownOutageLimit {
		t.Errorf("revealing is refused after %s, want at most %v", slowest, knownOutageLimit)
	}
}

// wantAllBack waits until every read works with all keys.
func wantAllBack(t *testing.T, p *fixture.Party, reads []rowCall, good map[string]string, keys ...string) {
	t.Helper()
	took := fixture.AwaitWithin(t, "every read works again", healLimit, func() bool {
		works := true
		for _, r := range reads {
			for _, key := range keys {
				a := timeCall(t, p, r.ask, gatewaytest.WithKey(key))
				if !answers(t, r.String()+" after the outage", a, good[r.path], fixture.SampleFor(&r.op).Volatile, mongoOutageLimit) {
					works = false
				}
			}
		}
		return works
	})
	t.Logf("works again after %s", took)
}

// wantRecorded fails the test if a request was answered with a secret and has no audit record.
func wantRecorded(t *testing.T, p *fixture.Party, disclosed *sync.Map) {
	t.Helper()
	records, err := control.Call[[]control.AuditRecord](t.Context(), p.Commands, "audit", control.Page{Org: p.Slug, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Operation == "contacts.reveal" {
			disclosed.Delete(r.RequestID)
		}
	}
	disclosed.Range(func(id, _ any) bool {
		t.Errorf("request %s has no audit record of its secret, want one", id)
		return true
	})
}

// TestKeysWhileRedisAndMongoAreDown checks that callers get service unavailable at once: none is denied, and none has
// to wait.
func TestKeysWhileRedisAndMongoAreDown(t *testing.T) {
	t.Parallel()
	for _, fault := range []proxytest.Fault{proxytest.Refused(), proxytest.Silent()} {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			mongo, uri := proxiedMongo(t)
			redis := proxiedRedis(t)
			w := fixture.NewQuietWorld(t, onMongo(t, uri), fixture.WithRedis(redis.Addr))
			p := w.A
			cold, unknown := fullKey(t, p).Token, fixture.RandomKey(t, "server_full")
			rows := rowCalls(w, p, contract(keyed))
			if a := p.Get(t, p.FullKey, "/api/campaigns/count"); a.Code != http.StatusOK {
				t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
			}
			mongo.Break(t, fault)
			redis.Break(t, fault)
			for round := range 2 {
				for what, key := range map[string]string{"warm": p.FullKey, "cold": cold, "unknown": unknown} {
					callAll(t, p, rows, gatewaytest.WithKey(key), func(r rowCall, a timed) {
						if !fixture.IsUnavailable(t, r.String(), a.Answer) {
							t.Errorf("%s with a %s key: got %d %s, want service unavailable", r, what, a.Code, a.Body)
						}
						if a.took > silentServerLimit {
							t.Errorf("%s with a %s key took %s in round %d, want at most %v",
								r, what, a.took, round, silentServerLimit)
						}
					})
				}
			}
			wantAlive(t, w.Gateway)
			fixture.ReadyIn(t, w.Gateway, http.StatusServiceUnavailable, "failed", map[string]string{"store": "down", "redis": "down"}, fixture.ReadyLimit)
			mongo.Heal(t)
			redis.Heal(t)
			for what, key := range map[string]string{"warm": p.FullKey, "cold": cold} {
				took := fixture.AwaitWithin(t, "the "+what+" key works again", healLimit, func() bool {
					a := p.Get(t, key, "/api/campaigns/count")
					if a.Code != http.StatusOK && !fixture.IsUnavailable(t, "after the outage", a) {
						t.Fatalf("after the outage: got %d %s, want 200 or service unavailable", a.Code, a.Body)
					}
					return a.Code == http.StatusOK
				})
				t.Logf("the %s key works again after %s", what, took)
			}
			fixture.WantDenied(t, "a key that nobody knows", p.Get(t, unknown, "/api/campaigns/count"))
			wantQuietLog(t, w.Gateway, p.FullKey, cold, unknown)
		})
	}
}

// TestWarmKeysServeWithinTheGrace stops the backend of the control data while that of the documents stays.
func TestWarmKeysServeWithinTheGrace(t *testing.T) {
	t.Parallel()
	mongo, uri := proxiedMongo(t)
	var c fixture.Clock
	database := mongotest.Database(t)
	w := fixture.NewQuietWorld(t, c.Option, func(cfg *config.Config, _ *gateway.Options) {
		if err := gatewaytest.UseMongo(cfg, uri, database); err != nil {
			t.Error(err)
		}
		cfg.Backends["local"] = config.Backend{Engine: config.EngineSQLite}
		cfg.Store = "local"
	})
	p := w.A
	_, cookie := p.Person(t, "person@example.com", nil)
	cold := fullKey(t, p).Token
	session := func(when string) {
		if a := p.Get(t, "", "/api/campaigns/count", gatewaytest.Cookie(cookie)); a.Code != http.StatusOK {
			t.Errorf("a session %s: got %d %s, want 200", when, a.Code, a.Body)
		}
	}
	session("before the outage")
	reads := rowCalls(w, p, contract(func(op *operation.Row) bool {
		return readsOf(op) && op.Audit == operation.NoAudit && op.Name != "users.get" && op.Name != "folders.get"
	})) // those two name people
	good := goodAnswers(t, p, reads)
	mongo.Break(t, proxytest.Refused())
	warm := func(when string) {
		callAll(t, p, reads, gatewaytest.WithKey(p.FullKey), func(r rowCall, a timed) {
			if !answers(t, r.String()+" "+when, a, good[r.path], fixture.SampleFor(&r.op).Volatile, mongoOutageLimit) {
				t.Errorf("%s %s with a warm key: unavailable after %s, want the answer", r, when, a.took)
			}
		})
		session(when)
	}
	warm("at once")
	fixture.ReadyIn(t, w.Gateway, http.StatusServiceUnavailable, "failed", map[string]string{"store": "down", "store.local": "ok"}, fixture.ReadyLimit)
	if a := p.Get(t, cold, "/api/campaigns/count"); !fixture.IsUnavailable(t, "a key that was not used before", a) {
		t.Errorf("a key that was not used before: got %d %s, want service unavailable", a.Code, a.Body)
	}
	// Writes need a placement that was just read, and a reveal writes an audit record.
	for range 3 {
		a := timeCall(t, p, fixture.Call{Method: http.MethodGet, Target: "/api/contacts/" + p.IDs[fixture.RefContact] + "/reveal-secret?field=" + fixture.SecretField}, gatewaytest.WithKey(p.FullKey))
		if !fixture.IsUnavailable(t, "revealing", a.Answer) || a.took > mongoOutageLimit {
			t.Errorf("revealing without the backend of placements: got %d %s after %s, want service unavailable and at most %v",
				a.Code, a.Body, a.took, mongoOutageLimit)
		}
	}
	c.Advance(15 * time.Second)
	warm("after 15 s")
	c.Advance(40 * time.Second)
	callAll(t, p, reads, gatewaytest.WithKey(p.FullKey), func(r rowCall, a timed) {
		if !fixture.IsUnavailable(t, r.String(), a.Answer) {
			t.Errorf("%s after the grace: got %d %s, want service unavailable", r, a.Code, a.Body)
		}
	})
	mongo.Heal(t)
	fixture.AwaitWithin(t, "both keys work again", healLimit, func() bool {
		return p.Get(t, p.FullKey, "/api/campaigns/count").Code == http.StatusOK && p.Get(t, cold, "/api/campaigns/count").Code == http.StatusOK
	})
}

// TestOutageOfOneBackendSparesOthers checks that only the organizations of the lost backend are affected.
func TestOutageOfOneBackendSparesOthers(t *testing.T) {
	t.Parallel()
	mongo, uri := proxiedMongo(t)
	database := mongotest.Database(t)
	g := gatewaytest.Start(t, gatewaytest.Embedded, withEU(t, uri, database))
	here := g.Org(t, "here")
	name := "There"
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.create", control.NewOrganization{Slug: "there", Backend: "eu", OrganizationFields: control.OrganizationFields{Name: name}}); err != nil {
		t.Fatal(err)
	}
	there := &gatewaytest.Org{Gateway: g, Slug: "there", Host: "there.localhost"}
	hereKey, thereKey := here.Key(t), there.Key(t)
	path := "/api/campaigns/count"
	for _, fault := range []proxytest.Fault{proxytest.Refused(), proxytest.Silent()} {
		fixture.ReadyIn(t, g, http.StatusOK, "ok", map[string]string{"store": "ok", "store.eu": "ok"}, healLimit)
		for o, key := range map[*gatewaytest.Org]string{here: hereKey, there: thereKey} {
			fixture.AwaitWithin(t, "both organizations work", healLimit, func() bool { return o.Get(t, key, path).Code == http.StatusOK })
		}
		mongo.Break(t, fault)
		asked := time.Now()
		fixture.ReadyIn(t, g, http.StatusOK, "degraded", map[string]string{"store": "ok", "store.eu": "down"}, fixture.ReadyLimit)
		t.Logf("%s is told after %s", fault.Name, time.Since(asked))
		wantAlive(t, g)
		for range 3 {
			started := time.Now()
			if a := here.Get(t, hereKey, path); a.Code != http.StatusOK || time.Since(started) > immediateLimit {
				t.Errorf("%s: the organization on the other backend: got %d %s after %s, want 200 at once",
					fault.Name, a.Code, a.Body, time.Since(started))
			}
			if a := there.Get(t, thereKey, path); !fixture.IsUnavailable(t, fault.Name, a) {
				t.Errorf("%s: the organization whose backend is away: got %d %s, want service unavailable",
					fault.Name, a.Code, a.Body)
			}
		}
		mongo.Heal(t)
	}
	wantQuietLog(t, g, hereKey, thereKey)
}
