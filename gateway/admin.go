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

// adminHandler serves health, metrics and, if enabled, profiles. It refuses requests whose Host is neither this machine
// nor in admin.hosts. If admin.token is set, requests without it learn only whether the gateway is alive and ready.
func (a *App) adminHandler(registry *prometheus.Registry) http.Handler {
	process := collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})
	registry.MustRegister(collectors.NewGoCollector(), process)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		code, checks := a.readiness(r.Context())
		if !a.isOperator(r) { // a load balancer needs the status alone
			delete(checks, "checks")
		}
		writeJSON(w, code, checks)
	})
	operator := func(pattern string, h http.Handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !a.isOperator(r) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				writeJSON(w, http.StatusUnauthorized, map[string]string{
					"error": "send the token of admin.token as Authorization: Bearer",
				})
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
		if !a.isKnownHost(r) {
			writeJSON(w, http.StatusForbidden, map[string]string{
				"error": "the Host of the request is neither this machine nor named in admin.hosts",
			})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isOperator reports whether the request bears admin.token, or no token is configured.
func (a *App) isOperator(r *http.Request) bool {
	expected := a.settings().Admin.Token
	if expected.IsZero() {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && expected.Equal(secret.New(token))
}

// isKnownHost reports whether the Host of the request is this machine, the address at which the request arrived, or one
// of admin.hosts. It is the defence against DNS rebinding: a page of another site whose name was pointed at this
// machine sends its own name as the Host.
func (a *App) isKnownHost(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(strings.TrimSuffix(host, "."), "[]"))
	isHost := func(name string) bool { return strings.EqualFold(name, host) }
	if host == "localhost" || slices.ContainsFunc(a.settings().Admin.Hosts, isHost) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ip.Unmap().IsLoopback() || local != nil && ip.Unmap() == local.AddrPort().Addr().Unmap().WithZone("")
}

// readiness checks the dependencies and returns the HTTP status and body of /readyz.
//
// The gateway is not ready if the control backend is down or its data is lost, because callers cannot be identified
// then. It is degraded, and stays ready, in these cases: the control backend can be read but not written, because reads
// still work and no other replica could serve the writes; another backend is down or an organization is damaged,
// because other organizations are not affected; Redis is down, because keys are then looked up in the store; the bytes
// of files cannot be reached.
func (a *App) readiness(ctx context.Context) (int, map[string]any) {
	checks := map[string]string{"server": "ok"}
	status := "ok"
	report := func(name string, err error) {
		checks[name] = "ok"
		switch {
		case errors.Is(err, store.ErrReadOnly):
			checks[name], status = "read-only", "degraded"
		case err != nil:
			checks[name], status = "down", "degraded"
		}
		a.logChange(ctx, name, err)
	}
	redis := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		redis <- a.redis.Ping(ctx)
	}()
	files := make(chan error, 1)
	go func() { files <- a.reachFiles(ctx) }()
	failures := a.checkBackends(ctx, checkTimeout)
	if err := failures[a.cfg.Control]; errors.Is(err, store.ErrReadOnly) {
		if _, readErr := a.directory.List(ctx, "", 1); readErr != nil { // it cannot be read either
			failures[a.cfg.Control] = fmt.Errorf("%w: %w", store.ErrUnavailable, readErr)
		}
	}
	for _, name := range a.store.Backends() {
		check := "store"
		if name != a.cfg.Control {
			check = "store." + name
		}
		report(check, failures[name])
	}
	report("redis", <-redis)
	report("files", <-files)
	if checks["store"] != "down" {
		checks["installation"] = "ok"
		err := a.directory.Installed(ctx)
		if errors.Is(err, tenants.ErrLostControl) {
			checks["installation"] = "missing"
		} else if err != nil {
			err = nil // the store is slow or went down just now: the next check reports it
		}
		a.logChange(ctx, "installation", err)
	}
	if n := len(a.store.Damaged()); n > 0 { // other organizations are not affected
		checks["organizations"], status = fmt.Sprintf("damaged: %d", n), "degraded"
	}
	code := http.StatusOK
	if phase := a.phase.Load(); phase != serving {
		checks["server"] = phase.String()
	}
	if checks["server"] != "ok" || checks["store"] == "down" || checks["installation"] == "missing" {
		status, code = "failed", http.StatusServiceUnavailable
	}
	return code, map[string]any{"status": status, "checks": checks}
}

// logChange logs once that a dependency went down, and once that it came back. It logs nothing if the check was
// cancelled.
func (a *App) logChange(ctx context.Context, name string, err error) {
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
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}
