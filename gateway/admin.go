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

// readiness names what is down. Without the control backend nobody can be told apart, so
// the gateway takes no requests. Without Redis keys are looked up in the store, and another
// backend is missed by its own organizations alone: then it is degraded, and goes on.
func (a *App) readiness(ctx context.Context) (int, map[string]any) {
	checks := map[string]string{"server": "ok"}
	status := "ok"
	judge := func(name string, err error) {
		checks[name] = "ok"
		if err != nil {
			checks[name], status = "down", "degraded"
		}
		a.tell(ctx, name, err)
	}
	redis := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		redis <- a.redis.Ping(ctx).Err()
	}()
	wrong := a.checkBackends(ctx, checkTimeout)
	for _, name := range a.store.Backends() {
		check := "store"
		if name != a.cfg.Control {
			check = "store." + name
		}
		judge(check, wrong[name])
	}
	judge("redis", <-redis)
	code := http.StatusOK
	if !a.ready.Load() {
		checks["server"] = "starting or stopping"
	}
	if checks["server"] != "ok" || checks["store"] != "ok" {
		status, code = "failed", http.StatusServiceUnavailable
	}
	return code, map[string]any{"status": status, "checks": checks}
}

// tell logs that a dependency went down or came back, once. A check that was given up says
// nothing.
func (a *App) tell(ctx context.Context, name string, err error) {
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		if _, wasDown := a.down.LoadAndDelete(name); wasDown {
			a.log.InfoContext(ctx, "a dependency is ready again", "dependency", name)
		}
		return
	}
	if _, wasDown := a.down.Swap(name, true); !wasDown {
		a.log.WarnContext(ctx, "a dependency is not ready", "dependency", name, "error", err)
	}
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that has gone cannot be told
}
