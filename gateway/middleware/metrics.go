package middleware

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of requests.
type Metrics struct {
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	exposedKeys prometheus.Counter
	limited     *prometheus.CounterVec
	series      sync.Map // outcome to series: looking a metric up by its labels costs more than counting
}

// outcome is one combination of labels. There are few, because no label has a value that callers choose.
type outcome struct {
	operation, status string
	code              int
}

type series struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenantry_requests_total", Help: "Requests by operation, HTTP code and envelope status.",
		}, []string{"operation", "code", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tenantry_request_seconds", Help: "Time from the first byte of the handler to the last of the answer.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"operation"}),
		exposedKeys: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tenantry_exposed_keys_total", Help: "Server-only keys that a browser sent.",
		}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tenantry_limits_refused_total", Help: "Requests over a limit, by operation and the limit that refused them.",
		}, []string{"operation", "limit"}),
	}
	r.MustRegister(m.requests, m.duration, m.exposedKeys, m.limited)
	return m
}

func (m *Metrics) observe(o outcome, took time.Duration) {
	found, ok := m.series.Load(o)
	if !ok {
		found, _ = m.series.LoadOrStore(o, series{
			m.requests.WithLabelValues(o.operation, strconv.Itoa(o.code), o.status), m.duration.WithLabelValues(o.operation),
		})
	}
	if s, ok := found.(series); ok {
		s.requests.Inc()
		s.duration.Observe(took.Seconds())
	}
}
