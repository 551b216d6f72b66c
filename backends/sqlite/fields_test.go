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

// TestFields_AnswersAreTheSame: an index on every field that is asked for changes no answer.
func TestFields_AnswersAreTheSame(t *testing.T) { inBoth(t, testFieldsAnswersAreTheSame) }

func testFieldsAnswersAreTheSame(t *testing.T, shared bool) {
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

// scored are people whose scores and plans are the organization's own fields.
func scored() *driver.Collection {
	c := people()
	c.Custom, c.Rides = true, []string{"teams"}
	return c
}

func (f *fieldIndexes) states() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := map[driver.IndexState]int{}
	for _, x := range f.all {
		n[x.state]++
	}
	return fmt.Sprintf("%d ready, %d building, %d refused", n[driver.IndexReady], n[driver.IndexBuilding], n[driver.IndexRefused])
}

// TestFields_WhatIsAskedForGetsAnIndex: the second slow question over many documents has one made, which is read
// alone by counts, survives the process, is told of, and goes when nobody asks for it.
func TestFields_WhatIsAskedForGetsAnIndex(t *testing.T) {
	inBoth(t, testFieldsWhatIsAskedForGetsAnIndex)
}

func testFieldsWhatIsAskedForGetsAnIndex(t *testing.T, shared bool) {
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
			t.Fatalf("got %d, %v, want no error and n = %v", n, err, minIndexedDocuments/100)
		}
	}
	slow := func(name string, took time.Duration) []fieldKey {
		return ws.file.indexes.noteQuery(&statement{t: ws.tables["people"], ws: ws.space.id, indexable: []string{name}}, took, false)
	}
	if len(slow("other", slowScan-1)) != 0 || len(slow("other", slowScan)) != 0 || len(slow("other", slowScan)) != 1 {
		t.Error("it is not the second slow question that wants an index")
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
	if err != nil || len(found) != 1 || found[0] != (driver.IndexStatus{Database: "w", Collection: "people", Index: "score", State: driver.IndexReady}) {
		t.Errorf("got %+v, %v, want no error and len(found) = 1", found, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	const noted = "SELECT used FROM fields"
	e = openEngine(t, Options{Shared: shared, Dir: dir, Observe: seen.add, idleInterval: 5 * time.Millisecond})
	ws = openWorkspace(t, e, "w", c)
	ask(ws, "score")
	if all := fmt.Sprint(seen.take()); !strings.Contains(all, "SEARCH e:people USING PRIMARY KEY") || strings.Contains(all, "c:people USING") {
		t.Errorf("the count reads more than the index: %s", all)
	}
	if got := ws.file.indexes.states(); got != "1 ready, 0 building, 0 refused" {
		t.Errorf("opened again: %s", got)
	}
	ws.file.dropUnused(t.Context(), time.Now().Add(-time.Hour))
	ask(ws, "score")
	if got := ws.file.indexes.states(); got != "1 ready, 0 building, 0 refused" {
		t.Errorf("used a moment ago: %s", got)
	}
	key := fieldKey{ws.space.id, "people", "", "score"}
	ws.file.indexes.indexedBy(key).storedUse -= int64(2 * useInterval)
	alter(t, ws, "UPDATE fields SET used = used - ?1", int64(2*useInterval/time.Second))
	for deadline := time.Now().Add(time.Minute); columnOf(t, ws, 0, noted)[0] < fmt.Sprint(time.Now().Add(-useInterval).Unix()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the file does not know that it was used")
		}
	}
	// When it was used last is what the file says, though the program is started anew.
	last := time.Now().Add(-unusedAfter + time.Hour)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir})
	ws = openWorkspace(t, e, "w", c)
	again := ws.file.indexes.indexedBy(key)
	if age := time.Since(time.Unix(0, again.lastUsed.Load())); age < time.Microsecond || age > time.Minute {
		t.Errorf("it was used %v ago", age)
	}
	alter(t, ws, "UPDATE fields SET used = ?1", last.Unix())
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir})
	ws = openWorkspace(t, e, "w", c)
	if got := time.Unix(0, ws.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "", "score"}).lastUsed.Load()); got.Unix() != last.Unix() {
		t.Errorf("it was used at %v, not %v", got, last)
	}
	ws.file.dropUnused(t.Context(), last.Add(2*time.Hour))
	if got, kept := ws.file.indexes.states(), columnOf(t, ws, 0, "SELECT count(*) FROM \"e:people\""); got != "0 ready, 0 building, 0 refused" || kept[0] != fmt.Sprint(minIndexedDocuments) {
		t.Errorf("unused before it was started: %s, %s entries, which a question may be about to read", got, kept)
	}
	deleteDropped(t, ws)
	makeField(t, ws, "score")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir, idleInterval: 5 * time.Millisecond})
	ws = openWorkspace(t, e, "w", c)
	ws.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "", "score"}).lastUsed.Store(time.Now().Add(-unusedAfter - time.Hour).UnixNano())
	for deadline := time.Now().Add(time.Minute); ws.file.indexes.states() != "0 ready, 0 building, 0 refused"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("unused: %s", ws.file.indexes.states())
		}
	}
	ask(ws, "score")
}

// TestFields_AreBounded: a collection has as many as are allowed, those used last; a small one has none; and what
// cannot be made is said.
func TestFields_AreBounded(t *testing.T) { inBoth(t, testFieldsAreBounded) }

func testFieldsAreBounded(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared, Dir: t.TempDir()})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	table := ws.tables["people"]
	job := func(i int) indexJob {
		return indexJob{w: ws, t: table, key: fieldKey{ws.space.id, "people", "", fmt.Sprintf("k%d", i)}}
	}
	e.buildIndex(t.Context(), job(0))
	if got := ws.file.indexes.states(); got != "0 ready, 0 building, 0 refused" {
		t.Errorf("of an empty collection: %s", got)
	}
	// However soon it is found small, nobody is left to think that it is being made.
	for i, deadline := 0, time.Now().Add(time.Minute); i < 200; i++ {
		for ws.buildIndexes(table, []fieldKey{job(0).key}); ws.file.indexes.states() != "0 ready, 0 building, 0 refused"; time.Sleep(time.Microsecond) {
			if time.Now().After(deadline) {
				t.Fatalf("wanted %d times: %s", i+1, ws.file.indexes.states())
			}
		}
	}
	fill(t, ws, c, minIndexedDocuments)
	for i := range maxFieldIndexes + 3 {
		makeField(t, ws, job(i).key.name)
	}
	for i := range maxFieldIndexes + 3 {
		if has := ws.file.indexes.indexedBy(job(i).key) != nil; has != (i >= 3) {
			t.Errorf("index %d: %t", i, has)
		}
	}
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	// Somebody else has made the custom values of one document none.
	if err := db.transact(t.Context(), t.Context(), load{}, nil, func(c *conn) error {
		return c.exec(`UPDATE "c:people" SET custom = '{' WHERE id = (SELECT min(id) FROM "c:people")`)
	}); err == nil { // the indexes that are there read it
		t.Error("an index takes what is not JSON")
	}
	ws.file.dropUnused(t.Context(), time.Now().Add(time.Hour))
	deleteDropped(t, ws)
	if err := db.transact(t.Context(), t.Context(), load{}, nil, func(c *conn) error {
		return c.exec(`UPDATE "c:people" SET custom = '{' WHERE id = (SELECT min(id) FROM "c:people")`)
	}); err != nil {
		t.Fatal(err)
	}
	e.buildIndex(t.Context(), job(1))
	if found, err := e.Indexes(t.Context()); err != nil || len(found) != 1 || found[0].State != driver.IndexRefused || !strings.Contains(found[0].Reason, "read every document") {
		t.Errorf(`got %+v, %v, want no error and len(found) = 1 and found[0].State = %v and containing "read every document"`,
			found, err, driver.IndexRefused)
	}
	var wanted int
	for i := range 2 * maxFields {
		wanted += len(ws.file.indexes.noteQuery(&statement{t: table, ws: ws.space.id, indexable: []string{fmt.Sprintf("f%d", i)}}, time.Second, false))
	}
	if n := len(ws.file.indexes.all); n > maxFields+1 || wanted != 0 {
		t.Errorf("%d fields are watched, %d wanted", n, wanted)
	}
}

// TestFields_ConcernNobodyElse: an index is measured when it is made and with the others later, and what does not
// ask for its field is asked as before. The planner would take one for the other.
func TestFields_ConcernNobodyElse(t *testing.T) { inBoth(t, testFieldsConcernNobodyElse) }

func testFieldsConcernNobodyElse(t *testing.T, shared bool) {
	seen := &plans{}
	e := openEngine(t, Options{Shared: shared, Observe: seen.add})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, analyzeEvery) // so that the others are measured
	ask := func(by string, where driver.Predicate) (sql string) {
		t.Helper()
		e.observed.Clear()
		if _, err := ws.Count(t.Context(), c, where); err != nil {
			t.Fatal(err)
		}
		all := seen.take()
		if len(all) != 1 || !strings.Contains(fmt.Sprint(all), by) {
			t.Fatalf("not by %s: %s", by, all)
		}
		return all[0].SQL
	}
	without := onField("name", driver.Contains, "77")
	before := ask("COVERING INDEX i:people:name", without)
	makeField(t, ws, "score")
	for range 2 {
		if sql := ask("COVERING INDEX i:people:name", without); sql != before {
			t.Errorf("%s is asked as %s", before, sql)
		}
		ask("SEARCH e:people USING PRIMARY KEY", onCustom("score", driver.Eq, int64(7)))
		ask("SEARCH e:people USING PRIMARY KEY", driver.Predicate{Kids: []driver.Predicate{without, onCustom("score", driver.Gt, int64(50))}})
		if stats := columnOf(t, ws, 0, "SELECT stat FROM sqlite_stat1 WHERE tbl = 'e:people'"); len(stats) != 1 || !strings.HasPrefix(stats[0], map[bool]string{true: "10000 10000 2001 96 ", false: "10000 2001 96 "}[shared]) {
			t.Errorf("measured as %q", stats)
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

// TestFields_CountsReadNothingButTheIndex: it has what a count needs, unless that is too much.
func TestFields_CountsReadNothingButTheIndex(t *testing.T) {
	inBoth(t, testFieldsCountsReadNothingButTheIndex)
}

func testFieldsCountsReadNothingButTheIndex(t *testing.T, shared bool) {
	seen := &plans{}
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir, Observe: seen.add})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	// reads is how many tables and indexes are read by a count of the kind that has most entries.
	reads := func(want int) {
		t.Helper()
		e.observed.Clear()
		seen.take()
		where := driver.Predicate{Kids: []driver.Predicate{onField("teams", driver.Ne, "blue"), onCustom("score", driver.Gt, int64(90)), onCustom("plan", driver.Contains, "gold")}}
		if n, err := ws.Count(t.Context(), c, where); err != nil || n != minIndexedDocuments*9/100 {
			t.Fatalf("got %d, %v, want no error and n = %v", n, err, minIndexedDocuments*9/100)
		}
		all, n := seen.take(), 0
		if len(all) != 1 || !strings.Contains(fmt.Sprint(all), "SEARCH e:people USING PRIMARY KEY") {
			t.Fatalf("not by the index: %v", all)
		}
		for _, code := range columnOf(t, ws, 1, "EXPLAIN "+all[0].SQL) {
			if code == "OpenRead" {
				n++
			}
		}
		if n != want {
			t.Errorf("a count reads %d, want %d", n, want)
		}
	}
	makeField(t, ws, "score")
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
	makeField(t, ws, "score")
	reads(2)
}

// TestFields_SortsFollowTheIndex: a page in the order of a defined field is read from its index, which slow ones want.
func TestFields_SortsFollowTheIndex(t *testing.T) { inBoth(t, testFieldsSortsFollowTheIndex) }

func testFieldsSortsFollowTheIndex(t *testing.T, shared bool) {
	seen, dir := &plans{}, t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir, Observe: seen.add})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	score := driver.Ref{Name: "score", Custom: true, Type: driver.Float}
	pages := func(ws *workspace) (all string) {
		for _, q := range []driver.Query{
			{Sort: []driver.Order{{Ref: score}}}, {Sort: []driver.Order{{Ref: score, Desc: true}, {Ref: driver.Ref{Name: "id"}, Desc: true}}}, {Sort: []driver.Order{{Ref: score}}, Offset: deepPage},
			{Where: onField("teams", driver.Ne, "blue"), Sort: []driver.Order{{Ref: score}}},
			{Where: driver.Predicate{Kids: []driver.Predicate{onCustom("score", driver.From, int64(5)), {Op: driver.Or, Kids: []driver.Predicate{onCustom("score", driver.Ne, int64(5)), onField("id", driver.Gt, "x")}}}}, Sort: []driver.Order{{Ref: score}}},
		} {
			q.Collection, q.Limit = c, 10
			if _, err := ws.Find(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			for _, p := range seen.take() {
				if plan := strings.Join(p.Lines, "\n"); !strings.Contains(plan, "SEARCH e:people USING PRIMARY KEY") || strings.Count(plan, "TEMP B-TREE") > 1 { // that of the documents of the page
					all += p.SQL + "\n" + plan + "\n"
				}
			}
		}
		return all
	}
	s, err := ws.compileQuery(ws.tables["people"], driver.Query{Collection: c, Sort: []driver.Order{{Ref: score}}, Limit: 10}, nil)
	if err != nil || len(s.indexable) != 1 {
		t.Errorf("%v, %v: no index is wanted", s.indexable, err)
	}
	makeField(t, ws, "score")
	e.observed.Clear()
	if all := pages(ws); all != "" {
		t.Errorf(`got %v, want ""`, all)
	}
}

// makeField makes the index on a field of people.
func makeField(t *testing.T, ws *workspace, name string) {
	t.Helper()
	key := fieldKey{ws.space.id, "people", "", name}
	for tries := 0; ws.file.indexes.indexedBy(key) == nil && tries < 100; tries++ { // a busy machine takes longer than a step may
		ws.engine.buildIndex(t.Context(), indexJob{w: ws, t: ws.tables["people"], key: key})
	}
}

// deleteDropped has the entries of indexes deleted that were dropped.
func deleteDropped(t *testing.T, ws *workspace) {
	t.Helper()
	ws.file.deleteDropped(time.Now().Add(time.Hour))
	for deadline := time.Now().Add(time.Minute); len(columnOf(t, ws, 0, "SELECT number FROM fields WHERE state <> 'ready'")) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what was dropped is not deleted")
		}
	}
	if left := columnOf(t, ws, 0, `SELECT DISTINCT number FROM "e:people" WHERE number NOT IN (SELECT number FROM fields)`); len(left) > 0 {
		t.Errorf("entries of %v are left", left)
	}
}

// TestFieldsDifferByCase: names that differ in nothing else are those of two fields. What an earlier version made goes.
func TestFieldsDifferByCase(t *testing.T) { inBoth(t, testFieldsDifferByCase) }

func testFieldsDifferByCase(t *testing.T, shared bool) {
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	for _, name := range []string{"score", "Score", "scorE"} {
		makeField(t, ws, name)
	}
	ask := func() {
		for name, want := range map[string]int64{"score": minIndexedDocuments / 100, "Score": 0} {
			if n, err := ws.Count(t.Context(), c, onCustom(name, driver.Eq, int64(7))); n != want || err != nil {
				t.Errorf("%s: got %d, %v, want n = %v and no error", name, n, err, want)
			}
		}
		if ws.file.indexes.states() != "3 ready, 0 building, 0 refused" {
			t.Errorf(`got %v, want "3 ready, 0 building, 0 refused"`, ws.file.indexes.states())
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
		t.Error("an index of an earlier version is kept")
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

// columnOf returns a column of what a reader of the workspace's file answers.
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

// TestFields_WithoutIndexDocumentsAreReadAsTheyLie: what no index leads to a few of is read from the first document to
// the last, and looked up by none, whatever one has of what was deleted.
func TestFields_WithoutIndexDocumentsAreReadAsTheyLie(t *testing.T) {
	inBoth(t, testFieldsWithoutIndexDocumentsAreReadAsTheyLie)
}

func testFieldsWithoutIndexDocumentsAreReadAsTheyLie(t *testing.T, shared bool) {
	seen := &plans{}
	e := openEngine(t, Options{Shared: shared, Observe: seen.add})
	c := scored()
	c.Fields = append(c.Fields, driver.Field{Name: "deleted", Type: driver.Bool})
	c.Indexes = append(c.Indexes, driver.Index{Name: "deleted", Fields: []string{"deleted", "created"}})
	ws := openWorkspace(t, e, "w", c)
	batch := make([]driver.Write, analyzeEvery) // so that they are measured
	for i := range batch {
		batch[i] = person(c, i)
		batch[i].Doc.Values = append(batch[i].Doc.Values, i%10 == 0)
	}
	if err := ws.Write(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	live, score := onField("deleted", driver.Eq, false), onCustom("score", driver.Eq, int64(7))
	all := func(kids ...driver.Predicate) driver.Predicate { return driver.Predicate{Kids: kids} }
	for _, q := range []struct {
		where driver.Predicate
		by    string
		want  int64
	}{
		{all(live, score), "c:people USING PRIMARY KEY", analyzeEvery / 100},
		{score, "c:people USING PRIMARY KEY", analyzeEvery / 100},
		{all(live, score, onField("name", driver.Eq, "Person 55433")), "INDEX i:people:name", 1},
		{all(live, score, driver.Predicate{Op: driver.Or, Kids: []driver.Predicate{onField("name", driver.Eq, "Person 55433"), onField("email", driver.Eq, "p0000107@example.org")}}), "INDEX i:people:name", 2},
		{live, "INDEX i:people:", analyzeEvery * 9 / 10},
	} {
		e.observed.Clear()
		seen.take()
		n, err := ws.Count(t.Context(), c, q.where)
		if plan := fmt.Sprint(seen.take()); err != nil || n != q.want || !strings.Contains(plan, q.by) {
			t.Errorf("%d, want %d by %s, %v: %s", n, q.want, q.by, err, plan)
		}
	}
	e.observed.Clear()
	rows, err := ws.Aggregate(t.Context(), driver.Aggregation{Collection: c, Where: live, Groups: []driver.Group{{Ref: driver.Ref{Name: "plan", Custom: true}}}, Measures: []driver.Measure{{Op: driver.Count}}})
	if plan := fmt.Sprint(seen.take()); err != nil || len(rows) != 1 || rows[0][1] != int64(analyzeEvery*9/10) || !strings.Contains(plan, "c:people USING PRIMARY KEY") {
		t.Errorf(`got %v, %v: %s, want no error and len(rows) = 1 and rows[0][1] = %v and containing "c:people USING PRIMARY KEY"`,
			rows, err, plan, int64(analyzeEvery*9/10))
	}
}
