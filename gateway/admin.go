package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/tenants"
)

// checkTimeout bounds a readiness check.
const checkTimeout = 2 * time.Second

// operations serves health, metrics and, where they are switched on, profiles. It answers
// only who names this machine or a host of the configuration, and, where there is a token,
// tells who lacks it no more than whether the gateway lives and is ready.
func (a *App) operations(registry *prometheus.Registry) http.Handler {
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		code, checks := a.readiness(r.Context())
		if !a.isOperator(r) { // whoever sends requests here needs no more
			delete(checks, "checks")
		}
		writeJSON(w, code, checks)
	})
	operator := func(pattern string, h http.Handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !a.isOperator(r) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				writeJSON(w, http.StatusUnauthorized, map[string]string{"error": "send the token of admin.token as Authorization: Bearer"})
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	operator("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry, Timeout: checkTimeout}))
	if a.cfg.Admin.Pprof {
		operator("GET /debug/pprof/", http.HandlerFunc(pprof.Index))
		operator("GET /debug/pprof/cmdline", http.HandlerFunc(pprof.Cmdline))
		operator("GET /debug/pprof/profile", http.HandlerFunc(pprof.Profile))
		operator("GET /debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
		operator("GET /debug/pprof/trace", http.HandlerFunc(pprof.Trace))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.isOurs(r) {
			writeJSON(w, http.StatusForbidden, map[string]string{"error": "the Host of the request is neither this machine nor named in admin.hosts"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isOperator reports whether the request bears the token, or none is asked for.
func (a *App) isOperator(r *http.Request) bool {
	if a.cfg.Admin.Token.IsZero() {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && a.cfg.Admin.Token.Equal(secret.New(token))
}

// isOurs reports whether the request names this machine, the address that it came to, or a
// host of the configuration. A page of another site that had its own name lead here ("DNS
// rebinding") names its own.
func (a *App) isOurs(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(strings.TrimSuffix(host, "."), "[]"))
	if host == "localhost" || slices.ContainsFunc(a.cfg.Admin.Hosts, func(name string) bool { return strings.EqualFold(name, host) }) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ip.Unmap().IsLoopback() || local != nil && ip.Unmap() == local.AddrPort().Addr().Unmap().WithZone("")
}

// readiness names what is down, or not there any more. Without the control backend nobody can be told apart, so the
// gateway takes no requests. Where that can be read, and not written, what only reads still works, and nothing else
// could take the requests: the gateway is degraded, and goes on. Without Redis keys are looked up in the store, and
// another backend is missed by its own organizations alone: then it is degraded, and goes on.
func (a *App) readiness(ctx context.Context) (int, map[string]any) {
	checks := map[string]string{"server": "ok"}
	status := "ok"
	judge := func(name string, err error) {
		checks[name] = "ok"
		switch {
		case errors.Is(err, store.ErrReadOnly):
			checks[name], status = "read-only", "degraded"
		case err != nil:
			checks[name], status = "down", "degraded"
		}
		a.tell(ctx, name, err)
	}
	redis := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		redis <- a.redis.Ping(ctx)
	}()
	wrong := a.checkBackends(ctx, checkTimeout)
	if err := wrong[a.cfg.Control]; errors.Is(err, store.ErrReadOnly) {
		if _, unread := a.directory.List(ctx, "", 1); unread != nil { // nor can it be read
			wrong[a.cfg.Control] = fmt.Errorf("%w: %w", store.ErrUnavailable, unread)
		}
	}
	for _, name := range a.store.Backends() {
		check := "store"
		if name != a.cfg.Control {
			check = "store." + name
		}
		judge(check, wrong[name])
	}
	judge("redis", <-redis)
	if checks["store"] != "down" {
		checks["installation"] = "ok"
		err := a.directory.Installed(ctx)
		if errors.Is(err, tenants.ErrLostControl) {
			checks["installation"] = "missing"
		} else if err != nil {
			err = nil // the store is slow, or was lost at this moment: the next check tells
		}
		a.tell(ctx, "installation", err)
	}
	if n := len(a.store.Damaged()); n > 0 { // it hurts nobody else
		checks["organizations"], status = fmt.Sprintf("damaged: %d", n), "degraded"
	}
	code := http.StatusOK
	if !a.ready.Load() {
		checks["server"] = "starting or stopping"
	}
	if checks["server"] != "ok" || checks["store"] == "down" || checks["installation"] == "missing" {
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
