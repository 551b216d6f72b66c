package failures

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/proxytest"
)

// TestStartWaitsForMongo checks that the start waits for a server that comes up a moment later, and names one that does
// not, with what to do.
func TestStartWaitsForMongo(t *testing.T) {
	t.Parallel()
	mongo, uri := proxiedMongo(t)
	database := mongotest.Database(t)
	for _, fault := range []proxytest.Fault{proxytest.Refused(), proxytest.Silent()} {
		mongo.Break(t, fault)
		cfg := fixture.Config(t)
		if err := gatewaytest.UseMongo(&cfg, uri, database); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		_, err := gatewaytest.New(t.Context(), cfg, gateway.Options{Holder: "a test", Init: true, WaitForStore: time.Second})
		if took := time.Since(started); took > 20*time.Second {
			t.Errorf("%s: the start gave up after %s, want at most 20 s", fault.Name, took)
		}
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "backends.mongo.uri") || strings.Contains(err.Error(), uri) {
			t.Errorf(`%s: got %v, want the error store.ErrUnavailable and containing "backends.mongo.uri"`, fault.Name, err)
		}
		t.Logf("%s: %v", fault.Name, err)
		mongo.Heal(t)
	}

	mongo.Break(t, proxytest.Refused())
	var log gatewaytest.Buffer
	cfg := fixture.Config(t)
	if err := gatewaytest.UseMongo(&cfg, uri, database); err != nil {
		t.Fatal(err)
	}
	healed := make(chan struct{})
	go func() { // once the start waits
		defer close(healed)
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if strings.Contains(log.String(), "waiting for the control backend") {
				break
			}
		}
		mongo.Heal(t)
	}()
	app, err := gatewaytest.New(t.Context(), cfg, gateway.Options{
		Holder: "a test", Init: true, Log: slog.New(slog.NewJSONHandler(&log, nil)), WaitForStore: time.Minute,
	})
	<-healed
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
	for _, line := range []string{"waiting for the control backend", "the control backend answers"} {
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%q is logged %d times, want 1", line, n)
		}
	}
}

// TestStartCanBeCancelledWhileWaiting checks that stopping the gateway does not wait for MongoDB.
func TestStartCanBeCancelledWhileWaiting(t *testing.T) {
	t.Parallel()
	mongo, uri := proxiedMongo(t)
	mongo.Break(t, proxytest.Refused())
	cfg := fixture.Config(t)
	if err := gatewaytest.UseMongo(&cfg, uri, mongotest.Database(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	started := time.Now()
	_, err := gatewaytest.New(ctx, cfg, gateway.Options{Holder: "a test", WaitForStore: time.Hour})
	if took := time.Since(started); err == nil || took > 10*time.Second {
		t.Errorf("the start ended after %s with %v, want an error and at most 10 s", took, err)
	}
}

// TestStartDoesNotNeedOtherBackends checks that only organizations of a missing backend need it.
func TestStartDoesNotNeedOtherBackends(t *testing.T) {
	t.Parallel()
	mongo, uri := proxiedMongo(t)
	mongo.Break(t, proxytest.Refused())
	database := mongotest.Database(t)
	g := gatewaytest.Start(t, gatewaytest.Embedded, withEU(t, uri, database))
	acme := g.Org(t, "acme")
	if a := acme.Get(t, acme.Key(t), "/api/campaigns/count"); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
	}
	fixture.ReadyIn(t, g, http.StatusOK, "degraded", map[string]string{"store": "ok", "store.eu": "down"}, fixture.ReadyLimit)
	mongo.Heal(t)
	fixture.ReadyIn(t, g, http.StatusOK, "ok", map[string]string{"store.eu": "ok"}, healLimit)
}

// withEU adds a MongoDB backend named eu to the SQLite one.
func withEU(t *testing.T, uri, database string) gatewaytest.Option {
	return func(c *config.Config, _ *gateway.Options) {
		eu := config.Backend{Engine: config.EngineMongo, Database: database, Isolation: config.IsolationShared}
		if err := eu.URI.UnmarshalText([]byte(uri)); err != nil {
			t.Error(err)
		}
		c.Backends = map[string]config.Backend{"default": {Engine: config.EngineSQLite}, "eu": eu}
	}
}
