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

// TestDeclaredQueriesUseAnIndex runs each query that a kind declares, and its count, and reads the plan of SQLite: no
// query scans a table, a declared order needs no sorting, and in shared files each search begins with the number of the
// workspace.
func TestDeclaredQueriesUseAnIndex(t *testing.T) {
	t.Parallel()
	t.Run("own", func(t *testing.T) { testDeclaredQueries(t, false) })
	t.Run("shared", func(t *testing.T) { testDeclaredQueries(t, true) })
}

// openServices opens everything but the listeners, in a temporary folder.
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
		ws, err := engine.Open(t.Context(), driver.Opening{
			Workspace:   "plans-" + strings.ReplaceAll(spec.Name, "_", "-"),
			Collections: []*driver.Collection{collection},
		})
		if err != nil {
			t.Fatal(err)
		}
		few := slices.Contains([]string{"installations", "chores", "storage", "audit_tiles", "audit_heads", "webhook_progress", "report_schedule_progress"}, spec.Name) // read by identifier alone
		if len(spec.Access) == 0 && !few {
			t.Errorf("%s declares no query", spec.Name)
		}
		for _, access := range spec.Access {
			seen = nil
			where, order := question(t, spec, collection, access)
			query := driver.Query{Collection: collection, Where: where, Sort: order, Limit: 50}
			if _, err := ws.Find(t.Context(), query); err != nil {
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
					// A search or scan must be limited to the workspace, and to the part that the query asks for.
					foreign := shared != strings.Contains(line, "(ws=?")
					whole := len(access.Where) > 0 && strings.HasSuffix(line, "(ws=?)")
					if strings.HasPrefix(line, "S") && (foreign || whole) {
						t.Errorf("%s %v: %s\n%s\nreads more than the query needs", spec.Name, access, line, plan.SQL)
					}
					// A list of all records in the order of an index may scan the index.
					listing := len(access.Where) == 0 && strings.Contains(line, " INDEX ")
					if (strings.HasPrefix(line, "SCAN ") && !listing) || (len(order) > 0 && strings.Contains(line, "TEMP B-TREE")) {
						t.Errorf("%s %v: %s\n%s", spec.Name, access, line, plan.SQL)
					}
				}
			}
		}
	}
	if asked < 60 {
		t.Errorf("statements = %d, want at least 60", asked)
	}
}

// question returns a query that compares every field of Where with one value. Organizations that share a workspace are
// compared too.
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
