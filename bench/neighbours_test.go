package main

import (
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/operation"
)

// takes returns a function that reports whether an operation has a parameter with that name.
func takes(name string) func(operation.Row) bool {
	return func(o operation.Row) bool {
		for _, p := range o.Params {
			if p.Name == name {
				return true
			}
		}
		return false
	}
}

// kinds returns the operations of each kind of expensive call.
func kinds() map[string]func(operation.Row) bool {
	return map[string]func(operation.Row) bool{
		"filter": takes("filters"), "index": takes("filters"), "q": takes("q"), "sort": takes("sort"), "page": takes("page"),
		"report": func(o operation.Row) bool {
			return (strings.HasPrefix(o.Name, "reports.") || o.Name == "report_schedules.run") && o.Weight >= operation.Heavy
		},
		"check": func(o operation.Row) bool {
			return o.Method == http.MethodGet && o.Weight >= operation.Heavy && !takes("page")(o)
		},
		"bulk":     func(o operation.Row) bool { return o.Method != http.MethodGet && o.BodyLimit > 0 },
		"import":   func(o operation.Row) bool { return o.Upload != nil },
		"export":   func(o operation.Row) bool { return o.Streams != nil },
		"reveal":   func(o operation.Row) bool { return strings.HasSuffix(o.Name, ".reveal") },
		"password": func(o operation.Row) bool { return o.OwnLimits },
	}
}

// TestExpensiveCalls checks that every expensive row belongs to a kind, and that each kind's operation is of that kind.
func TestExpensiveCalls(t *testing.T) {
	t.Parallel()
	rows, is := map[string]operation.Row{}, kinds()
	for _, o := range gatewaytest.Start(t).App.Operations() {
		rows[o.Name] = o
		if o.Weight < operation.Heavy && o.Upload == nil && o.Streams == nil && !o.OwnLimits {
			continue
		}
		found := false
		for _, d := range expensiveCalls() {
			found = found || is[d.name] != nil && is[d.name](o)
		}
		if !found {
			t.Errorf("%s is expensive and belongs to no kind, want one that is measured next to a neighbour", o.Name)
		}
	}
	for _, d := range expensiveCalls() {
		if o, there := rows[d.row]; !there || is[d.name] == nil || !is[d.name](o) {
			t.Errorf("kind %s has the operation %s, want one of that kind", d.name, d.row)
		}
	}
}
