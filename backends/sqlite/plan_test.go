package sqlite

import (
	"cmp"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// plans collects the plans passed to Options.Observe.
type plans struct {
	mu  sync.Mutex
	all []Plan
}

func (p *plans) add(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, plan)
}

func (p *plans) take() []Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.all
	p.all = nil
	return all
}

// openEngine opens an engine with a query timeout that suffices on a busy machine.
func openEngine(t testing.TB, opts Options) *Engine {
	t.Helper()
	opts.QueryTimeout = cmp.Or(opts.QueryTimeout, time.Minute)
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	e, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

// inBoth runs a test with a file for each workspace, and with shared files.
func inBoth(t *testing.T, test func(t *testing.T, shared bool)) {
	t.Parallel()
	for name, shared := range map[string]bool{"own": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shared)
		})
	}
}

// checkConfined checks that a statement reads rows of one workspace alone.
func checkConfined(t *testing.T, p Plan) {
	t.Helper()
	for _, line := range p.Lines {
		if strings.HasPrefix(line, "SEARCH") && !strings.Contains(line, "(ws=?") && !strings.Contains(line, "INDEX x:") ||
			strings.HasPrefix(line, "SCAN") && !strings.HasPrefix(line, "SCAN j") {
			t.Errorf("%s reads rows of other workspaces:\n%s", p.SQL, line)
		}
	}
}

func openWorkspace(t testing.TB, e *Engine, name string, collections ...*driver.Collection) *workspace {
	t.Helper()
	ws, err := e.Open(t.Context(), driver.Opening{Workspace: name, Collections: collections})
	if err != nil {
		t.Fatalf("Open %s: %v", name, err)
	}
	return ws.(*workspace)
}

func onField(name string, op driver.Op, values ...any) driver.Predicate {
	return driver.Predicate{Op: op, Ref: driver.Ref{Name: name}, Values: values}
}

func tagged() *driver.Collection {
	c := people()
	c.Fields = append(c.Fields, driver.Field{Name: "tags", Type: driver.Strings})
	c.Indexes = append(c.Indexes, driver.Index{Name: "tags", Fields: []string{"tags"}})
	return c
}

func TestIndexedConditionsSearch(t *testing.T) { inBoth(t, testIndexedConditionsSearch) }

func testIndexedConditionsSearch(t *testing.T, shared bool) {
	seen := &plans{}
	e := openEngine(t, Options{Shared: shared, Observe: seen.add})
	c := tagged()
	c.Fields = append(c.Fields, driver.Field{Name: "code", Type: driver.String})
	c.Indexes = append(c.Indexes, driver.Index{Name: "code", Fields: []string{"code"}, Unique: true, Sparse: true})
	ws := openWorkspace(t, e, "w", c)
	all := func(kids ...driver.Predicate) driver.Predicate { return driver.Predicate{Kids: kids} }
	many := make([]any, 2000)
	for i := range many {
		many[i] = string(rune('a' + i%26))
	}
	for _, q := range []struct {
		name  string
		where driver.Predicate
		sort  []driver.Order
	}{
		{"eq", onField("country", driver.Eq, "DE"), nil},
		{"two eq", all(onField("country", driver.Eq, "DE"), onField("status", driver.Eq, "new")), nil},
		{"in", onField("city", driver.In, "a", "b", "c"), nil},
		{"long in", onField("city", driver.In, many...), nil},
		{"eq, sparse", onField("code", driver.Eq, "a"), nil},
		{"in, sparse", onField("code", driver.In, "a", "b", "c"), nil},
		{"long in, sparse", onField("code", driver.In, many...), nil},
		{"prefix, sparse", all(onField("code", driver.StartsWith, "a"), onField("age", driver.Gt, int64(1))), nil},
		{"gt", onField("created", driver.Gt, int64(5)), nil},
		{"range", all(onField("created", driver.Gte, int64(5)), onField("created", driver.Lt, int64(9))), nil},
		{"prefix", onField("name", driver.StartsWith, "An"), nil},
		{"prefix of any case", onField("name", driver.StartsWithFold, "An"), nil},
		{"id", onField("id", driver.Eq, "x"), nil},
		{"ids", onField("id", driver.In, "x", "y"), nil},
		{"element", onField("tags", driver.Eq, "red"), nil},
		{"one of elements", onField("tags", driver.In, "red", "blue"), nil},
		{"alternatives", driver.Predicate{Op: driver.Or, Kids: []driver.Predicate{
			onField("city", driver.Eq, "a"), onField("tags", driver.Eq, "b"), onField("name", driver.StartsWith, "c"),
		}}, nil},
		{"eq and sort", onField("status", driver.Eq, "new"), []driver.Order{{Ref: driver.Ref{Name: "created"}}}},
		{"eq and sort, list in the index", all(onField("country", driver.Eq, "DE")), []driver.Order{{Ref: driver.Ref{Name: "status"}}}},
		{"range and sort", onField("created", driver.Gt, int64(5)), []driver.Order{{Ref: driver.Ref{Name: "created"}}}},
	} {
		for _, limit := range []int{1, 50} {
			seen.take()
			e.observed.Clear()
			if _, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: q.where, Sort: q.sort, Limit: limit}); err != nil {
				t.Fatalf("%s: %v", q.name, err)
			}
			if _, err := ws.Count(t.Context(), c, q.where); err != nil {
				t.Fatalf("%s: %v", q.name, err)
			}
			got := seen.take()
			if len(got) != 2 {
				t.Fatalf("%s: %d plans, want 2", q.name, len(got))
			}
			for _, p := range got {
				plan := strings.Join(p.Lines, "\n")
				if shared {
					checkConfined(t, p)
				}
				if strings.Contains(strings.ReplaceAll(plan, "SCAN json_each", ""), "SCAN") || !strings.Contains(plan, "SEARCH") {
					t.Errorf("%s: plan of %s scans, want a search:\n%s", q.name, p.SQL, plan)
				}
				if q.sort != nil && strings.Contains(plan, "TEMP B-TREE") {
					t.Errorf("%s: plan of %s sorts, want the order of an index:\n%s", q.name, p.SQL, plan)
				}
			}
		}
	}
}

func TestCountsReadNothingButTheIndex(t *testing.T) { inBoth(t, testCountsReadNothingButTheIndex) }

func testCountsReadNothingButTheIndex(t *testing.T, shared bool) {
	seen := &plans{}
	e := openEngine(t, Options{Shared: shared, Observe: seen.add})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	teams := driver.Predicate{Op: driver.Or, Kids: []driver.Predicate{
		onField("teams", driver.Exists, false), onField("teams", driver.In, "red", "blue"),
	}}
	for _, p := range []driver.Predicate{
		onField("country", driver.Eq, "DE"),
		{Kids: []driver.Predicate{onField("country", driver.Eq, "DE"), onField("status", driver.In, "new", "gone")}},
		{Kids: []driver.Predicate{onField("country", driver.Eq, "DE"), onField("status", driver.Eq, "new"), teams}},
		{Kids: []driver.Predicate{onField("status", driver.Eq, "new"), onField("created", driver.Gt, int64(1))}},
		onField("name", driver.StartsWith, "A"),
	} {
		if _, err := ws.Count(t.Context(), c, p); err != nil {
			t.Fatalf("Count: %v", err)
		}
		for _, plan := range seen.take() {
			if len(plan.Lines) != 1 || !strings.Contains(plan.Lines[0], "COVERING INDEX") {
				t.Errorf("plan of %s:\n%s\nwant a covering index alone", plan.SQL, strings.Join(plan.Lines, "\n"))
			}
		}
	}
}

func TestSortAloneFollowsTheIndex(t *testing.T) { inBoth(t, testSortAloneFollowsTheIndex) }

func testSortAloneFollowsTheIndex(t *testing.T, shared bool) {
	seen := &plans{}
	e := openEngine(t, Options{Shared: shared, Observe: seen.add})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	for _, o := range []driver.Order{
		{Ref: driver.Ref{Name: "created"}}, {Ref: driver.Ref{Name: "name"}}, {Ref: driver.Ref{Name: "id"}, Desc: true},
	} {
		if _, err := ws.Find(t.Context(), driver.Query{Collection: c, Sort: []driver.Order{o}, Limit: 10}); err != nil {
			t.Fatalf("Find: %v", err)
		}
		for _, p := range seen.take() {
			if plan := strings.Join(p.Lines, "\n"); strings.Contains(plan, "TEMP B-TREE") {
				t.Errorf("plan of %s sorts, want the order of an index:\n%s", p.SQL, plan)
			}
		}
	}
}

func TestObserveOncePerStatement(t *testing.T) { inBoth(t, testObserveOncePerStatement) }

func testObserveOncePerStatement(t *testing.T, shared bool) {
	seen := &plans{}
	e := openEngine(t, Options{Shared: shared, Observe: seen.add})
	c := people()
	for _, name := range []string{"a", "b"} {
		ws := openWorkspace(t, e, name, c)
		for n := range 9 {
			cities := make([]any, n+1)
			for i := range cities {
				cities[i] = string(rune('a' + i))
			}
			if _, err := ws.Count(t.Context(), c, onField("city", driver.In, cities...)); err != nil {
				t.Fatalf("Count: %v", err)
			}
		}
	}
	// The statements have 1, 2, 4, 8 and 16 parameters.
	if n := len(seen.take()); n != 5 {
		t.Errorf("%d distinct statements, want 5", n)
	}
}
