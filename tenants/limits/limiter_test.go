package limits

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/internal/rate"
	"tenantry/tenants/localredis"
	"tenantry/tenants/redisconn"
)

// someOrganization returns one that no other test uses.
func someOrganization() int64 { return 1 + rand.Int64N(1<<50) }

// prefix is what names of an organization begin with.
func prefix(org int64) string { return fmt.Sprintf("tnt:{%d}:", org) }

func request(t testing.TB, org int64, caller Caller, limits ...string) Request {
	t.Helper()
	r := Request{Prefix: prefix(org), Caller: caller}
	for i, into := range []*rate.Limit{&r.Limits.Organization.Rate, &r.Limits.Organization.Quota, &r.Limits.Key.Rate, &r.Limits.Key.Quota} {
		if i < len(limits) {
			*into = mustParse(t, limits[i])
		}
	}
	return r
}

func TestLimiterParts(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, l *Limiter) {
		t.Helper()
		take := func(r Request) Decision { return l.Take(t.Context(), r) }
		org, other := someOrganization(), someOrganization()
		mine := request(t, org, Key("a"), "5/h", "off", "2/h")
		for range 2 {
			if d := take(mine); d.Refused || d.Name != "caller rate" {
				t.Fatalf(`got %+v, want d.Name = "caller rate"`, d)
			}
		}
		if d := take(mine); !d.Refused || d.Name != "caller rate" || d.Limit.Count() != 2 || d.Wait < 29*time.Minute {
			t.Errorf("a third request of a key: %+v", d)
		}
		for _, caller := range []Caller{Key("b"), Person(7), Anonymous(netip.MustParseAddr("192.0.2.1"))} {
			if d := take(request(t, org, caller, "5/h", "off", "2/h")); d.Refused {
				t.Errorf("the first request of %+v: %+v", caller, d)
			}
		}
		if d := take(request(t, org, Person(8), "5/h", "off", "2/h")); !d.Refused || d.Name != "organization rate" {
			t.Errorf("the organization's sixth: %+v", d)
		}
		l.Return(t.Context(), mine)
		if d := take(request(t, org, Person(8), "5/h", "off", "2/h")); d.Refused {
			t.Errorf("after one was given back: %+v", d)
		}
		if d := take(mine); !d.Refused || d.Name != "caller rate" {
			t.Errorf("what was given back is not the caller's: %+v", d)
		}
		if d := take(request(t, other, Key("a"), "5/h", "off", "2/h")); d.Refused || d.Remaining != 1 {
			t.Errorf("another organization: %+v", d)
		}
		if d := take(request(t, other, Key("c"), "off", "off", "off", "off")); d != (Decision{}) {
			t.Errorf("without limits: %+v", d)
		}
		// Defaults fill the gaps.
		if d := take(Request{Prefix: prefix(someOrganization()), Caller: Key("a")}); d.Refused || d.Limit != mustParse(t, "8/d") || d.Name != "caller quota" || d.Remaining != 7 {
			t.Errorf("by default: %+v", d)
		}
	}
	defaults := rate.Set{Organization: rate.Pair{Rate: mustParse(t, "100/s"), Quota: mustParse(t, "1000/d")}, Key: rate.Pair{Rate: mustParse(t, "50/s"), Quota: mustParse(t, "8/d")}}
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		l := New(Options{Defaults: defaults})
		test(t, l)
		if l.Local() != 0 {
			t.Error("counting locally without Redis is logged as an outage")
		}
	})
	onRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := patient(Options{Redis: redisconn.Of(client), Defaults: defaults, Prefix: prefix(someOrganization())})
		test(t, l)
		if n := l.Local(); n != 0 {
			t.Errorf("%d requests were not counted in Redis", n)
		}
	})
}

// TestVisitorsOfAKeyAreLimitedSeparately checks that a visitor who uses up the limit of one visitor leaves the key to
// the others.
func TestVisitorsOfAKeyAreLimitedSeparately(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, l *Limiter) {
		t.Helper()
		org := someOrganization()
		take := func(address string) Decision {
			from, _ := netip.ParseAddr(address)
			r := request(t, org, Visitor("a", from), "1000/h", "off", "40/h", "off")
			r.Limits.Visitor = rate.Pair{Rate: mustParse(t, "3/h"), Quota: mustParse(t, "2/d")}
			return l.Take(t.Context(), r)
		}
		for range 30 {
			take("192.0.2.1")
		}
		if d := take("192.0.2.1"); !d.Refused || d.Name != "visitor quota" || d.Limit != mustParse(t, "2/d") {
			t.Errorf("one visitor, over and over: %+v", d)
		}
		for i, address := range []string{"192.0.2.2", "2001:db8::1", "2001:db8::ffff:2", "", ""} {
			if d := take(address); d.Refused {
				t.Errorf("request %d, of %q: %+v", i, address, d)
			}
		}
		for _, address := range []string{"2001:db8::3", ""} {
			if d := take(address); !d.Refused || d.Name != "visitor quota" {
				t.Errorf("a third of the network of %q: %+v", address, d)
			}
		}
		if d := l.Take(t.Context(), request(t, org, Key("a"), "1000/h", "off", "40/h", "off")); d.Refused || d.Remaining != 40-2-5-1 {
			t.Errorf("what is left of the key: %+v", d)
		}
	}
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		test(t, New(Options{}))
	})
	onRedis(t, func(t *testing.T, client redis.UniversalClient) {
		test(t, patient(Options{Redis: redisconn.Of(client)}))
	})
}

// TestReplicasCountTogether checks that two limiters, like those of two replicas, together admit no more than one limit
// allows.
func TestReplicasCountTogether(t *testing.T) {
	t.Parallel()
	onRedis(t, func(t *testing.T, client redis.UniversalClient) {
		replicas := []*Limiter{patient(Options{Redis: redisconn.Of(client)}), patient(Options{Redis: redisconn.Of(client)})}
		r := request(t, someOrganization(), Key("a"), "off", "off", "100/s", "off")
		const perSecond = 100
		var admitted, refused atomic.Int64
		// Longer than a window, so that the rate shows and not the burst alone.
		ctx, stop := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer stop()
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for ctx.Err() == nil || refused.Load() == 0 {
					if replicas[i%2].Take(t.Context(), r).Refused {
						refused.Add(1)
					} else {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		took := time.Since(began)
		if most := perSecond + int64(took.Seconds()*perSecond) + 1; admitted.Load() > most || admitted.Load() < perSecond {
			t.Errorf("%d were admitted in %v, at most %d may be", admitted.Load(), took, most)
		}
	})
}

func TestScriptIsLoadedAgain(t *testing.T) {
	t.Parallel()
	// Not the shared server: others run scripts there.
	client := inProcess(t)
	l := patient(Options{Redis: redisconn.Of(client)})
	r := request(t, 1, Key("a"), "5/h", "off", "4/h")
	for left := int64(3); left >= 0; left-- {
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if d := l.Take(t.Context(), r); d.Refused || d.Remaining != left {
			t.Fatalf("got %+v, want d.Remaining = %v", d, left)
		}
	}
	if err := client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	l.Return(t.Context(), r)
	if d := l.Take(t.Context(), request(t, 1, Key("b"), "5/h", "off", "4/h")); d.Refused || d.Remaining != 1 || l.Local() != 0 {
		t.Errorf("%+v, %d counted here", d, l.Local())
	}
}

// blackHole accepts connections and never answers.
func blackHole(t *testing.T) redis.UniversalClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			})
		}
	})
	client, err := redisconn.Dial(redisconn.Options{Addrs: []string{listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = listener.Close()
		_ = client.Close()
		conns.Wait()
	})
	return client
}

// TestLimitsHoldWithRedisBlackHoled holds that a Redis that never answers makes no request wait long and none
// unlimited.
func TestLimitsHoldWithRedisBlackHoled(t *testing.T) {
	t.Parallel()
	log := &lines{}
	var ahead atomic.Int64
	now := func() time.Time { return time.Unix(1_800_000_000, ahead.Load()) }
	l := New(Options{
		Redis: redisconn.Of(blackHole(t)), Breaker: redisconn.NewBreaker(slog.New(slog.NewTextHandler(log, nil)), now), Now: now,
	})
	r := request(t, 1, Key("a"), "20/h", "off", "10/h")
	admitted := 0
	began := time.Now()
	for range 200 {
		if !l.Take(t.Context(), r).Refused {
			admitted++
		}
	}
	// One request waits for Redis; all of them would wait 20 s.
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("200 requests took %v", took)
	}
	if admitted != 10 || l.Local() != 200 {
		t.Errorf("%d were admitted instead of 10, %d were counted here instead of 200", admitted, l.Local())
	}
	for range 3 { // after a pause one request tries Redis, and fails again
		ahead.Add(int64(redisconn.Pause))
		if d := l.Take(t.Context(), r); !d.Refused {
			t.Errorf("a request over the limit was admitted by the probe: %+v", d)
		}
	}
	l.Return(t.Context(), r)
	if d := l.Take(t.Context(), request(t, 1, Key("b"), "20/h", "off", "100/h")); d.Refused || d.Remaining != 10 {
		t.Errorf("given back while Redis is away: %+v", d)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "Redis does not answer") {
		t.Errorf("one outage is logged in %d lines, want 1:\n%s", n, log)
	}
}

func TestLimitsWithRedisGoneAndBack(t *testing.T) {
	t.Parallel()
	server, err := localredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := localredis.Dial(server, redisconn.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	fault := &faultHook{}
	client.AddHook(fault)
	log := &lines{}
	var ahead atomic.Int64
	now := func() time.Time { return time.Unix(1_800_000_000, ahead.Load()) }
	l := patient(Options{
		Redis: redisconn.Of(client), Breaker: redisconn.NewBreaker(slog.New(slog.NewTextHandler(log, nil)), now), Now: now,
	})
	r := request(t, 1, Key("a"), "off", "off", "10/h")
	for range 4 {
		l.Take(t.Context(), r)
	}
	fault.on.Store(true)
	if d := l.Take(t.Context(), r); d.Refused || d.Remaining != 9 || l.Local() != 1 {
		t.Errorf("while Redis is away this process counts from what it has seen: %+v, %d", d, l.Local())
	}
	fault.on.Store(false)
	if l.Take(t.Context(), r); l.Local() != 2 {
		t.Error("Redis was used during the pause")
	}
	asked := fault.asked.Load()
	ahead.Add(int64(redisconn.Pause))
	if d := l.Take(t.Context(), r); d.Remaining != 5 || l.Local() != 2 {
		t.Errorf("Redis is back, and has counted four: %+v, %d", d, l.Local())
	}
	if n := fault.asked.Load() - asked; n < 1 {
		t.Error("Redis was not asked")
	}
	if got := log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "answers again") {
		t.Errorf("told:\n%s", got)
	}

	// A request whose context has ended says nothing about Redis.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	l.Take(gone, r)
	if d := l.Take(t.Context(), r); d.Remaining != 4 {
		t.Errorf("after a caller went away: %+v", d)
	}
}

// TestOneRequestProbesRedisAfterAPause checks that at most one request at a time waits for Redis during an outage.
func TestOneRequestProbesRedisAfterAPause(t *testing.T) {
	t.Parallel()
	client := inProcess(t)
	fault := &faultHook{}
	fault.on.Store(true)
	client.AddHook(fault)
	var ahead atomic.Int64
	l := New(Options{Redis: redisconn.Of(client), Now: func() time.Time { return time.Unix(1_800_000_000, ahead.Load()) }})
	r := request(t, 1, Key("a"), "100/h")
	l.Take(t.Context(), r)
	before := fault.asked.Load()
	ahead.Add(int64(redisconn.Pause))
	waiting, done := make(chan struct{}), make(chan struct{})
	fault.hang.Store(&waiting)
	go func() {
		defer close(done)
		l.Take(t.Context(), r)
	}()
	<-waiting // the first waits for Redis now
	for range 50 {
		l.Take(t.Context(), r)
	}
	if n := fault.asked.Load() - before; n != 1 {
		t.Errorf("%d requests tried Redis, not 1", n)
	}
	select { // only the limiter's own timeout ends it
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a request waits for Redis without end")
	}
	if l.Local() != 52 {
		t.Errorf("%d were counted here, not 52", l.Local())
	}
}

type faultHook struct {
	on    atomic.Bool
	asked atomic.Int64
	hang  atomic.Pointer[chan struct{}] // if set, the next call closes it and waits for the end of its context
}

func (h *faultHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *faultHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.asked.Add(1)
		if waiting := h.hang.Swap(nil); waiting != nil {
			close(*waiting)
			<-ctx.Done()
		}
		if h.on.Load() {
			err := errors.New("broken by the test")
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *faultHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// lines is a log that may be written by many.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestLocalIsBounded(t *testing.T) {
	t.Parallel()
	l := New(Options{Defaults: rate.Set{Key: rate.Pair{Rate: mustParse(t, "1/d")}}})
	for i := range int64(2 * localCapacity) {
		l.Take(t.Context(), Request{Prefix: prefix(1), Caller: Person(i)})
	}
	if n := len(l.local.parties.Values()); n > localCapacity {
		t.Errorf("%d parties are kept, want at most %d", n, localCapacity)
	}
}

// TestAnonymousCountersEvictNobody checks that counters of unlimited addresses and host names are bounded, and do not
// evict the counter of a key.
func TestAnonymousCountersEvictNobody(t *testing.T) {
	t.Parallel()
	l := New(Options{Defaults: rate.Set{Organization: rate.Pair{Quota: mustParse(t, "100000000/d")}, Key: rate.Pair{Quota: mustParse(t, "3/d")}, Address: rate.Pair{Rate: mustParse(t, "5/s")}}})
	key := Request{Prefix: "a:", Caller: Key("a")}
	l.Take(t.Context(), key)
	for i := range uint32(3 * localCapacity) {
		l.Take(t.Context(), Request{Prefix: "a:", Caller: Anonymous(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))})
	}
	if n := len(l.local.transient.Values()); n > localCapacity || n < localCapacity/4 {
		t.Errorf("%d addresses are kept, want at most %d", n, localCapacity)
	}
	if d := l.Take(t.Context(), key); d.Remaining != 1 {
		t.Errorf("the key's counter was evicted: %+v", d)
	}
	for i := range 2 * localCapacity {
		from := netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)})
		nobodys := Request{Prefix: strconv.Itoa(i) + ":", Transient: true, Caller: Anonymous(from)}
		l.Take(t.Context(), nobodys)
		l.Return(t.Context(), nobodys)
	}
	if d := l.Take(t.Context(), key); d.Remaining != 0 {
		t.Errorf("the key's counter was evicted by host names: %+v", d)
	}
}

func TestNetwork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::", "::1": "::",
	} {
		if got := Network(netip.MustParseAddr(text)); got.String() != want {
			t.Errorf("Network(%s) = %s, want %s", text, got, want)
		}
	}
	if got := Network(netip.Addr{}); got.IsValid() {
		t.Errorf("Network of the zero address = %s", got)
	}
}

// TestAddressesAreLimitedSeparately checks that an address uses up only its own limit, that a few addresses do not use
// up the limit of all, and that all together leave the organization's own callers their half.
func TestAddressesAreLimitedSeparately(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, l *Limiter) {
		t.Helper()
		prefix := fmt.Sprintf("tnt:{%d}:x:", someOrganization())
		take := func(c Caller) Decision { return l.Take(t.Context(), Request{Prefix: prefix, Caller: c}) }
		at := func(n int) Caller {
			return Anonymous(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, byte(n), 1, 2, 3, 4, 5, 6, 7, byte(rand.IntN(256))}))
		}
		use := func(c func() Caller) (n int, last Decision) {
			for n = 0; n < 200; n++ {
				if last = take(c()); last.Refused {
					break
				}
			}
			return n, last
		}
		for junk := range 3 {
			if n, last := use(func() Caller { return at(junk) }); n != 4 || last.Name != "address rate" {
				t.Errorf("address %d had %d requests, %+v; want a tenth of half of 80", junk, n, last)
			}
		}
		if d := take(at(9)); d.Refused {
			t.Errorf("after three addresses that used up theirs, another: %+v", d)
		}
		next := 10
		if n, last := use(func() Caller { next++; return at(next) }); n != 40-13 || last.Name != "anonymous rate" {
			t.Errorf("%d more of many addresses, %+v; want half of the organization's in all", n, last)
		}
		if n, last := use(func() Caller { return Key("a") }); n != 40 || last.Name != "organization rate" {
			t.Errorf("a key had %d requests, %+v; want the other half", n, last)
		}
		l.Return(t.Context(), Request{Prefix: prefix, Caller: at(0)})
		if d := take(at(0)); !d.Refused || d.Name != "address rate" {
			t.Errorf("what is given back is not the address's: %+v", d)
		}
		if d := take(at(200)); d.Refused {
			t.Errorf("given back to all together: %+v", d)
		}
	}
	onLimiters(t, rate.Set{Organization: rate.Pair{Rate: mustParse(t, "80/h")}}, test)
}

// onLimiters runs a test of strangers on a Limiter that counts by itself and on others that count in Redis.
func onLimiters(t *testing.T, defaults rate.Set, test func(*testing.T, *Limiter)) {
	t.Helper()
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		test(t, New(Options{Defaults: defaults}))
	})
	onRedis(t, func(t *testing.T, client redis.UniversalClient) {
		test(t, patient(Options{Redis: redisconn.Of(client), Defaults: defaults, Prefix: prefix(someOrganization())}))
	})
}

// TestAddressLimitSpansAllHosts holds that an address has one limit over all hosts, known and unknown.
func TestAddressLimitSpansAllHosts(t *testing.T) {
	t.Parallel()
	onLimiters(t, rate.Set{Address: rate.Pair{Rate: mustParse(t, "6/h"), Quota: mustParse(t, "5/d")}}, func(t *testing.T, l *Limiter) {
		at := func(host int, address string) Decision {
			return l.Take(t.Context(), Request{Prefix: prefix(someOrganization()), Transient: host%2 == 0, Caller: Anonymous(netip.MustParseAddr(address))})
		}
		for i := range 20 {
			d := at(i, fmt.Sprintf("2001:db8::%x", i))
			if d.Refused != (i >= 5) || d.Limit != mustParse(t, "5/d") || d.Name != "address quota" || d.Remaining != max(int64(4-i), 0) {
				t.Errorf("host %d: %+v", i, d)
			}
		}
		if d := at(0, "192.0.2.1"); d.Refused {
			t.Errorf("another address: %+v", d)
		}
	})
}

// TestLimitsAreNotRevealedToAnonymousCallers holds that neither an answer's headers nor a refusal's depend on the
// organization's limits.
func TestLimitsAreNotRevealedToAnonymousCallers(t *testing.T) {
	t.Parallel()
	defaults := rate.Set{Organization: rate.Pair{Rate: mustParse(t, "1000/h"), Quota: mustParse(t, "10000/d")}, Address: rate.Pair{Rate: mustParse(t, "6/h")}}
	onLimiters(t, defaults, func(t *testing.T, l *Limiter) {
		next := byte(0)
		fresh := func() Caller { next++; return Anonymous(netip.AddrFrom4([4]byte{10, 0, 0, next})) }
		take := func(org string, c Caller, own rate.Set) Decision {
			d := l.Take(t.Context(), Request{Prefix: org, Caller: c, Limits: own})
			d.Reset, d.Wait = d.Reset.Round(time.Minute), d.Wait.Round(time.Minute)
			return d
		}
		for _, own := range []rate.Set{
			{Organization: rate.Pair{Rate: mustParse(t, "20/h")}}, {Organization: rate.Pair{Quota: mustParse(t, "20/d")}}, {Organization: rate.Pair{Rate: rate.Unlimited(), Quota: rate.Unlimited()}},
			{Organization: rate.Pair{Rate: mustParse(t, "100000/h")}, Address: rate.Pair{Rate: mustParse(t, "2/h"), Quota: mustParse(t, "3/d")}},
		} {
			known, unknown, a, b := prefix(someOrganization()), prefix(someOrganization()), fresh(), fresh()
			for i := range 8 {
				if d, want := take(known, a, own), take(unknown, b, rate.Set{}); d != want || d.Refused != (i >= 6) {
					t.Errorf("%+v: %+v of an organization with limits of its own, %+v of another", own, d, want)
				}
			}
			if own.Organization.Rate.Count() > 20 || own.Organization == (rate.Pair{Rate: rate.Unlimited(), Quota: rate.Unlimited()}) {
				continue
			}
			for range 4 {
				take(known, fresh(), own)
			}
			d := take(known, fresh(), own) // strangers have used up their half
			if !d.Refused || !strings.HasPrefix(d.Name, "anonymous") || d.Limit != mustParse(t, "6/h") || d.Remaining != 5 || d.Wait != 0 {
				t.Errorf("%+v: %+v, when strangers have no more", own, d)
			}
		}
	})
}

func BenchmarkTake(b *testing.B) {
	r := request(b, someOrganization(), Key("0123456789abcdef01234567"), "100000000/s", "off", "100000000/s")
	run := func(l *Limiter) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l.Take(b.Context(), r)
			}
			if n := l.Local(); n > 0 {
				b.Fatalf("%d were not counted in Redis", n)
			}
		}
	}
	b.Run("local", run(New(Options{})))
	b.Run("script in process", run(New(Options{Redis: redisconn.Of(inProcess(b))})))
	b.Run("script on a server", func(b *testing.B) { run(New(Options{Redis: redisconn.Of(server(b))}))(b) })
}
