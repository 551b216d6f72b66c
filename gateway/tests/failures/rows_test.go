package failures

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/memtest"
	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/proxytest"
	"tenantry/operation"
)

// fails is an engine in memory whose server can be made unavailable.
type fails struct {
	driver.Engine
	away *atomic.Bool
}

type failsWorkspace struct {
	driver.Workspace
	away *atomic.Bool
}

func (f fails) err() error {
	if f.away.Load() {
		return fmt.Errorf("dial tcp 127.0.0.1:27017: connection refused: %w", driver.ErrUnavailable)
	}
	return nil
}

func (f failsWorkspace) err() error { return fails{away: f.away}.err() }

func (f fails) Check(ctx context.Context) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.Engine.Check(ctx)
}

func (f fails) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	ws, err := f.Engine.Open(ctx, o)
	return failsWorkspace{ws, f.away}, err
}

func (f failsWorkspace) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Workspace.Find(ctx, q)
}

func (f failsWorkspace) Count(ctx context.Context, c *driver.Collection, where driver.Predicate) (int64, error) {
	if err := f.err(); err != nil {
		return 0, err
	}
	return f.Workspace.Count(ctx, c, where)
}

func (f failsWorkspace) Aggregate(ctx context.Context, a driver.Aggregation) ([][]any, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Workspace.Aggregate(ctx, a)
}

func (f failsWorkspace) Write(ctx context.Context, writes []driver.Write) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.Workspace.Write(ctx, writes)
}

func (f failsWorkspace) Counter(ctx context.Context, name string, add, atLeast int64) (int64, error) {
	if err := f.err(); err != nil {
		return 0, err
	}
	return f.Workspace.Counter(ctx, name, add, atLeast)
}

// credentialFor returns the credential for a call of the row: a key, a session if keys are refused, or nothing.
func credentialFor(p *fixture.Party, op *operation.Row) gatewaytest.Request {
	switch {
	case keyed(op):
		return gatewaytest.WithKey(p.FullKey)
	case op.Credentials&operation.Session != 0:
		return gatewaytest.Cookie(p.AdminCookie)
	}
	return func(*http.Request) {}
}

// askAll calls all rows, some of them concurrently.
func askAll(t *testing.T, p *fixture.Party, rows []rowCall, judge func(rowCall, timed)) {
	t.Helper()
	for some := range slices.Chunk(rows, 16) {
		var running sync.WaitGroup
		for _, r := range some {
			running.Go(func() { judge(r, timeCall(t, p, r.ask, credentialFor(p, &r.op))) })
		}
		running.Wait()
	}
}

// TestEveryOperationWithoutItsStore checks that each answers service unavailable in time, and nothing else.
func TestEveryOperationWithoutItsStore(t *testing.T) {
	t.Parallel()
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		var away atomic.Bool
		w := fixture.NewWorld(t, func(c *config.Config, o *gateway.Options) {
			c.Engines["memory"], o.Engines = config.Engine{}, map[string]gateway.OpenEngine{"memory": func(context.Context, *config.Config, string, *slog.Logger) (store.Engine, error) {
				return fails{memtest.New(), &away}, nil
			}}
			c.Backends, c.Store, c.Control = map[string]config.Backend{config.DefaultBackend: {Engine: "memory"}}, config.DefaultBackend, config.DefaultBackend
		})
		wantAllAway(t, w, func() { away.Store(true) }, func() { away.Store(false) }, redisOutageLimit)
	})
	if os.Getenv(mongotest.Variable) == "" {
		return
	}
	for _, fault := range []proxytest.Fault{proxytest.Refused(), proxytest.Silent()} {
		t.Run("mongo "+fault.Name, func(t *testing.T) {
			t.Parallel()
			mongo, uri := proxiedMongo(t)
			w := fixture.NewWorld(t, onMongo(t, uri))
			wantAllAway(t, w, func() { mongo.Break(t, fault) }, func() { mongo.Heal(t) }, mongoOutageLimit)
		})
	}
}

// wantAllAway calls every operation while the store is unavailable.
func wantAllAway(t *testing.T, w *fixture.World, leave, back func(), within time.Duration) {
	t.Helper()
	p := w.A
	signsOut := func(op *operation.Row) bool { return op.Name == "sessions.delete" } // which the others cannot follow
	rows, last := rowCalls(w, p, func(op *operation.Row) bool { return !signsOut(op) }), rowCalls(w, p, signsOut)
	leave()
	judge := func(r rowCall, a timed) {
		if a.took > within {
			t.Errorf("%s took %s, want at most %s", r, a.took, within)
		}
		constant := r.op.Name == "compliance.schema" && a.Code == http.StatusOK // to somebody who was known a moment ago
		if !constant && !fixture.IsUnavailable(t, r.String(), a.Answer) {
			t.Errorf("%s without its store: got %d %s, want service unavailable", r, a.Code, a.Body)
		}
	}
	askAll(t, p, rows, judge)
	askAll(t, p, last, judge)
	wantAlive(t, w.Gateway)
	back()
	fixture.AwaitWithin(t, "it works again", healLimit, func() bool { return p.Get(t, p.FullKey, "/api/contacts").Code == http.StatusOK })
	for _, text := range []string{p.FullKey, p.AdminCookie.Value, `"msg":"internal error"`} {
		if strings.Contains(w.Log.String(), text) {
			t.Errorf("the log holds %s, want it nowhere", text)
		}
	}
}

// TestEveryOperationWithoutRedis checks that a call with a key is carried out as usual or answered with service
// unavailable, and that sessions, which are in Redis, are unavailable. No caller is denied.
func TestEveryOperationWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := proxiedRedis(t)
	w := fixture.NewWorld(t, fixture.WithRedis(redis.Addr), gatewaytest.PatientRedis)
	p := w.A
	reads := rowCalls(w, p, func(op *operation.Row) bool { return op.Method == http.MethodGet })
	writes := rowCalls(w, p, func(op *operation.Row) bool { return op.Method != http.MethodGet })
	redis.Break(t, proxytest.Refused())
	judge := func(r rowCall, a timed) {
		if a.took > redisOutageLimit {
			t.Errorf("%s took %s, want at most %s", r, a.took, redisOutageLimit)
		}
		away := fixture.IsUnavailable(t, r.String(), a.Answer)
		if a.Code >= 500 && !away || strings.Contains(a.Text(), fixture.DeniedBody) {
			t.Errorf("%s without Redis: got %d %s, want an answer or service unavailable", r, a.Code, a.Body)
		}
		if withKey := keyed(&r.op); withKey && r.op.Method == http.MethodGet && a.Code != http.StatusOK {
			t.Errorf("%s with a key: got %d %s, want 200", r, a.Code, a.Body)
		} else if !withKey && r.op.Credentials&operation.Session != 0 && !away {
			t.Errorf("%s with a session: got %d %s, want service unavailable", r, a.Code, a.Body)
		}
	}
	askAll(t, p, reads, judge)
	askAll(t, p, writes, judge)
	redis.Heal(t)
	fixture.AwaitWithin(t, "the session works again", healLimit, func() bool {
		return w.A.Get(t, "", "/api/organization", gatewaytest.Cookie(p.AdminCookie)).Code == http.StatusOK
	})
}
