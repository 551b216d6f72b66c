package gateway

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/record"
	"tenantry/backends/sqlite"
	"tenantry/backends/store"
	"tenantry/config"
)

// TestDeclaredQueriesUseAnIndex asks every question that a kind declares, and its count,
// and reads the engine's plan: none scans a table, a declared order needs no sorting, and where organizations
// share a table each search begins with whose it is.
func TestDeclaredQueriesUseAnIndex(t *testing.T) {
	t.Parallel()
	t.Run("own", func(t *testing.T) { testDeclaredQueries(t, false) })
	t.Run("shared", func(t *testing.T) { testDeclaredQueries(t, true) })
}

// openServices opens everything but the listeners on a folder of the test's own.
func openServices(t *testing.T) *Services {
	t.Helper()
	cfg := config.Default()
	cfg.Data = t.TempDir()
	s, err := OpenServices(t.Context(), cfg, Options{Holder: "a test", Init: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func testDeclaredQueries(t *testing.T, shared bool) {
	t.Parallel()
	s := openServices(t)
	var mu sync.Mutex
	var seen []sqlite.Plan
	engine, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Shared: shared, Observe: func(p sqlite.Plan) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, p)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	asked := 0
	for _, spec := range slices.Concat(s.kinds.specs(), record.Specs(s.storedKinds())) {
		collection := spec.Collection()
		ws, err := engine.Open(t.Context(), driver.Opening{Workspace: "plans-" + strings.ReplaceAll(spec.Name, "_", "-"), Collections: []*driver.Collection{collection}})
		if err != nil {
			t.Fatal(err)
		}
		if len(spec.Access) == 0 && spec.Name != "installations" && spec.Name != "chores" { // have few records, read by their id
			t.Errorf("%s declares no question", spec.Name)
		}
		for _, access := range spec.Access {
			seen = nil
			where, order := question(t, spec, collection, access)
			if _, err := ws.Find(t.Context(), driver.Query{Collection: collection, Where: where, Sort: order, Limit: 50}); err != nil {
				t.Fatalf("%s %v: %v", spec.Name, access, err)
			}
			if _, err := ws.Count(t.Context(), collection, where); err != nil {
				t.Fatalf("%s %v: %v", spec.Name, access, err)
			}
			if len(seen) == 0 {
				t.Fatalf("%s %v: no plan was seen", spec.Name, access)
			}
			for _, plan := range seen {
				asked++
				for _, line := range plan.Lines {
					// A search or scan: of the workspace's own, and of no more of it than was asked for.
					if strings.HasPrefix(line, "S") && (shared != strings.Contains(line, "(ws=?") || len(access.Where) > 0 && strings.HasSuffix(line, "(ws=?)")) {
						t.Errorf("%s %v: %s\n%s\nreads what may be another's", spec.Name, access, line, plan.SQL)
					}
					listing := len(access.Where) == 0 && strings.Contains(line, " INDEX ") // all of it, in an index's order
					if (strings.HasPrefix(line, "SCAN ") && !listing) || (len(order) > 0 && strings.Contains(line, "TEMP B-TREE")) {
						t.Errorf("%s %v: %s\n%s", spec.Name, access, line, plan.SQL)
					}
				}
			}
		}
	}
	if asked < 60 {
		t.Errorf("only %d statements were looked at", asked)
	}
}

// question asks for one value in every field of Where; organizations that share a
// workspace are asked for first.
func question(t *testing.T, spec *store.Spec, c *driver.Collection, access store.Access) (driver.Predicate, []driver.Order) {
	t.Helper()
	ref := func(name string) driver.Ref {
		for _, f := range c.Fields {
			if f.Name == name {
				return driver.Ref{Name: name, Type: f.Type}
			}
		}
		t.Fatalf("%s: %s is not declared", spec.Name, name)
		return driver.Ref{}
	}
	names := access.Where
	if spec.Partition {
		names = append([]string{"org_id"}, names...)
	}
	where := driver.Predicate{Op: driver.And}
	for _, name := range names {
		p := driver.Predicate{Op: driver.Eq, Ref: ref(name)}
		switch p.Ref.Type {
		case driver.Bool:
			p.Values = []any{false}
		case driver.Int, driver.Time, driver.Float:
			p.Values = []any{int64(1)}
		default:
			p.Values = []any{fmt.Sprint("value of ", name)}
		}
		where.Kids = append(where.Kids, p)
	}
	var order []driver.Order
	for _, name := range access.Sort {
		order = append(order, driver.Order{Ref: ref(name)})
	}
	return where, order
}
