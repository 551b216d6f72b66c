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

// engines are the storage engines, by the name of their backend.
type engines map[string]store.Engine

// SQLiteVersion is the version of the embedded engine's library.
const SQLiteVersion = sqlite.Version

// OpenEngine opens the engine of the named backend. If its server cannot be reached, it returns no error: calls fail
// until the server can be reached.
type OpenEngine func(ctx context.Context, c *config.Config, backend string, log *slog.Logger) (store.Engine, error)

// builtinEngines returns the engines of Tenantry, by their names in the settings.
func builtinEngines() map[string]OpenEngine {
	return map[string]OpenEngine{config.EngineSQLite: openSQLite, config.EngineMongo: openMongo}
}

func openSQLite(ctx context.Context, c *config.Config, backend string, _ *slog.Logger) (store.Engine, error) {
	b := c.Backends[backend]
	return sqlite.Open(ctx, sqlite.Options{
		Dir: c.BackendDir(backend), Shared: b.Isolation == config.IsolationShared, MaxOpen: c.SQLite.MaxOpenFiles,
		Readers: c.SQLite.Readers, Long: config.LongConnections, QueryTimeout: c.SQLite.QueryTimeout,
		Cache: max(1, c.SQLite.Cache/c.BackendsOf(b.Engine)),
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

// openEngines opens the engine of every backend in the settings. more are engines besides those of Tenantry.
func (s *Services) openEngines(ctx context.Context, more map[string]OpenEngine) error {
	s.engines = engines{}
	known := builtinEngines()
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

// measureEngines registers the metrics that engines report themselves.
func (s *Services) measureEngines(r *prometheus.Registry) {
	for name := range s.engines {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "tenantry_store_unreadable_records",
			Help:        "Records that are known to be damaged, because reading them failed.",
			ConstLabels: prometheus.Labels{"backend": name},
		}, func() float64 { return float64(len(s.store.Unreadable(context.Background(), name, false))) }))
		if lag := s.store.Lag(name); lag != nil {
			gauge := func(metric, help string, value func() float64) {
				o := prometheus.GaugeOpts{Name: metric, Help: help, ConstLabels: prometheus.Labels{"backend": name}}
				r.MustRegister(prometheus.NewGaugeFunc(o, value))
			}
			gauge("tenantry_store_log_bytes", "Size of the logs (-wal) of open files, in bytes.",
				func() float64 { bytes, _ := lag(); return float64(bytes) })
			gauge("tenantry_store_log_seconds", "Age of the oldest write that is only in a log, and not in its file.",
				func() float64 { _, age := lag(); return age.Seconds() })
		}
		refusing := s.store.Refusing(name)
		if refusing == nil {
			continue
		}
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "tenantry_store_refusing",
			Help:        "1 while calls of a backend are refused at once because its server did not answer.",
			ConstLabels: prometheus.Labels{"backend": name},
		}, func() float64 {
			if refusing() {
				return 1
			}
			return 0
		}))
	}
}

// cacheSizes returns the number of entries that caches hold for organizations, by what they are.
func (s *Services) cacheSizes() map[string]int {
	sizes := s.store.Kept()
	maps.Copy(sizes, s.directory.Kept())
	sizes["keys"], sizes["usage"] = s.keys.Kept(), s.usage.Waiting()
	return sizes
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

// storeMetrics counts and times the calls of storage engines.
type storeMetrics struct {
	calls  *prometheus.HistogramVec
	timers sync.Map // the histograms of calls, by backend and operation
	failed *prometheus.CounterVec
	slow   *prometheus.CounterVec
	// damaged has an organization only while its data are damaged.
	damaged  *prometheus.GaugeVec
	observer func(store.Call) // nil: none
	traces   *telemetry.Telemetry
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
	if m.observer != nil {
		m.observer(c)
	}
}

// timer returns the histogram for the labels. It caches them, because looking one up by its labels costs more than the
// observation.
func (m *storeMetrics) timer(backend, operation string) prometheus.Observer {
	labels := [2]string{backend, operation}
	found, ok := m.timers.Load(labels)
	if !ok {
		found, _ = m.timers.LoadOrStore(labels, m.calls.WithLabelValues(backend, operation))
	}
	return found.(prometheus.Observer) //nolint:forcetypeassert // nothing else is stored
}

func (m *storeMetrics) register(r *prometheus.Registry) {
	r.MustRegister(m.calls, m.failed, m.slow, m.damaged)
}

// checkBackends checks at once that every backend can read and write, within the timeout. It returns the failures, by
// the names of backends.
func (s *Services) checkBackends(ctx context.Context, timeout time.Duration) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	names := s.store.Backends()
	errs := make([]error, len(names))
	_ = together.Each(len(names), len(names), func(i int) error {
		errs[i] = s.store.Check(ctx, names[i])
		return nil
	})
	failures := map[string]error{}
	for i, err := range errs {
		if err != nil {
			failures[names[i]] = err
		}
	}
	return failures
}
