package mongo_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/mongo"
	"tenantry/backends/mongo/mongotest"
	"tenantry/crypto/secret"
	"tenantry/internal/proxytest"
)

// behindProxy opens an engine that reaches the server through a proxy, which can interrupt the connection.
func behindProxy(t *testing.T, o mongo.Options) (*mongo.Engine, *proxytest.Proxy) {
	t.Helper()
	u, err := url.Parse(mongotest.URI(t))
	if err != nil {
		t.Fatal("the address of the MongoDB server is malformed") // the error repeats it
	}
	p := proxytest.Start(t, u.Host)
	u.Host = p.Addr
	if u.Path == "" {
		u.Path = "/"
	}
	query := u.Query()
	query.Del("replicaSet")
	query.Set("directConnection", "true") // otherwise the members' own addresses lead past the proxy
	u.RawQuery = query.Encode()
	o.URI, o.Database = secret.New(u.String()), mongotest.Database(t)
	e, err := mongo.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	awaitAnswer(t, e, time.Minute)
	return e, p
}

// awaitAnswer waits until the server answers, for longer than a client does, because the machine may be busy.
func awaitAnswer(t *testing.T, e *mongo.Engine, most time.Duration) {
	t.Helper()
	for started := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := e.Check(t.Context())
		if err == nil {
			return
		}
		if time.Since(started) > most {
			t.Fatalf("the engine does not reach the server after %s: %v", most, err)
		}
	}
}

// TestSilentServerIsNoticed holds that a call ends once the server has missed its heartbeats, long before the call's
// own deadline.
func TestSilentServerIsNoticed(t *testing.T) {
	t.Parallel()
	e, p := behindProxy(t, mongo.Options{QueryTimeout: time.Minute})
	time.Sleep(1500 * time.Millisecond) // the client checks the server more often at first
	p.Break(t, proxytest.Silent())
	started := time.Now()
	err := e.Check(t.Context())
	took := time.Since(started)
	t.Logf("after %s: %v", took, err)
	if !errors.Is(err, driver.ErrUnavailable) || took > 10*time.Second {
		t.Errorf("Check: %v after %s, want %v within 10s", err, took, driver.ErrUnavailable)
	}
}

// TestOutageIsLoggedOnce holds that an outage is logged when it begins and when it ends, however long it lasts and
// however often the breaker tries.
func TestOutageIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // written under the breaker's lock, read while no calls run
	e, p := behindProxy(t, mongo.Options{ServerSelectionTimeout: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
	log.Reset() // a busy machine may have had an outage of its own
	p.Break(t, proxytest.Refused())
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err := e.Check(t.Context()); !errors.Is(err, driver.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	p.Heal(t)
	started := time.Now()
	awaitAnswer(t, e, time.Minute)
	t.Logf("works again after %s", time.Since(started))
	for _, line := range []string{"MongoDB does not answer", "MongoDB answers again"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%q is logged %d times, want once:\n%s", line, n, log.String())
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want 2:\n%s", n, log.String())
	}
}
