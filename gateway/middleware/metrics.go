package middleware

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the gateway's own figures.
type Metrics struct {
	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	exposedKeys prometheus.Counter
}

// NewMetrics registers the figures.
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
	}
	r.MustRegister(m.requests, m.duration, m.exposedKeys)
	return m
}

func (m *Metrics) observe(operation string, code int, status string, took time.Duration) {
	m.requests.WithLabelValues(operation, strconv.Itoa(code), status).Inc()
	m.duration.WithLabelValues(operation).Observe(took.Seconds())
}
