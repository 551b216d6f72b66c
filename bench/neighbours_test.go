package main

import (
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/operation"
)

// takes returns whether an operation has a parameter of that name.
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

// kinds says which operations each kind of dear call is of.
func kinds() map[string]func(operation.Row) bool {
	return map[string]func(operation.Row) bool{
		"filter": takes("filters"), "index": takes("filters"), "q": takes("q"), "sort": takes("sort"), "page": takes("page"),
		"report": func(o operation.Row) bool {
			return strings.HasPrefix(o.Name, "reports.") && o.Weight >= operation.Heavy
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

// TestDears holds the kinds of dear calls against the rows: a row that can take much is of one of them, and each stands
// for one.
func TestDears(t *testing.T) {
	t.Parallel()
	rows, is := map[string]operation.Row{}, kinds()
	for _, o := range gatewaytest.Start(t).App.Operations() {
		rows[o.Name] = o
		if o.Weight < operation.Heavy && o.Upload == nil && o.Streams == nil && !o.OwnLimits {
			continue
		}
		found := false
		for _, d := range dears() {
			found = found || is[d.name] != nil && is[d.name](o)
		}
		if !found {
			t.Errorf("%s can take much, and is of no kind that is measured beside a neighbour", o.Name)
		}
	}
	for _, d := range dears() {
		if o, there := rows[d.row]; !there || is[d.name] == nil || !is[d.name](o) {
			t.Errorf("%s stands for %s", d.row, d.name)
		}
	}
}
