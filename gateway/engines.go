package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenantry/backends/mongo"
	"tenantry/backends/sqlite"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway/telemetry"
	"tenantry/internal/together"
)

// engines are the backends of the store, by name.
type engines map[string]store.Engine

// SQLiteVersion is the version of the embedded engine's library.
const SQLiteVersion = sqlite.Version

// An OpenEngine opens the engine of the backend with that name. A server that cannot be reached is no error: its calls
// fail until it can.
type OpenEngine func(ctx context.Context, c *config.Config, backend string, log *slog.Logger) (store.Engine, error)

// opens are the engines, by the names that config.Engines has for their settings.
func opens() map[string]OpenEngine {
	return map[string]OpenEngine{config.EngineSQLite: openSQLite, config.EngineMongo: openMongo}
}

func openSQLite(ctx context.Context, c *config.Config, backend string, _ *slog.Logger) (store.Engine, error) {
	b := c.Backends[backend]
	return sqlite.Open(ctx, sqlite.Options{
		Dir: c.BackendDir(backend), Shared: b.Isolation == config.IsolationShared, MaxOpen: c.SQLite.MaxOpenFiles, Readers: c.SQLite.Readers,
		Long: config.LongConnections, QueryTimeout: c.SQLite.QueryTimeout, Cache: max(1, c.SQLite.Cache/c.BackendsOf(b.Engine)),
	})
}

func openMongo(ctx context.Context, c *config.Config, backend string, log *slog.Logger) (store.Engine, error) {
	b := c.Backends[backend]
	o := mongo.Options{URI: b.URI, Database: b.Database, MaxPool: b.MaxPool, QueryTimeout: c.Timeouts.Query, Log: log}
	if b.Isolation == config.IsolationDatabase {
		o.Isolation = mongo.PerDatabase
	}
	return mongo.Open(ctx, o)
}

// openEngines opens every backend of the configuration.
func (s *Services) openEngines(ctx context.Context, more map[string]OpenEngine) error {
	s.engines = engines{}
	known := opens()
	maps.Copy(known, more)
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Backends)) {
		open := known[s.cfg.Backends[name].Engine]
		if open == nil {
			return fmt.Errorf("backend %s: unknown engine %q", name, s.cfg.Backends[name].Engine)
		}
		opened, err := open(ctx, &s.cfg, name, s.log.With("backend", name))
		if err != nil {
			return fmt.Errorf("backend %s: %w", name, err)
		}
		s.engines[name] = opened
	}
	return nil
}

// measureEngines registers what the engines say of themselves.
func (s *Services) measureEngines(r *prometheus.Registry) {
	for name := range s.engines {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tenantry_store_unreadable_records", Help: "Records that are known to be damaged: they were met and could not be read.",
			ConstLabels: prometheus.Labels{"backend": name},
		}, func() float64 { return float64(len(s.store.Unreadable(context.Background(), name, false))) }))
		if lag := s.store.Lag(name); lag != nil {
			gauge := func(metric, help string, value func() float64) {
				r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metric, Help: help, ConstLabels: prometheus.Labels{"backend": name}}, value))
			}
			gauge("tenantry_store_log_bytes", "Bytes that the logs (-wal) of open files have.", func() float64 { bytes, _ := lag(); return float64(bytes) })
			gauge("tenantry_store_log_seconds", "For how long at most something has been in a log alone, and not in its file.",
				func() float64 { _, age := lag(); return age.Seconds() })
		}
		refusing := s.store.Refusing(name)
		if refusing == nil {
			continue
		}
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tenantry_store_refusing", Help: "1 while calls of a backend are refused at once, since its server did not answer.",
			ConstLabels: prometheus.Labels{"backend": name},
		}, func() float64 {
			if refusing() {
				return 1
			}
			return 0
		}))
	}
}

// inMemory returns how many things are kept in memory of organizations, by what they are.
func (s *Services) inMemory() map[string]int {
	kept := s.store.Kept()
	maps.Copy(kept, s.directory.Kept())
	kept["keys"], kept["usage"] = s.keys.Kept(), s.usage.Waiting()
	return kept
}

func (e engines) close() error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if err := e[name].Close(); err != nil {
			errs = append(errs, fmt.Errorf("closing backend %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// storeMetrics count what the engines do.
type storeMetrics struct {
	calls  *prometheus.HistogramVec
	timers sync.Map // of calls, by backend and operation
	failed *prometheus.CounterVec
	slow   *prometheus.CounterVec
	// damaged has an organization for each that is damaged, and none for the others.
	damaged *prometheus.GaugeVec
	also    func(store.Call) // nil: nobody else is told
	traces  *telemetry.Telemetry
}

func newStoreMetrics() *storeMetrics {
	return &storeMetrics{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tenantry_store_call_seconds", Help: "Calls of a storage engine.",
			Buckets: []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5},
		}, []string{"backend", "operation"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenantry_store_unavailable_total", Help: "Calls that a storage engine could not answer.",
		}, []string{"backend", "operation"}),
		slow: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenantry_store_slow_total", Help: "Calls that were ended by their deadline while the storage engine was at work.",
		}, []string{"backend", "operation"}),
		damaged: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenantry_store_damaged", Help: "1 for each organization whose data is damaged or missing.",
		}, []string{"backend", "organization"}),
	}
}

func (m *storeMetrics) observe(ctx context.Context, c store.Call) {
	m.traces.Store(ctx, c)
	m.timer(c.Backend, c.Operation).Observe(c.Took.Seconds())
	switch {
	case errors.Is(c.Err, store.ErrSlow):
		m.slow.WithLabelValues(c.Backend, c.Operation).Inc()
	case errors.Is(c.Err, store.ErrUnavailable), errors.Is(c.Err, context.DeadlineExceeded):
		m.failed.WithLabelValues(c.Backend, c.Operation).Inc()
	}
	if m.also != nil {
		m.also(c)
	}
}

// timer finds a histogram by its labels, which would cost more than what it counts.
func (m *storeMetrics) timer(backend, operation string) prometheus.Observer {
	at := [2]string{backend, operation}
	found, ok := m.timers.Load(at)
	if !ok {
		found, _ = m.timers.LoadOrStore(at, m.calls.WithLabelValues(backend, operation))
	}
	return found.(prometheus.Observer) //nolint:forcetypeassert // nothing else is stored
}

func (m *storeMetrics) register(r *prometheus.Registry) {
	r.MustRegister(m.calls, m.failed, m.slow, m.damaged)
}

// checkBackends asks every backend whether it can read and write now. It returns what is
// wrong, by name.
func (s *Services) checkBackends(ctx context.Context, within time.Duration) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	names := s.store.Backends()
	answers := make([]error, len(names))
	_ = together.Each(len(names), len(names), func(i int) error {
		answers[i] = s.store.Check(ctx, names[i])
		return nil
	})
	wrong := map[string]error{}
	for i, err := range answers {
		if err != nil {
			wrong[names[i]] = err
		}
	}
	return wrong
}
