package main

import (
	"testing"

	"tenantry/backends/api"
	"tenantry/gateway/gatewaytest"
)

// TestDears holds the kinds of dear calls against the rows: a row that can take much is of one of them, and each stands for one.
func TestDears(t *testing.T) {
	t.Parallel()
	rows := map[string]api.Operation{}
	for _, o := range gatewaytest.Start(t).App.Operations() {
		rows[o.Name] = o
		if o.Weight < api.Heavy && o.Upload == nil && o.Streams == nil && !o.OwnLimits {
			continue
		}
		found := false
		for _, d := range dears() {
			found = found || d.is(o)
		}
		if !found {
			t.Errorf("%s can take much, and is of no kind that is measured beside a neighbour", o.Name)
		}
	}
	for _, d := range dears() {
		if o, there := rows[d.row]; !there || !d.is(o) {
			t.Errorf("%s stands for %s", d.row, d.name)
		}
	}
}
