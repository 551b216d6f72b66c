package gateway_test

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
	"tenantry/internal/proxytest"
	"tenantry/operation"
)

// withoutMongo is how long an answer takes at most while MongoDB is in trouble: a call has
// ten seconds, a record of one that ran out of them another one; the rest is for a busy
// machine. Most answers come sooner: see below.
const withoutMongo = 14 * time.Second

// noticed is how long they take at most where the server says nothing or is not there. A
// silent one is given up after six seconds, and the record tries for two more.
const noticed = 12 * time.Second

func mongoFaults() []proxytest.Fault {
	return []proxytest.Fault{
		proxytest.Refused(), proxytest.Silent(), proxytest.Late(300, 0), proxytest.Reset(), proxytest.Cut(700), proxytest.Sliced(64, 500),
	}
}

// isGone reports whether no reply comes at all.
func isGone(f proxytest.Fault) bool {
	return f.Name == "refused" || f.Name == "silent" || f.Name == "reset"
}

// lookingAgain is how long an answer takes once the outage is known: most come at once, and
// now and then one of them looks for the server for two seconds.
const lookingAgain = 5 * time.Second

// rested are calls whose good answers cost a password hash, or use something up.
func rested(op *operation.Row) bool { s := sampleFor(op); return s.slow || s.once }

// TestMongoInTrouble holds that every operation answers correctly or with service unavailable, in bounded time; that
// each reveal is audited; and that everything recovers by itself.
func TestMongoInTrouble(t *testing.T) {
	t.Parallel()
	for _, fault := range mongoFaults() {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			mongo, uri := awayMongo(t)
			w := newQuietWorld(t, onMongo(t, uri))
			p := w.a
			reads := w.rows(p, contract(readsOf))
			writes := w.rows(p, contract(func(op *operation.Row) bool { return keyed(op) && !readsOf(op) && !rested(op) }))
			for _, r := range writes { // what one of them changes is not changed again
				if a := p.timed(t, r.ask, gatewaytest.WithKey(p.key)); a.Code >= 400 {
					t.Fatalf("%s before the outage: %d %s", r, a.Code, a.Body)
				}
			}
			good := p.goodAnswers(t, reads)
			cold, stranger := p.fullKey(t).Token, w.b.key

			mongo.Break(t, fault)
			var away, right atomic.Int64
			var disclosed sync.Map // requests that were answered with a secret
			within := withoutMongo
			if isGone(fault) {
				within = noticed
			}
			judge := func(r rowCall, a timed) {
				if !answers(t, r.String(), a, good[r.path], sampleFor(&r.op).volatile, within) {
					away.Add(1)
					if strings.Contains(a.Text(), p.strangersSecretOfFirst) {
						t.Errorf("%s reveals what it answers to be unavailable", r)
					}
					return
				}
				right.Add(1)
				if strings.Contains(a.Text(), p.strangersSecretOfFirst) {
					disclosed.Store(a.Header.Get("X-Request-Id"), true)
				}
			}
			began := time.Now()
			for _, key := range []string{p.key, cold} {
				p.together(t, reads, gatewaytest.WithKey(key), judge)
			}
			t.Logf("after %s: %d right, %d unavailable", time.Since(began), right.Load(), away.Load())
			p.together(t, writes, gatewaytest.WithKey(p.key), func(r rowCall, a timed) {
				if a.took > within {
					t.Errorf("%s took %s", r, a.took)
				}
				if a.Code >= 500 && !isAway(t, r.String(), a.Answer) {
					t.Errorf("%s: %d %s", r, a.Code, a.Body)
				}
			})
			// A key of another organization is refused, or cannot be told now.
			if a := p.Get(t, stranger, "/api/campaigns/count"); !isAway(t, "a stranger's key", a) {
				wantDenied(t, "a stranger's key", a)
			}
			alive(t, w.Gateway)
			if isGone(fault) {
				readyIn(t, w.Gateway, http.StatusServiceUnavailable, "failed", map[string]string{"store": "down", "redis": "ok"}, readyLimit)
				if right.Load() > 0 {
					t.Errorf("%d answers come from nowhere", right.Load())
				}
				p.wantRevealRefused(t)
			} else if right.Load() == 0 {
				t.Errorf("nothing works with %s replies", fault.Name)
			}

			mongo.Heal(t)
			p.wantAllBack(t, reads, good, p.key, cold)
			readyIn(t, w.Gateway, http.StatusOK, "ok", map[string]string{"store": "ok"}, healLimit)
			p.wantRecorded(t, &disclosed)
			wantQuietLog(t, w.Gateway, p.key, cold, p.strangersSecretOfFirst)
		})
	}
}

// wantRevealRefused fails the test where revealing does not answer soon that it cannot be done now.
func (p *party) wantRevealRefused(t *testing.T) {
	t.Helper()
	reveal := ask{method: http.MethodGet, target: "/api/contacts/" + p.ids[refContact] + "/reveal-secret?field=" + secretField}
	var slowest time.Duration
	for range 5 {
		a := p.timed(t, reveal, gatewaytest.WithKey(p.key))
		if !isAway(t, "revealing", a.Answer) {
			t.Errorf("revealing: %d %s", a.Code, a.Body)
		}
		slowest = max(slowest, a.took)
	}
	t.Logf("revealing is refused within %s", slowest)
	if slowest > lookingAgain {
		t.Errorf("revealing is refused after %s", slowest)
	}
}

// wantAllBack waits until every read works with all keys.
func (p *party) wantAllBack(t *testing.T, reads []rowCall, good map[string]string, keys ...string) {
	t.Helper()
	took := inTime(t, "every read works again", healLimit, func() bool {
		works := true
		for _, r := range reads {
			for _, key := range keys {
				a := p.timed(t, r.ask, gatewaytest.WithKey(key))
				if !answers(t, r.String()+" after the outage", a, good[r.path], sampleFor(&r.op).volatile, withoutMongo) {
					works = false
				}
			}
		}
		return works
	})
	t.Logf("works again after %s", took)
}

// wantRecorded fails the test where a request was answered with a secret and has no record.
func (p *party) wantRecorded(t *testing.T, disclosed *sync.Map) {
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
		t.Errorf("request %s was answered with a secret and has no record", id)
		return true
	})
}

// TestKeysWhileRedisAndMongoAreDown holds that callers get service unavailable at once: none is denied, none has to
// wait.
func TestKeysWhileRedisAndMongoAreDown(t *testing.T) {
	t.Parallel()
	for _, fault := range []proxytest.Fault{proxytest.Refused(), proxytest.Silent()} {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			mongo, uri := awayMongo(t)
			redis := awayRedis(t)
			w := newQuietWorld(t, onMongo(t, uri), withRedis(redis.Addr))
			p := w.a
			cold, unknown := p.fullKey(t).Token, randomKey(t, "server_full")
			rows := w.rows(p, contract(keyed))
			if a := p.Get(t, p.key, "/api/campaigns/count"); a.Code != http.StatusOK {
				t.Fatalf("%d %s", a.Code, a.Body)
			}
			mongo.Break(t, fault)
			redis.Break(t, fault)
			for round := range 2 {
				for what, key := range map[string]string{"warm": p.key, "cold": cold, "unknown": unknown} {
					p.together(t, rows, gatewaytest.WithKey(key), func(r rowCall, a timed) {
						if !isAway(t, r.String(), a.Answer) {
							t.Errorf("%s with a %s key: %d %s", r, what, a.Code, a.Body)
						}
						if a.took > noticed {
							t.Errorf("%s with a %s key took %s in round %d", r, what, a.took, round)
						}
					})
				}
			}
			alive(t, w.Gateway)
			readyIn(t, w.Gateway, http.StatusServiceUnavailable, "failed", map[string]string{"store": "down", "redis": "down"}, readyLimit)
			mongo.Heal(t)
			redis.Heal(t)
			for what, key := range map[string]string{"warm": p.key, "cold": cold} {
				took := inTime(t, "the "+what+" key works again", healLimit, func() bool {
					a := p.Get(t, key, "/api/campaigns/count")
					if a.Code != http.StatusOK && !isAway(t, "after the outage", a) {
						t.Fatalf("after the outage: %d %s", a.Code, a.Body)
					}
					return a.Code == http.StatusOK
				})
				t.Logf("the %s key works again after %s", what, took)
			}
			wantDenied(t, "a key that nobody knows", p.Get(t, unknown, "/api/campaigns/count"))
			wantQuietLog(t, w.Gateway, p.key, cold, unknown)
		})
	}
}

// TestWarmKeysServeWithinTheGrace takes away the backend of organizations, people and keys while that of the
// documents stays.
func TestWarmKeysServeWithinTheGrace(t *testing.T) {
	t.Parallel()
	mongo, uri := awayMongo(t)
	var c clock
	database := mongotest.Database(t)
	w := newQuietWorld(t, c.option, func(cfg *config.Config, _ *gateway.Options) {
		if err := gatewaytest.UseMongo(cfg, uri, database); err != nil {
			t.Error(err)
		}
		cfg.Backends["local"] = config.Backend{Engine: config.EngineSQLite}
		cfg.Store = "local"
	})
	p := w.a
	_, cookie := p.Person(t, "person@example.com", nil)
	cold := p.fullKey(t).Token
	session := func(when string) {
		if a := p.Get(t, "", "/api/campaigns/count", gatewaytest.Cookie(cookie)); a.Code != http.StatusOK {
			t.Errorf("a session %s: %d %s", when, a.Code, a.Body)
		}
	}
	session("before the outage")
	reads := w.rows(p, contract(func(op *operation.Row) bool {
		return readsOf(op) && op.Audit == operation.NoAudit && op.Name != "users.get" && op.Name != "folders.get"
	})) // those two name people
	good := p.goodAnswers(t, reads)
	mongo.Break(t, proxytest.Refused())
	warm := func(when string) {
		p.together(t, reads, gatewaytest.WithKey(p.key), func(r rowCall, a timed) {
			if !answers(t, r.String()+" "+when, a, good[r.path], sampleFor(&r.op).volatile, withoutMongo) {
				t.Errorf("%s %s: unavailable after %s, though the key is warm", r, when, a.took)
			}
		})
		session(when)
	}
	warm("at once")
	readyIn(t, w.Gateway, http.StatusServiceUnavailable, "failed", map[string]string{"store": "down", "store.local": "ok"}, readyLimit)
	if a := p.Get(t, cold, "/api/campaigns/count"); !isAway(t, "a key that was not used before", a) {
		t.Errorf("a key that was not used before: %d %s", a.Code, a.Body)
	}
	// What is written needs a placement that was read just now: revealing leaves a record.
	for range 3 {
		a := p.timed(t, ask{method: http.MethodGet, target: "/api/contacts/" + p.ids[refContact] + "/reveal-secret?field=" + secretField}, gatewaytest.WithKey(p.key))
		if !isAway(t, "revealing", a.Answer) || a.took > withoutMongo {
			t.Errorf("revealing without the backend of placements: %d %s after %s", a.Code, a.Body, a.took)
		}
	}
	c.advance(15 * time.Second)
	warm("after 15 s")
	c.advance(40 * time.Second)
	p.together(t, reads, gatewaytest.WithKey(p.key), func(r rowCall, a timed) {
		if !isAway(t, r.String(), a.Answer) {
			t.Errorf("%s after the grace: %d %s", r, a.Code, a.Body)
		}
	})
	mongo.Heal(t)
	inTime(t, "both keys work again", healLimit, func() bool {
		return p.Get(t, p.key, "/api/campaigns/count").Code == http.StatusOK && p.Get(t, cold, "/api/campaigns/count").Code == http.StatusOK
	})
}

// TestOutageOfOneBackendSparesOthers holds that only the organizations of the lost backend are affected.
func TestOutageOfOneBackendSparesOthers(t *testing.T) {
	t.Parallel()
	mongo, uri := awayMongo(t)
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
		readyIn(t, g, http.StatusOK, "ok", map[string]string{"store": "ok", "store.eu": "ok"}, healLimit)
		for o, key := range map[*gatewaytest.Org]string{here: hereKey, there: thereKey} {
			inTime(t, "both organizations work", healLimit, func() bool { return o.Get(t, key, path).Code == http.StatusOK })
		}
		mongo.Break(t, fault)
		asked := time.Now()
		readyIn(t, g, http.StatusOK, "degraded", map[string]string{"store": "ok", "store.eu": "down"}, readyLimit)
		t.Logf("%s is told after %s", fault.Name, time.Since(asked))
		alive(t, g)
		for range 3 {
			started := time.Now()
			if a := here.Get(t, hereKey, path); a.Code != http.StatusOK || time.Since(started) > refusedAtOnce {
				t.Errorf("%s: the organization on the other backend: %d %s after %s", fault.Name, a.Code, a.Body, time.Since(started))
			}
			if a := there.Get(t, thereKey, path); !isAway(t, fault.Name, a) {
				t.Errorf("%s: the organization whose backend is away: %d %s", fault.Name, a.Code, a.Body)
			}
		}
		mongo.Heal(t)
	}
	wantQuietLog(t, g, hereKey, thereKey)
}
