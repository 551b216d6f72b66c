package gateway

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"tenantry/backends/store"
)

// TestSlowQueryIsNoOutage: a query that timed out is not counted as an engine that did not answer.
func TestSlowQueryIsNoOutage(t *testing.T) {
	t.Parallel()
	m, figures := newStoreMetrics(), prometheus.NewRegistry()
	m.register(figures)
	for _, err := range []error{
		nil, store.ErrNotFound, fmt.Errorf("things: %w: %w", store.ErrSlow, context.DeadlineExceeded),
		fmt.Errorf("things: %w", store.ErrUnavailable), context.DeadlineExceeded, context.Canceled,
	} {
		m.observe(t.Context(), store.Call{Backend: "default", Operation: "find", Err: err})
	}
	found, err := figures.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, family := range found {
		if c := family.GetMetric()[0].GetCounter(); c != nil {
			counted[family.GetName()] = c.GetValue()
		}
	}
	if counted["tenantry_store_slow_total"] != 1 || counted["tenantry_store_unavailable_total"] != 2 {
		t.Errorf(`got %v, want counted["tenantry_store_slow_total"] = 1 and counted["tenantry_store_unavailable_total"] = 2`,
			counted)
	}
}
