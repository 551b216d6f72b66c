//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tenantry/backends/mongo/mongotest"
	"tenantry/tenants/redistest"
)

// previousProgram is the variable with the path of the previous release's program. The tests of upgrades alternate
// between it and this version, in both directions; if it is not set, they replace this version by itself.
const previousProgram = "TENANTRY_TEST_PREVIOUS"

// versionOf makes every second process one of the previous release.
func versionOf(n int) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		path := os.Getenv(previousProgram)
		if path == "" || n%2 == 1 {
			return
		}
		cmd.Path, cmd.Err = path, nil
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, asCommand) })
	}
}

// probeFailures is how often a probe must fail in turn before a replica gets no more requests.
const probeFailures = 3

// replicas are servers behind a balancer that asks each whether it is ready, and sends nothing to those that are not.
type replicas struct {
	sync.Mutex
	ready []*running
	turn  int
}

// next returns the address of a ready server, in turns.
func (r *replicas) next() (string, error) {
	r.Lock()
	defer r.Unlock()
	if len(r.ready) == 0 {
		return "", errors.New("no replica is ready")
	}
	r.turn++
	return r.ready[r.turn%len(r.ready)].address, nil
}

func (r *replicas) has(s *running) bool {
	r.Lock()
	defer r.Unlock()
	return slices.Contains(r.ready, s)
}

// probe asks a server whether it is ready until its context ends.
func (r *replicas) probe(ctx context.Context, s *running, every time.Duration) {
	client := &http.Client{Timeout: time.Second / 2}
	for failures := probeFailures; ctx.Err() == nil; {
		failures++
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/readyz", http.NoBody)
		if err == nil {
			resp, err := client.Do(req)
			if err == nil && resp.StatusCode == http.StatusOK {
				failures = 0
			}
			if err == nil {
				_ = resp.Body.Close()
			}
		}
		r.Lock()
		r.ready = slices.DeleteFunc(r.ready, func(one *running) bool { return one == s })
		if failures < probeFailures && ctx.Err() == nil {
			r.ready = append(r.ready, s)
		}
		r.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

// balanced is a transport that sends each request to a replica that is ready.
type balanced struct {
	*replicas
	to http.RoundTripper
}

func (b balanced) RoundTrip(r *http.Request) (*http.Response, error) {
	address, err := b.next()
	if err != nil {
		return nil, err
	}
	r.URL.Host = address
	return b.to.RoundTrip(r)
}

// TestUpgrade_Replicas replaces three replicas on one store and Redis one after another, by the other version and back,
// under load. No request is refused, cut or lost. It needs a server of the MongoDB protocol, and Redis.
func TestUpgrade_Replicas(t *testing.T) {
	t.Parallel()
	upgrades, requests := 2, int64(2000)
	if os.Getenv(longTests) != "" {
		upgrades, requests = 20, 100_000
	}
	const count, probes = 3, 50 * time.Millisecond
	dir := t.TempDir()
	uri, name, redis := mongotest.URI(t), mongotest.Database(t), redistest.Start(t)
	settings := func(n int) string {
		file := filepath.Join(dir, fmt.Sprintf("%d.yaml", n))
		text := fmt.Sprintf("data: %s\nkeyring: %s\nstore: main\ncontrol: main\nbackends:\n  main: {engine: mongo, uri: %q, database: %s}\n"+
			"redis: {addrs: [%q]}\nlisten: 127.0.0.1:0\nadmin_listen: 127.0.0.1:0\npublic_url: http://{slug}.localhost\n"+
			"timeouts: {drain: 3s}\nlimits: {key: off, organization: off}\nlog: {requests: false}\n",
			filepath.Join(dir, fmt.Sprint(n)), filepath.Join(dir, "keyring.json"), uri, name, redis.Addr)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	files := [count]string{}
	for n := range files {
		files[n] = settings(n)
	}
	token := organization(t, "--config", files[0])
	r := &replicas{}
	ctx, cancel := context.WithCancel(t.Context())
	var probing sync.WaitGroup
	defer probing.Wait()
	defer cancel()
	var now [count]*running
	var forget [count]context.CancelFunc
	begin := func(n, version int) *running {
		s, failed := start(t, versionOf(version), "--config", files[n])
		if s == nil {
			code, text := failed.wait(t)
			t.Fatalf("replica %d ended with %d: %s", n, code, text)
		}
		probed, cancel := context.WithCancel(ctx)
		forget[n] = cancel // because another process may get its port
		probing.Go(func() { r.probe(probed, s, probes) })
		return s
	}
	replace := func(n, version int) {
		now[n] = begin(n, version)
		for end := time.Now().Add(time.Minute); !r.has(now[n]); time.Sleep(probes) {
			if time.Now().After(end) {
				t.Fatalf("replica %d does not become ready", n)
			}
		}
	}
	for n := range now {
		replace(n, 0)
	}
	l := startLoad(t, func(to http.RoundTripper) http.RoundTripper { return balanced{r, to} }, "", token)
	for i := range upgrades {
		l.await(t, requests*int64(i+1)/int64(upgrades+1))
		for n := range now {
			now[n].signal(t, syscall.SIGTERM)
			if code, text := now[n].wait(t); code != 0 {
				t.Errorf("upgrade %d: replica %d ended with %d: %s", i, n, code, text)
			}
			if r.has(now[n]) {
				t.Errorf("upgrade %d: replica %d ended before it was taken out", i, n)
			}
			forget[n]()
			replace(n, i+1)
		}
	}
	l.await(t, requests)
	l.end(t, now[0].address, token)
}
