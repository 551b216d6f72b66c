package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"tenantry/tenants/announce"
)

// measureAnnouncer registers the metrics of announcements between replicas. There are none if Redis runs inside the
// process.
func (s *Services) measureAnnouncer(r *prometheus.Registry) {
	a := s.announcer
	if a == nil {
		return
	}
	for event, read := range map[string]func(announce.Stats) int64{
		"published":  func(s announce.Stats) int64 { return s.Published },
		"failed":     func(s announce.Stats) int64 { return s.Failed },
		"dropped":    func(s announce.Stats) int64 { return s.Dropped },
		"heard":      func(s announce.Stats) int64 { return s.Heard },
		"malformed":  func(s announce.Stats) int64 { return s.Malformed },
		"gap":        func(s announce.Stats) int64 { return s.Gaps },
		"subscribed": func(s announce.Stats) int64 { return s.Subscriptions },
	} {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "tenantry_announcements_total",
			Help:        "Announcements of changed organizations between replicas, by what became of them.",
			ConstLabels: prometheus.Labels{"event": event},
		}, func() float64 { return float64(read(a.Stats())) }))
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenantry_announcements_connected", Help: "1 while changes made by other replicas are heard.",
	}, func() float64 {
		if a.Stats().Connected {
			return 1
		}
		return 0
	}))
}
