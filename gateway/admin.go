package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// checkTimeout bounds a readiness check.
const checkTimeout = 2 * time.Second

// operations serves health, metrics and profiles, for operators alone.
func (a *App) operations(registry *prometheus.Registry) http.Handler {
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		code, checks := a.readiness(r.Context())
		writeJSON(w, code, checks)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry, Timeout: checkTimeout}))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// readiness names what is down. The gateway takes requests while Redis is away, since
// keys are then looked up in the store.
func (a *App) readiness(ctx context.Context) (int, map[string]any) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	checks := map[string]string{"server": "ok", "store": "ok", "redis": "ok"}
	code := http.StatusOK
	fail := func(name, how string) {
		checks[name] = how
		code = http.StatusServiceUnavailable
	}
	if !a.ready.Load() {
		fail("server", "starting or stopping")
	}
	if err := a.store.Check(ctx); err != nil {
		a.log.WarnContext(ctx, "the store is not ready", "error", err)
		fail("store", "down")
	}
	if err := a.redis.Ping(ctx).Err(); err != nil {
		a.log.WarnContext(ctx, "redis is not ready", "error", err)
		fail("redis", "down")
	}
	status := "ok"
	if code != http.StatusOK {
		status = "failed"
	}
	return code, map[string]any{"status": status, "checks": checks}
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone cannot be told
}
