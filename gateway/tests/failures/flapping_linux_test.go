package failures

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/proxytest"
)

// flapping is how long the servers come and go.
const flapping = 20 * time.Second

var labelled = regexp.MustCompile(`(?m)^([0-9]+) @.*\n# labels: \{[^}]*"flapping":"yes"`)

// labelledGoroutines counts the goroutines that were started, directly or indirectly, under the label.
func labelledGoroutines(t *testing.T) int {
	t.Helper()
	var out bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&out, 1); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range labelled.FindAllSubmatch(out.Bytes(), -1) {
		count, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		n += count
	}
	return n
}

// connectionsTo counts the connections of this machine to a loopback address.
func connectionsTo(t *testing.T, addr string) int {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		const established = "01"
		if len(fields) > 3 && fields[3] == established && strings.HasSuffix(fields[2], fmt.Sprintf(":%04X", number)) {
			n++
		}
	}
	return n
}

// TestFlappingServersLeakNothing takes Redis and MongoDB away and back under load. Afterwards the gateway has as
// many goroutines and connections as before.
func TestFlappingServersLeakNothing(t *testing.T) {
	t.Parallel()
	const workers = 8
	mongo, uri := proxiedMongo(t)
	redis := proxiedRedis(t)
	var w *fixture.World
	pprof.Do(t.Context(), pprof.Labels("flapping", "yes"), func(context.Context) {
		w = fixture.NewQuietWorld(t, onMongo(t, uri), fixture.WithRedis(redis.Addr))
	})
	p := w.A
	rows := rowCalls(w, p, contract(readsOf))
	good := goodAnswers(t, p, rows)
	var right, away atomic.Int64
	load := func(during func()) {
		var stop atomic.Bool
		var running sync.WaitGroup
		for n := range workers {
			running.Go(func() {
				for i := n; !stop.Load(); i++ {
					r := rows[i%len(rows)]
					if answers(t, r.String(), timeCall(t, p, r.ask, gatewaytest.WithKey(p.FullKey)), good[r.path], fixture.SampleFor(&r.op).Volatile, mongoOutageLimit) {
						right.Add(1)
					} else {
						away.Add(1)
					}
					time.Sleep(5 * time.Millisecond) // leaves the processors to other tests
				}
			})
		}
		during()
		stop.Store(true)
		running.Wait()
	}
	idle := func() (goroutines, toMongo, toRedis int) {
		w.Idle()
		return labelledGoroutines(t), connectionsTo(t, mongo.Addr), connectionsTo(t, redis.Addr)
	}

	load(func() { time.Sleep(2 * time.Second) })
	if away.Load() > 0 || right.Load() == 0 {
		t.Fatalf("before: %d right, %d unavailable, want no away and at least 1 right", right.Load(), away.Load())
	}
	time.Sleep(500 * time.Millisecond) // until the last answers are behind the handlers
	goroutines, toMongo, toRedis := idle()
	if goroutines == 0 || toMongo == 0 || toRedis == 0 {
		t.Fatalf("before: %d goroutines, %d connections to MongoDB, %d to Redis: something is not counted, want at least 1 goroutines, at least 1 toMongo and at least 1 toRedis",
			goroutines, toMongo, toRedis)
	}
	load(func() {
		faults := []proxytest.Fault{proxytest.Refused(), proxytest.Reset(), proxytest.Silent(), proxytest.Cut(300)}
		for n, end := 0, time.Now().Add(flapping); time.Now().Before(end); n++ {
			fault := faults[n%len(faults)]
			which := []*proxytest.Proxy{mongo, redis}[n/len(faults)%2 : n/len(faults)%2+1]
			if n%3 == 0 {
				which = []*proxytest.Proxy{mongo, redis}
			}
			for _, one := range which {
				one.Break(t, fault)
			}
			lasts := 300 * time.Millisecond
			if n%12 == 0 { // both refuse, for longer than a call looks for a server
				lasts = 3 * time.Second
			}
			time.Sleep(lasts)
			for _, one := range which {
				one.Heal(t)
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	t.Logf("%d right, %d unavailable", right.Load(), away.Load())
	if away.Load() == 0 {
		t.Error("got no unavailable answer, want some during the outages")
	}
	fixture.AwaitWithin(t, "all is well again", healLimit, func() bool {
		return p.Get(t, p.FullKey, "/api/campaigns/count").Code == http.StatusOK
	})
	load(func() { time.Sleep(2 * time.Second) })
	const slack = 12 // connections that a pool opens in advance, with their goroutines
	deadline := time.Now().Add(20 * time.Second)
	for {
		g, m, r := idle()
		if g <= goroutines+slack && m <= toMongo+slack && r <= toRedis+slack {
			t.Logf("goroutines %d to %d, connections to MongoDB %d to %d, to Redis %d to %d", goroutines, g, toMongo, m, toRedis, r)
			break
		}
		if time.Now().After(deadline) {
			var stacks bytes.Buffer
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			t.Fatalf("goroutines %d to %d, connections to MongoDB %d to %d, to Redis %d to %d, want as many as before\n%.20000s",
				goroutines, g, toMongo, m, toRedis, r, stacks.String())
		}
		time.Sleep(100 * time.Millisecond)
	}
	wantQuietLog(t, w.Gateway, p.FullKey)
}
