package sqlite

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/storetest"
	"zombiezen.com/go/sqlite"
)

// TestIndexesDoNotChangeResults runs the conformance suite with an index on every custom field that it queries.
func TestIndexesDoNotChangeResults(t *testing.T) { inBoth(t, testIndexesDoNotChangeResults) }

func testIndexesDoNotChangeResults(t *testing.T, shared bool) {
	storetest.Run(t, func(t *testing.T) driver.Engine {
		e, err := Open(t.Context(), Options{Shared: shared, Dir: t.TempDir(), eager: true})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		return e
	})
}

func onCustom(name string, op driver.Op, values ...any) driver.Predicate {
	return driver.Predicate{Kids: []driver.Predicate{{Op: op, Ref: driver.Ref{Name: name, Custom: true}, Values: values}}}
}

// scored returns people whose scores and plans are custom fields.
func scored() *driver.Collection {
	c := people()
	c.Custom, c.Rides = true, []string{"teams"}
	return c
}

// states returns the number of indexes in each state.
func (f *fieldIndexes) states() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := map[driver.IndexState]int{}
	for _, x := range f.all {
		n[x.state]++
	}
	return fmt.Sprintf("%d ready, %d building, %d refused", n[driver.IndexReady], n[driver.IndexBuilding], n[driver.IndexRefused])
}

// TestSlowQueriesGetAnIndex: the second slow query on many documents starts the build of an index. Counts read it
// alone, it survives a restart, Indexes reports it, and it is dropped when it is unused.
func TestSlowQueriesGetAnIndex(t *testing.T) {
	inBoth(t, testSlowQueriesGetAnIndex)
}

func testSlowQueriesGetAnIndex(t *testing.T, shared bool) {
	seen := &plans{}
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	ask := func(ws *workspace, name string) {
		t.Helper()
		n, err := ws.Count(t.Context(), c, onCustom(name, driver.Eq, int64(7)))
		if err != nil || n != minIndexedDocuments/100 {
			t.Fatalf("Count = %d, %v; want %d", n, err, minIndexedDocuments/100)
		}
	}
	slow := func(name string, took time.Duration) []fieldKey {
		s := &statement{t: ws.tables["people"], ws: ws.space.id, indexable: []string{name}}
		return ws.file.indexes.noteQuery(s, took, false)
	}
	if len(slow("other", slowScan-1)) != 0 || len(slow("other", slowScan)) != 0 || len(slow("other", slowScan)) != 1 {
		t.Error("an index is not requested by exactly the second slow query")
	}
	ask(ws, "score")
	for deadline := time.Now().Add(time.Minute); ws.file.indexes.states() != "1 ready, 0 building, 0 refused"; time.Sleep(time.Millisecond) {
		ws.buildIndexes(ws.tables["people"], slow("score", slowScan))
		if time.Now().After(deadline) {
			t.Fatal(ws.file.indexes.states())
		}
	}
	ask(ws, "score")
	found, err := e.Indexes(t.Context())
	want := driver.IndexStatus{Database: "w", Collection: "people", Index: "score", State: driver.IndexReady}
	if err != nil || len(found) != 1 || found[0] != want {
		t.Errorf("Indexes = %+v, %v; want %+v", found, err, want)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	const noted = "SELECT used FROM fields"
	e = openEngine(t, Options{Shared: shared, Dir: dir, Observe: seen.add, idleInterval: 5 * time.Millisecond})
	ws = openWorkspace(t, e, "w", c)
	ask(ws, "score")
	if all := fmt.Sprint(seen.take()); !strings.Contains(all, "SEARCH e:people USING PRIMARY KEY") || strings.Contains(all, "c:people USING") {
		t.Errorf("plan of the count = %s, want the index alone", all)
	}
	if got := ws.file.indexes.states(); got != "1 ready, 0 building, 0 refused" {
		t.Errorf("indexes after a restart: %s, want 1 ready", got)
	}
	ws.file.dropUnused(t.Context(), time.Now().Add(-time.Hour))
	ask(ws, "score")
	if got := ws.file.indexes.states(); got != "1 ready, 0 building, 0 refused" {
		t.Errorf("indexes after a recent use: %s, want 1 ready", got)
	}
	key := fieldKey{ws.space.id, "people", "", "score"}
	alter(t, ws, "UPDATE fields SET used = used - ?1", int64(2*useInterval/time.Second)) // before it is due, so that it stays
	x := ws.file.indexes.indexedBy(key)
	ws.file.indexes.mu.Lock()
	x.storedUse -= int64(2 * useInterval)
	ws.file.indexes.mu.Unlock()
	for deadline := time.Now().Add(time.Minute); columnOf(t, ws, 0, noted)[0] < fmt.Sprint(time.Now().Add(-useInterval).Unix()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the last use is not stored in the file")
		}
	}
	// After a restart the last use is read from the file.
	last := time.Now().Add(-unusedAfter + time.Hour)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir})
	ws = openWorkspace(t, e, "w", c)
	again := ws.file.indexes.indexedBy(key)
	if age := time.Since(time.Unix(0, again.lastUsed.Load())); age < time.Microsecond || age > time.Minute {
		t.Errorf("last use %v ago, want less than a minute", age)
	}
	alter(t, ws, "UPDATE fields SET used = ?1", last.Unix())
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir})
	ws = openWorkspace(t, e, "w", c)
	stored := ws.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "", "score"})
	if got := time.Unix(0, stored.lastUsed.Load()); got.Unix() != last.Unix() {
		t.Errorf("last use = %v, want %v", got, last)
	}
	ws.file.dropUnused(t.Context(), last.Add(2*time.Hour))
	got, kept := ws.file.indexes.states(), columnOf(t, ws, 0, `SELECT count(*) FROM "e:people"`)
	if got != "0 ready, 0 building, 0 refused" || kept[0] != fmt.Sprint(minIndexedDocuments) {
		t.Errorf("unused index after a restart: %s, %s entries; want it dropped, with the entries that a query may still read",
			got, kept)
	}
	deleteDropped(t, ws)
	buildField(t, ws, "score")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir, idleInterval: 5 * time.Millisecond})
	ws = openWorkspace(t, e, "w", c)
	longAgo := time.Now().Add(-unusedAfter - time.Hour)
	ws.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "", "score"}).lastUsed.Store(longAgo.UnixNano())
	for deadline := time.Now().Add(time.Minute); ws.file.indexes.states() != "0 ready, 0 building, 0 refused"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("indexes while unused: %s, want 0 ready", ws.file.indexes.states())
		}
	}
	ask(ws, "score")
}

// TestFieldIndexesAreBounded: a collection has at most maxFieldIndexes, the most recently used; a small one has none;
// and an index that cannot be built is reported with the reason.
func TestFieldIndexesAreBounded(t *testing.T) { inBoth(t, testFieldIndexesAreBounded) }

func testFieldIndexesAreBounded(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared, Dir: t.TempDir()})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	table := ws.tables["people"]
	job := func(i int) indexJob {
		return indexJob{w: ws, t: table, key: fieldKey{ws.space.id, "people", "", fmt.Sprintf("k%d", i)}}
	}
	e.buildIndex(t.Context(), job(0))
	if got := ws.file.indexes.states(); got != "0 ready, 0 building, 0 refused" {
		t.Errorf("indexes of an empty collection: %s, want none", got)
	}
	// A request for an index of a small collection must not leave it in state building, even if the job runs at once.
	for i, deadline := 0, time.Now().Add(time.Minute); i < 200; i++ {
		for ws.buildIndexes(table, []fieldKey{job(0).key}); ws.file.indexes.states() != "0 ready, 0 building, 0 refused"; time.Sleep(time.Microsecond) {
			if time.Now().After(deadline) {
				t.Fatalf("indexes after request %d: %s, want none", i+1, ws.file.indexes.states())
			}
		}
	}
	fill(t, ws, c, minIndexedDocuments)
	for i := range maxFieldIndexes + 3 {
		buildField(t, ws, job(i).key.name)
	}
	for i := range maxFieldIndexes + 3 {
		if has := ws.file.indexes.indexedBy(job(i).key) != nil; has != (i >= 3) {
			t.Errorf("index %d is ready: %t, want %t", i, has, i >= 3)
		}
	}
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	// Damage the custom values of one document.
	if err := db.transact(t.Context(), t.Context(), load{}, nil, func(c *conn) error {
		return c.exec(`UPDATE "c:people" SET custom = '{' WHERE id = (SELECT min(id) FROM "c:people")`)
	}); err == nil { // existing indexes parse it
		t.Error("the indexes accept custom values that are not JSON")
	}
	ws.file.dropUnused(t.Context(), time.Now().Add(time.Hour))
	deleteDropped(t, ws)
	if err := db.transact(t.Context(), t.Context(), load{}, nil, func(c *conn) error {
		return c.exec(`UPDATE "c:people" SET custom = '{' WHERE id = (SELECT min(id) FROM "c:people")`)
	}); err != nil {
		t.Fatal(err)
	}
	e.buildIndex(t.Context(), job(1))
	found, err := e.Indexes(t.Context())
	if err != nil || len(found) != 1 || found[0].State != driver.IndexRefused || !strings.Contains(found[0].Reason, "read every document") {
		t.Errorf(`Indexes = %+v, %v; want one in state %v with a reason containing "read every document"`,
			found, err, driver.IndexRefused)
	}
	var requested int
	for i := range 2 * maxFields {
		s := &statement{t: table, ws: ws.space.id, indexable: []string{fmt.Sprintf("f%d", i)}}
		requested += len(ws.file.indexes.noteQuery(s, time.Second, false))
	}
	if n := len(ws.file.indexes.all); n > maxFields+1 || requested != 0 {
		t.Errorf("%d fields are counted, %d indexes requested; want at most %d and 0", n, requested, maxFields+1)
	}
}

// TestFieldIndexDoesNotChangeOtherPlans: an index is analyzed when it is built and with the others later, and queries
// on other fields keep their plans. Without statistics the planner could confuse indexes.
func TestFieldIndexDoesNotChangeOtherPlans(t *testing.T) {
	inBoth(t, testFieldIndexDoesNotChangeOtherPlans)
}

func testFieldIndexDoesNotChangeOtherPlans(t *testing.T, shared bool) {
	seen := &plans{}
	e := openEngine(t, Options{Shared: shared, Observe: seen.add})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, analyzeEvery) // so that the other indexes have statistics
	ask := func(by string, where driver.Predicate) (sql string) {
		t.Helper()
		e.observed.Clear()
		if _, err := ws.Count(t.Context(), c, where); err != nil {
			t.Fatal(err)
		}
		all := seen.take()
		if len(all) != 1 || !strings.Contains(fmt.Sprint(all), by) {
			t.Fatalf("plans = %s, want one by %s", all, by)
		}
		return all[0].SQL
	}
	without := onField("name", driver.Contains, "77")
	before := ask("COVERING INDEX i:people:name", without)
	buildField(t, ws, "score")
	for range 2 {
		if sql := ask("COVERING INDEX i:people:name", without); sql != before {
			t.Errorf("statement = %s, want %s", sql, before)
		}
		ask("SEARCH e:people USING PRIMARY KEY", onCustom("score", driver.Eq, int64(7)))
		ask("SEARCH e:people USING PRIMARY KEY", driver.Predicate{Kids: []driver.Predicate{without, onCustom("score", driver.Gt, int64(50))}})
		want := map[bool]string{true: "10000 10000 2001 96 ", false: "10000 2001 96 "}[shared]
		stats := columnOf(t, ws, 0, "SELECT stat FROM sqlite_stat1 WHERE tbl = 'e:people'")
		if len(stats) != 1 || !strings.HasPrefix(stats[0], want) {
			t.Errorf("statistics = %q, want %q", stats, want)
		}
		writes := make([]driver.Write, analyzeEvery)
		for i := range writes {
			writes[i] = person(c, i)
			writes[i].Op = driver.Put
		}
		if err := ws.Write(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCountsReadOnlyTheFieldIndex: entries include everything that a count needs, unless custom values are large.
func TestCountsReadOnlyTheFieldIndex(t *testing.T) {
	inBoth(t, testCountsReadOnlyTheFieldIndex)
}

func testCountsReadOnlyTheFieldIndex(t *testing.T, shared bool) {
	seen := &plans{}
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir, Observe: seen.add})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	// reads checks how many tables and indexes a count with several conditions reads.
	reads := func(want int) {
		t.Helper()
		e.observed.Clear()
		seen.take()
		where := driver.Predicate{Kids: []driver.Predicate{
			onField("teams", driver.Ne, "blue"), onCustom("score", driver.Gt, int64(90)), onCustom("plan", driver.Contains, "gold"),
		}}
		if n, err := ws.Count(t.Context(), c, where); err != nil || n != minIndexedDocuments*9/100 {
			t.Fatalf("Count = %d, %v; want %d", n, err, minIndexedDocuments*9/100)
		}
		all, n := seen.take(), 0
		if len(all) != 1 || !strings.Contains(fmt.Sprint(all), "SEARCH e:people USING PRIMARY KEY") {
			t.Fatalf("plans = %v, want one by the index", all)
		}
		for _, code := range columnOf(t, ws, 1, "EXPLAIN "+all[0].SQL) {
			if code == "OpenRead" {
				n++
			}
		}
		if n != want {
			t.Errorf("a count reads %d tables and indexes, want %d", n, want)
		}
	}
	buildField(t, ws, "score")
	reads(1)
	writes := make([]driver.Write, minIndexedDocuments)
	for i := range writes {
		writes[i] = person(c, i)
		writes[i].Op = driver.Put
		writes[i].Doc.Custom = []byte(fmt.Sprintf(`{"plan":"gold","score":%d,"note":%q}`, i%100, strings.Repeat("x", maxCoveredCustom)))
	}
	if err := ws.Write(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	reads(1)
	ws.file.dropUnused(t.Context(), time.Now().Add(time.Hour))
	buildField(t, ws, "score")
	reads(2)
}

// TestSortsUseTheFieldIndex: a page in the order of a custom field is read from its index, and slow queries request
// one.
func TestSortsUseTheFieldIndex(t *testing.T) { inBoth(t, testSortsUseTheFieldIndex) }

func testSortsUseTheFieldIndex(t *testing.T, shared bool) {
	seen, dir := &plans{}, t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir, Observe: seen.add})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	score := driver.Ref{Name: "score", Custom: true, Type: driver.Float}
	id := driver.Ref{Name: "id"}
	from := driver.Predicate{Kids: []driver.Predicate{
		onCustom("score", driver.From, int64(5)),
		{Op: driver.Or, Kids: []driver.Predicate{onCustom("score", driver.Ne, int64(5)), onField("id", driver.Gt, "x")}},
	}}
	pages := func(ws *workspace) (all string) {
		for _, q := range []driver.Query{
			{Sort: []driver.Order{{Ref: score}}},
			{Sort: []driver.Order{{Ref: score, Desc: true}, {Ref: id, Desc: true}}},
			{Sort: []driver.Order{{Ref: score}}, Offset: deepPage},
			{Where: onField("teams", driver.Ne, "blue"), Sort: []driver.Order{{Ref: score}}},
			{Where: from, Sort: []driver.Order{{Ref: score}}},
		} {
			q.Collection, q.Limit = c, 10
			if _, err := ws.Find(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			for _, p := range seen.take() {
				plan := strings.Join(p.Lines, "\n")
				// One sort is allowed: that of the documents of the page.
				if !strings.Contains(plan, "SEARCH e:people USING PRIMARY KEY") || strings.Count(plan, "TEMP B-TREE") > 1 {
					all += p.SQL + "\n" + plan + "\n"
				}
			}
		}
		return all
	}
	s, err := ws.compileQuery(ws.tables["people"], driver.Query{Collection: c, Sort: []driver.Order{{Ref: score}}, Limit: 10}, nil)
	if err != nil || len(s.indexable) != 1 {
		t.Errorf("indexable = %v, %v; want [score]", s.indexable, err)
	}
	buildField(t, ws, "score")
	e.observed.Clear()
	if all := pages(ws); all != "" {
		t.Errorf("plans that do not follow the index: %v, want none", all)
	}
}

// buildField builds the index on a field of people.
func buildField(t *testing.T, ws *workspace, name string) {
	t.Helper()
	key := fieldKey{ws.space.id, "people", "", name}
	for tries := 0; ws.file.indexes.indexedBy(key) == nil && tries < 100; tries++ { // steps may time out on a busy machine
		ws.engine.buildIndex(t.Context(), indexJob{w: ws, t: ws.tables["people"], key: key})
	}
}

// deleteDropped deletes the entries of dropped indexes, and checks that none is left.
func deleteDropped(t *testing.T, ws *workspace) {
	t.Helper()
	ws.file.deleteDropped(time.Now().Add(time.Hour))
	for deadline := time.Now().Add(time.Minute); len(columnOf(t, ws, 0, "SELECT number FROM fields WHERE state <> 'ready'")) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("dropped indexes are not deleted")
		}
	}
	if left := columnOf(t, ws, 0, `SELECT DISTINCT number FROM "e:people" WHERE number NOT IN (SELECT number FROM fields)`); len(left) > 0 {
		t.Errorf("indexes %v have entries left, want none", left)
	}
}

// TestFieldNamesAreCaseSensitive: fields whose names differ only in case have an index each. Indexes of an earlier
// version are dropped.
func TestFieldNamesAreCaseSensitive(t *testing.T) { inBoth(t, testFieldNamesAreCaseSensitive) }

func testFieldNamesAreCaseSensitive(t *testing.T, shared bool) {
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	for _, name := range []string{"score", "Score", "scorE"} {
		buildField(t, ws, name)
	}
	ask := func() {
		for name, want := range map[string]int64{"score": minIndexedDocuments / 100, "Score": 0} {
			if n, err := ws.Count(t.Context(), c, onCustom(name, driver.Eq, int64(7))); n != want || err != nil {
				t.Errorf("Count by %s = %d, %v; want %d", name, n, err, want)
			}
		}
		if got := ws.file.indexes.states(); got != "3 ready, 0 building, 0 refused" {
			t.Errorf("indexes: %s, want 3 ready", got)
		}
	}
	ask()
	alter(t, ws, `CREATE INDEX "x:people:Plan" ON "c:people" (custom -> 'Plan', id)`)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir})
	ws = openWorkspace(t, e, "w", c)
	if ask(); len(columnOf(t, ws, 0, "SELECT name FROM sqlite_schema WHERE name GLOB 'x:*'")) != 0 {
		t.Error("an index of an earlier version remains")
	}
}

// alter runs a statement on the file of a workspace.
func alter(t *testing.T, ws *workspace, sql string, args ...any) {
	t.Helper()
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	if err := db.transact(t.Context(), t.Context(), load{}, nil, func(c *conn) error { return c.exec(sql, args...) }); err != nil {
		t.Fatal(err)
	}
}

// columnOf returns a column of the rows of a statement, run by a reader of the workspace's file.
func columnOf(t *testing.T, ws *workspace, column int, sql string) (values []string) {
	t.Helper()
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	r, err := db.reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = r.conn.rows(sql, nil, func(row *sqlite.Stmt) error {
		values = append(values, row.ColumnText(column))
		return nil
	})
	db.putReader(r, err)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// TestUnindexedQueriesScanTheTable: a query for which no index selects few documents reads the table from beginning to
// end, and does not look documents up by an index, such as that on deletion.
func TestUnindexedQueriesScanTheTable(t *testing.T) {
	inBoth(t, testUnindexedQueriesScanTheTable)
}

func testUnindexedQueriesScanTheTable(t *testing.T, shared bool) {
	seen := &plans{}
	e := openEngine(t, Options{Shared: shared, Observe: seen.add})
	c := scored()
	c.Fields = append(c.Fields, driver.Field{Name: "deleted", Type: driver.Bool})
	c.Indexes = append(c.Indexes, driver.Index{Name: "deleted", Fields: []string{"deleted", "created"}})
	ws := openWorkspace(t, e, "w", c)
	batch := make([]driver.Write, analyzeEvery) // so that there are statistics
	for i := range batch {
		batch[i] = person(c, i)
		batch[i].Doc.Values = append(batch[i].Doc.Values, i%10 == 0)
	}
	if err := ws.Write(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	live, score := onField("deleted", driver.Eq, false), onCustom("score", driver.Eq, int64(7))
	all := func(kids ...driver.Predicate) driver.Predicate { return driver.Predicate{Kids: kids} }
	either := driver.Predicate{Op: driver.Or, Kids: []driver.Predicate{
		onField("name", driver.Eq, "Person 55433"), onField("email", driver.Eq, "p0000107@example.org"),
	}}
	for _, q := range []struct {
		where driver.Predicate
		by    string
		want  int64
	}{
		{all(live, score), "c:people USING PRIMARY KEY", analyzeEvery / 100},
		{score, "c:people USING PRIMARY KEY", analyzeEvery / 100},
		{all(live, score, onField("name", driver.Eq, "Person 55433")), "INDEX i:people:name", 1},
		{all(live, score, either), "INDEX i:people:name", 2},
		{live, "INDEX i:people:", analyzeEvery * 9 / 10},
	} {
		e.observed.Clear()
		seen.take()
		n, err := ws.Count(t.Context(), c, q.where)
		if plan := fmt.Sprint(seen.take()); err != nil || n != q.want || !strings.Contains(plan, q.by) {
			t.Errorf("Count = %d, %v, by %s; want %d by %s", n, err, plan, q.want, q.by)
		}
	}
	e.observed.Clear()
	rows, err := ws.Aggregate(t.Context(), driver.Aggregation{
		Collection: c,
		Where:      live,
		Groups:     []driver.Group{{Ref: driver.Ref{Name: "plan", Custom: true}}},
		Measures:   []driver.Measure{{Op: driver.Count}},
	})
	want, plan := int64(analyzeEvery*9/10), fmt.Sprint(seen.take())
	if err != nil || len(rows) != 1 || rows[0][1] != want || !strings.Contains(plan, "c:people USING PRIMARY KEY") {
		t.Errorf("Aggregate = %v, %v, by %s; want one row with the count %d by c:people USING PRIMARY KEY", rows, err, plan, want)
	}
}
