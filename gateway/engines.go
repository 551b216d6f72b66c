package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenantry/backends/store"
	"tenantry/backends/store/mongo"
	"tenantry/backends/store/sqlite"
	"tenantry/config"
)

// engines are the backends of the store, by name.
type engines map[string]store.Engine

// openEngines opens every backend of the configuration. A MongoDB that cannot be reached is
// no error: its calls fail until it can.
func (s *Services) openEngines(ctx context.Context) error {
	s.engines = engines{}
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Backends)) {
		b := s.cfg.Backends[name]
		var e store.Engine
		var err error
		switch b.Engine {
		case config.EngineSQLite:
			e, err = sqlite.Open(ctx, sqlite.Options{
				Dir: s.cfg.BackendDir(name), MaxOpen: s.cfg.SQLite.MaxOpenFiles, Readers: s.cfg.SQLite.Readers, QueryTimeout: s.cfg.SQLite.QueryTimeout,
			})
		case config.EngineMongo:
			o := mongo.Options{URI: b.URI, Database: b.Database, MaxPool: b.MaxPool, QueryTimeout: s.cfg.Timeouts.Query, Log: s.log.With("backend", name)}
			if b.Isolation == config.IsolationDatabase {
				o.Isolation = mongo.PerDatabase
			}
			e, err = mongo.Open(ctx, o)
		default:
			err = fmt.Errorf("there is no engine %q", b.Engine)
		}
		if err != nil {
			return fmt.Errorf("backend %s: %w", name, err)
		}
		s.engines[name] = e
	}
	return nil
}

// index is what an operator is told about an index of a backend.
type index struct{ name, refused string }

// indexes returns those of a MongoDB backend, and how many are still being built. A SQLite
// file has its indexes from the start.
func (e engines) indexes(ctx context.Context, name string) (all []index, building int, err error) {
	m, ok := e[name].(*mongo.Engine)
	if !ok {
		return nil, 0, nil
	}
	found, err := m.Indexes(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, i := range found {
		one := index{name: i.Index + " of " + i.Database + "." + i.Collection}
		switch i.State {
		case mongo.IndexRefused:
			one.refused = i.Reason
		case mongo.IndexBuilding:
			building++
		}
		all = append(all, one)
	}
	return all, building, nil
}

// measure registers the figures of the engines themselves.
func (e engines) measure(r *prometheus.Registry) {
	for name, one := range e {
		m, ok := one.(*mongo.Engine)
		if !ok {
			continue
		}
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tenantry_store_refusing", Help: "1 while calls of a backend are refused at once, since its server did not answer.",
			ConstLabels: prometheus.Labels{"backend": name},
		}, func() float64 {
			if m.State() == "closed" {
				return 0
			}
			return 1
		}))
	}
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
	failed *prometheus.CounterVec
	// damaged has an organization for each that is damaged, and none for the others.
	damaged *prometheus.GaugeVec
	also    func(store.Call) // nil: nobody else is told
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
		damaged: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tenantry_store_damaged", Help: "1 for each organization whose data is damaged or missing.",
		}, []string{"backend", "organization"}),
	}
}

func (m *storeMetrics) observe(c store.Call) {
	m.calls.WithLabelValues(c.Backend, c.Operation).Observe(c.Took.Seconds())
	if errors.Is(c.Err, store.ErrUnavailable) || errors.Is(c.Err, context.DeadlineExceeded) {
		m.failed.WithLabelValues(c.Backend, c.Operation).Inc()
	}
	if m.also != nil {
		m.also(c)
	}
}

func (m *storeMetrics) register(r *prometheus.Registry) { r.MustRegister(m.calls, m.failed, m.damaged) }

// checkBackends asks every backend whether it can read and write now. It returns what is
// wrong, by name.
func (s *Services) checkBackends(ctx context.Context, within time.Duration) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	names := s.store.Backends()
	answers := make(chan struct {
		name string
		err  error
	}, len(names))
	for _, name := range names {
		go func() {
			answers <- struct {
				name string
				err  error
			}{name, s.store.Check(ctx, name)}
		}()
	}
	wrong := map[string]error{}
	for range names {
		if a := <-answers; a.err != nil {
			wrong[a.name] = a.err
		}
	}
	return wrong
}
