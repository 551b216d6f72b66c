// Package storetest is the conformance suite of storage engines: it tests what package driver guarantees.
//
// A test of an engine calls Run. Besides cases with fixed answers, the suite compares the engine's answers to random
// queries of random documents with those of the engine in package memtest, so that all engines that pass give the same
// answers.
package storetest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// callTimeout bounds every call of the suite.
const callTimeout = 30 * time.Second

// Fault is a known wrong answer of a server that substitutes for the engine's real server in tests. The cases that
// depend on that answer are skipped by name.
type Fault string

// The known faults of substitute servers.
const (
	// WideSums: a sum beyond 64 bits wraps around.
	WideSums Fault = "sums beyond 64 bits wrap around"
	// RoughSums: sums lose the small numbers among large ones, because they are rounded at every step.
	RoughSums Fault = "sums of very large and small numbers are rounded at every step"
	// DollarGroups: a text that starts with a dollar sign is taken for the name of a field when documents are grouped by
	// more than one value.
	DollarGroups Fault = "groups by several values take a text that starts with a dollar sign for a field"
	// SeveralBounds: a query that uses an index fails with an internal error if a value has two lower bounds, such as
	// "a" and "".
	SeveralBounds Fault = "several bounds on one field end a question with an internal error"
)

type faults []Fault

// on runs the case, or skips it if the server has the fault.
func (f faults) on(t *testing.T, name string, about Fault, run func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if slices.Contains(f, about) {
			t.Skipf("known fault of the substitute server: %s", about)
		}
		run(t)
	})
}

// Run runs the suite on the engine that open returns, and closes the engine. Known lists the faults of a substitute
// server; an engine on its real server has none.
func Run(t *testing.T, open func(t *testing.T) driver.Engine, known ...Fault) {
	t.Helper()
	e := open(t)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	for _, c := range []struct {
		name string
		test func(*testing.T, driver.Engine)
	}{
		{"Writes", testWrites}, {"Conflicts", testConflicts}, {"Duplicates", testDuplicates}, {"Batches", testBatches},
		{"Holds", testHolds}, {"Puts", testPuts},
		{"OneWinner", testOneWinner}, {"CompareAndSet", testCompareAndSet}, {"Counters", testCounters},
		{"Usage", testUsage}, {"Quotas", testQuotas}, {"QuotaRace", testQuotaRace}, {"Recounts", testRecounts},
		{"Operators", testOperators}, {"Fold", testFold}, {"Lists", testLists}, {"LongLists", testLongLists},
		{"Custom", testCustom}, {"OutsideText", testOutsideText},
		{"Sort", testSort}, {"SortMixed", testSortMixed}, {"Paging", testPaging}, {"Budgets", testBudgets},
		{"Measures", faults(known).testMeasures}, {"Buckets", testBuckets}, {"Ranks", testRanks},
		{"Isolation", testIsolation}, {"Remove", testRemove}, {"Context", testContext}, {"Check", testCheck},
		{"Owners", testOwners}, {"Differential", faults(known).testDifferential},
		{"DifferentialAggregates", faults(known).testDifferentialAggregates},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, e)
		})
	}
}

func fields() []driver.Field {
	return []driver.Field{
		{Name: "name", Type: driver.String}, {Name: "n", Type: driver.Int}, {Name: "x", Type: driver.Float},
		{Name: "flag", Type: driver.Bool}, {Name: "at", Type: driver.Time}, {Name: "day", Type: driver.Date},
		{Name: "tags", Type: driver.Strings}, {Name: "teams", Type: driver.Strings}, {Name: "any", Type: driver.Any},
		{Name: "slug", Type: driver.String}, {Name: "kind", Type: driver.String}, {Name: "code", Type: driver.Int},
	}
}

// things is the collection that most cases use.
func things() *driver.Collection {
	return &driver.Collection{Name: "things", Custom: true, Fields: fields(), Indexes: []driver.Index{
		{Name: "by_name", Fields: []string{"name"}}, {Name: "by_n", Fields: []string{"n"}},
		{Name: "by_x", Fields: []string{"x"}},
		{Name: "by_flag_at", Fields: []string{"flag", "at"}}, {Name: "by_day", Fields: []string{"day", "n", "teams"}},
		{Name: "by_tags", Fields: []string{"tags"}}, {Name: "by_any", Fields: []string{"any"}},
		{Name: "slug", Fields: []string{"slug"}, Unique: true, Sparse: true},
		{Name: "kind_code", Fields: []string{"kind", "code"}, Unique: true},
	}}
}

// plain is a collection with the same fields and no indexes, which shows that answers do not depend on an index. Its
// custom fields are defined separately for each value of kind.
func plain() *driver.Collection {
	return &driver.Collection{Name: "plain", Custom: true, Of: "kind", Fields: fields()}
}

// record is a document of the suite, from which document makes a driver.Document.
type record struct {
	id     string
	rev    int64
	values map[string]any
	custom string // JSON; empty: no custom values
}

func (r record) document(t testing.TB, c *driver.Collection) driver.Document {
	t.Helper()
	body := map[string]any{"id": r.id}
	d := driver.Document{ID: r.id, Rev: r.rev}
	for _, f := range c.Fields {
		v, ok := r.values[f.Name]
		if ok {
			body[f.Name] = v
		}
		d.Values = append(d.Values, v)
	}
	var err error
	if d.Body, err = json.Marshal(body); err != nil {
		t.Fatalf("body: %v", err)
	}
	if r.custom != "" {
		d.Custom = []byte(r.custom)
	}
	return d
}

// bench is an open workspace with its collections.
type bench struct {
	t      testing.TB
	ctx    context.Context
	name   string
	ws     driver.Workspace
	things *driver.Collection
	plain  *driver.Collection
}

func newName(prefix string) string { return prefix + "-" + strings.ToLower(rand.Text()[:12]) }

// newBench opens a new workspace, which is removed after the test.
func newBench(t testing.TB, e driver.Engine) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*callTimeout)
	t.Cleanup(cancel)
	b := &bench{t: t, ctx: ctx, name: newName("t"), things: things(), plain: plain()}
	var err error
	opening := driver.Opening{Workspace: b.name, Collections: []*driver.Collection{b.things, b.plain}}
	if b.ws, err = e.Open(ctx, opening); err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Remove(ctx, b.name, ""); err != nil {
			t.Errorf("Remove: %v", err)
		}
	})
	return b
}

func (b *bench) write(op driver.WriteOp, c *driver.Collection, records ...record) error {
	b.t.Helper()
	writes := make([]driver.Write, 0, len(records))
	for _, r := range records {
		writes = append(writes, driver.Write{Collection: c, Op: op, Doc: r.document(b.t, c)})
	}
	ctx, cancel := context.WithTimeout(b.ctx, callTimeout)
	defer cancel()
	return b.ws.Write(ctx, writes)
}

// insert inserts the records into both collections.
func (b *bench) insert(records ...record) {
	b.t.Helper()
	for _, c := range []*driver.Collection{b.things, b.plain} {
		if err := b.write(driver.Insert, c, records...); err != nil {
			b.t.Fatalf("insert into %s: %v", c.Name, err)
		}
	}
}

// find returns the documents of a query, and checks that Take receives the same ones.
func (b *bench) find(q driver.Query) []driver.Document {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, callTimeout)
	defer cancel()
	if q.Limit == 0 {
		q.Limit = 100_000
	}
	docs, err := b.ws.Find(ctx, q)
	if err != nil {
		b.t.Fatalf("Find %+v: %v", q, err)
	}
	taken := []driver.Document{{ID: "before the first call"}}
	asked := q
	asked.Take = func(d *driver.Document) error {
		if d == nil {
			taken = nil
		} else {
			taken = append(taken, *d)
		}
		return nil
	}
	if rest, err := b.ws.Find(ctx, asked); err != nil || rest != nil || ids(taken) != ids(docs) {
		b.t.Fatalf("Find %+v with Take: %v; took [%s] and returned %d, want [%s] and none",
			q, err, ids(taken), len(rest), ids(docs))
	}
	return docs
}

func (b *bench) get(c *driver.Collection, id string) (driver.Document, bool) {
	b.t.Helper()
	docs := b.find(driver.Query{Collection: c, Where: where("id", driver.Eq, id), Limit: 1})
	if len(docs) == 0 {
		return driver.Document{}, false
	}
	return docs[0], true
}

func (b *bench) count(c *driver.Collection, p driver.Predicate) int64 {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, callTimeout)
	defer cancel()
	n, err := b.ws.Count(ctx, c, p)
	if err != nil {
		b.t.Fatalf("Count %+v: %v", p, err)
	}
	return n
}

// matches checks that a predicate finds and counts these ids in both collections.
func (b *bench) matches(p driver.Predicate, want string) {
	b.t.Helper()
	for _, c := range []*driver.Collection{b.things, b.plain} {
		if got := ids(b.find(driver.Query{Collection: c, Where: p})); got != want {
			b.t.Errorf("%s: %+v finds [%s], want [%s]", c.Name, p, got, want)
		}
		if got, n := b.count(c, p), len(strings.Fields(want)); got != int64(n) {
			b.t.Errorf("%s: %+v counts %d, want %d", c.Name, p, got, n)
		}
	}
}

func ids(docs []driver.Document) string {
	out := make([]string, len(docs))
	for i, d := range docs {
		out[i] = d.ID
	}
	return strings.Join(out, " ")
}

// where returns a condition on a field of the collections, or on "id".
func where(field string, op driver.Op, values ...any) driver.Predicate {
	return driver.Predicate{Op: op, Ref: ref(field), Values: values}
}

func ref(field string) driver.Ref {
	r := driver.Ref{Name: field, Type: driver.String}
	for _, f := range fields() {
		if f.Name == field {
			r.Type = f.Type
		}
	}
	return r
}

func custom(key string, typ driver.Type) driver.Ref {
	return driver.Ref{Name: key, Custom: true, Type: typ}
}

func whereCustom(key string, op driver.Op, values ...any) driver.Predicate {
	return driver.Predicate{Op: op, Ref: custom(key, driver.Any), Values: values}
}

func and(kids ...driver.Predicate) driver.Predicate {
	return driver.Predicate{Op: driver.And, Kids: kids}
}

func or(kids ...driver.Predicate) driver.Predicate {
	return driver.Predicate{Op: driver.Or, Kids: kids}
}
