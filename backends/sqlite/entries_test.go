package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// checkEntries checks that the entries of an index match the documents.
func checkEntries(t *testing.T, ws *workspace, name string) {
	t.Helper()
	x := ws.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "", name})
	if x == nil {
		t.Fatalf("%s has no index: %s", name, ws.file.indexes.states())
	}
	tb := ws.tables["people"]
	have := fmt.Sprintf("SELECT * FROM %s WHERE number = %d", tb.entries, x.number)
	want := "SELECT " + tb.entry("", fmt.Sprint(x.number), "'"+name+"'", fmt.Sprint(x.coversCustom)) +
		" FROM " + tb.quoted + tb.ifShared(fmt.Sprintf(" WHERE ws = %d", ws.space.id))
	for what, sql := range map[string]string{"too many": have + " EXCEPT " + want, "missing": want + " EXCEPT " + have} {
		if wrong := columnOf(t, ws, 0, "SELECT count(*) FROM ("+sql+")"); wrong[0] != "0" {
			t.Errorf("%s entries are %s, want 0", wrong[0], what)
		}
	}
	if n := columnOf(t, ws, 0, "SELECT count(*) FROM ("+want+")"); n[0] == "0" {
		t.Error("the collection has no documents")
	}
}

// oddValues are values that entries have in another form than documents, or not at all.
var oddValues = []string{`7`, `7.5`, `-1e300`, `"7"`, `""`, `true`, `false`, `null`, `[7]`, `{"a":7}`, `9007199254740993`, `"ä\u0000\"b"`}

// TestEntriesMatchDocuments: the index has one entry for each document, although documents are written while the index
// is built, and afterwards.
func TestEntriesMatchDocuments(t *testing.T) { inBoth(t, testEntriesMatchDocuments) }

func testEntriesMatchDocuments(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	c := scored()
	ws, next := openWorkspace(t, e, "w", c), openWorkspace(t, e, "next", c)
	fill(t, ws, c, 2*minIndexedDocuments)
	fill(t, next, c, 10)
	change := func(i int) {
		wr := person(c, i)
		wr.Op, wr.Doc.Rev = driver.Put, 1
		if i%7 > 0 {
			wr.Doc.Custom = []byte(`{"score":` + oddValues[i%len(oddValues)] + `}`)
		}
		if i%3 == 0 {
			wr.Doc.Values[7] = []string{"blue", "red"}
		}
		writes := []driver.Write{wr}
		if i%11 == 0 {
			gone := person(c, i)
			gone.Op, gone.Doc.Rev = driver.Delete, 1
			writes = []driver.Write{wr, gone}
		}
		for _, ws := range []*workspace{ws, next} {
			if err := ws.Write(t.Context(), writes); err != nil {
				t.Error(err)
			}
		}
	}
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		for i := 0; ; i += 13 {
			select {
			case <-stop:
				stopped <- i
				return
			default:
				change(i % (3 * minIndexedDocuments))
			}
		}
	}()
	buildField(t, ws, "score")
	close(stop)
	if n := <-stopped; n < 100 {
		t.Errorf("only %d writes were made while the index was built", n/13)
	}
	checkEntries(t, ws, "score")
	buildField(t, ws, "plan")
	for i := range 500 {
		change(i * 3)
	}
	for _, name := range []string{"score", "plan"} {
		checkEntries(t, ws, name)
	}
	if n := columnOf(t, next, 0, `SELECT count(*) FROM sqlite_schema WHERE name = 'fields'`); !shared && n[0] != "0" {
		t.Error("another workspace has an index too")
	}
	if shared {
		if others := columnOf(t, ws, 0, fmt.Sprintf(`SELECT DISTINCT ws FROM "e:people" WHERE ws <> %d`, ws.space.id)); len(others) > 0 {
			t.Errorf("workspaces %v have entries, want none", others)
		}
	}
}

// TestInterruptedIndexBuildContinues: the entries of an unfinished index are kept up to date, and a build after a
// restart continues where the former ended.
func TestInterruptedIndexBuildContinues(t *testing.T) { inBoth(t, testInterruptedIndexBuildContinues) }

func testInterruptedIndexBuildContinues(t *testing.T, shared bool) {
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	key := fieldKey{ws.space.id, "people", "", "score"}
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Microsecond) {
			if n := columnOf(t, ws, 0, "SELECT count(*) FROM sqlite_schema WHERE name = 'e:people'"); n[0] == "0" {
				continue
			}
			if n := columnOf(t, ws, 0, `SELECT count(*) FROM "e:people"`); n[0] != "0" {
				cancel()
				return
			}
		}
	}()
	e.buildIndex(ctx, indexJob{w: ws, t: ws.tables["people"], key: key})
	<-begun
	if ws.file.indexes.indexedBy(key) != nil {
		t.Skip("the index was complete before the build could be interrupted")
	}
	if n, err := ws.Count(t.Context(), c, onCustom("score", driver.Eq, int64(7))); n != minIndexedDocuments/100 || err != nil {
		t.Errorf("got %d, %v, want n = %v and no error", n, err, minIndexedDocuments/100)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir})
	ws = openWorkspace(t, e, "w", c)
	for i := range 100 {
		wr := person(c, i)
		wr.Op, wr.Doc.Rev, wr.Doc.Custom = driver.Put, 1, []byte(`{"score":7}`)
		if err := ws.Write(t.Context(), []driver.Write{wr}); err != nil {
			t.Fatal(err)
		}
	}
	buildField(t, ws, "score")
	checkEntries(t, ws, "score")
	if numbers := columnOf(t, ws, 0, "SELECT number FROM fields"); len(numbers) != 1 || numbers[0] != "1" {
		t.Errorf("numbers of indexes = %v, want [1]: the build was not continued", numbers)
	}
	// An unfinished index that nothing requests is dropped like an unused one.
	alter(t, ws, "UPDATE fields SET state = ?1, used = ?2", entriesBuilding, time.Now().Add(-unusedAfter-time.Hour).Unix())
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir})
	ws = openWorkspace(t, e, "w", c)
	deleteDropped(t, ws)
	if n := columnOf(t, ws, 0, `SELECT count(*) FROM "e:people"`); n[0] != "0" {
		t.Errorf("%s entries are left, want 0", n[0])
	}
}

// TestIndexesOfAReplacedFile: a file that was restored from a backup has the indexes of that time, whether those of the
// former file were ready, being built or to be deleted.
func TestIndexesOfAReplacedFile(t *testing.T) { inBoth(t, testIndexesOfAReplacedFile) }

func testIndexesOfAReplacedFile(t *testing.T, shared bool) {
	c := scored()
	filled := func(t *testing.T) *workspace {
		ws := openWorkspace(t, openEngine(t, Options{Shared: shared, Dir: t.TempDir()}), "w", c)
		fill(t, ws, c, minIndexedDocuments)
		return ws
	}
	backup := func(t *testing.T, ws *workspace) (restore func()) {
		closeFile := func() {
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				done, err := ws.file.closeIdle() // not while the indexes are being worked on
				if err != nil || !done && time.Now().After(end) {
					t.Fatalf("closeIdle() = %v, %v; want true", done, err)
				}
				if done {
					return
				}
			}
		}
		closeFile()
		before, err := os.ReadFile(ws.file.path)
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			closeFile()
			if err := errors.Join(os.Remove(ws.file.path), os.WriteFile(ws.file.path, before, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("ready", func(t *testing.T) {
		ws := filled(t)
		restore := backup(t, ws)
		buildField(t, ws, "score")
		restore()
		findSevens(t, ws)
	})
	t.Run("dropped", func(t *testing.T) {
		ws := filled(t)
		restore := backup(t, ws)
		buildField(t, ws, "plan")
		ws.file.dropUnused(t.Context(), time.Now().Add(time.Hour))
		restore()
		buildField(t, ws, "score") // it gets the same number
		awaitDeletion(t, ws)
		findSevens(t, ws)
		checkEntries(t, ws, "score")
	})
	t.Run("under way", func(t *testing.T) {
		ws := filled(t)
		buildField(t, ws, "plan")
		restore := backup(t, ws)
		j := indexJob{w: ws, t: ws.tables["people"], key: fieldKey{ws.space.id, "people", "", "score"}}
		x := &fieldIndex{}
		at, _, err := j.start(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		if at, _, err = j.storeRun(t.Context(), x, at); err != nil {
			t.Fatal(err)
		}
		restore()
		if _, _, err = j.storeRun(t.Context(), x, at); !errors.Is(err, errIndexGone) {
			t.Errorf("storeRun() = %v, want %v", err, errIndexGone)
		}
		buildField(t, ws, "score")
		checkEntries(t, ws, "score")
	})
	t.Run("of the backup", func(t *testing.T) {
		ws := filled(t)
		buildField(t, ws, "score")
		restore := backup(t, ws)
		findSevens(t, ws) // opens the file
		ws.file.dropUnused(t.Context(), time.Now().Add(time.Hour))
		restore()
		findSevens(t, ws)
		if ws.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "", "score"}) == nil {
			t.Error("the index of the backup is not known")
		}
	})
}

// findSevens checks that the people of fill with the score 7 are found.
func findSevens(t *testing.T, ws *workspace) {
	t.Helper()
	found, err := ws.Find(t.Context(), driver.Query{Collection: scored(), Where: onCustom("score", driver.Eq, int64(7)), Limit: minIndexedDocuments})
	if err != nil || len(found) != minIndexedDocuments/100 {
		t.Errorf("Find = %d people with the score 7, %v; want %d", len(found), err, minIndexedDocuments/100)
	}
}

// awaitDeletion starts the deletion of dropped indexes and waits for its end.
func awaitDeletion(t *testing.T, ws *workspace) {
	t.Helper()
	ws.file.deleteDropped(time.Now().Add(time.Hour))
	done := make(chan struct{})
	ws.engine.builds <- func(context.Context) { close(done) }
	<-done
}

// TestOldInterruptedBuildsAreDropped: an unfinished index is dropped after unusedAfter, unless its build is continued.
func TestOldInterruptedBuildsAreDropped(t *testing.T) { inBoth(t, testOldInterruptedBuildsAreDropped) }

func testOldInterruptedBuildsAreDropped(t *testing.T, shared bool) {
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	for _, name := range []string{"score", "plan"} {
		j := indexJob{w: ws, t: ws.tables["people"], key: fieldKey{ws.space.id, "people", "", name}}
		if _, _, err := j.start(t.Context(), &fieldIndex{}); err != nil {
			t.Fatal(err)
		}
	}
	alter(t, ws, "UPDATE fields SET used = ?1", time.Now().Add(-unusedAfter-time.Hour).Unix())
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir})
	ws = openWorkspace(t, e, "w", c)
	buildField(t, ws, "score")
	awaitDeletion(t, ws)
	findSevens(t, ws)
	checkEntries(t, ws, "score")
	if got := columnOf(t, ws, 0, "SELECT name FROM fields"); !slices.Equal(got, []string{"score"}) {
		t.Errorf("indexes = %v, want [score]", got)
	}
}

// TestFieldHasOneIndex: repeated builds of an index make one, and a collection has at most maxFieldIndexes.
func TestFieldHasOneIndex(t *testing.T) { inBoth(t, testFieldHasOneIndex) }

func testFieldHasOneIndex(t *testing.T, shared bool) {
	ws := openWorkspace(t, openEngine(t, Options{Shared: shared, Dir: t.TempDir()}), "w", scored())
	fill(t, ws, scored(), minIndexedDocuments)
	tb := ws.tables["people"]
	job := func(name string) indexJob {
		return indexJob{w: ws, t: tb, key: fieldKey{ws.space.id, "people", "", name}}
	}
	for range 3 {
		ws.engine.buildIndex(t.Context(), job("score"))
	}
	existing := ws.file.indexes.indexedBy(job("score").key).number
	ws.file.indexes.set(job("score").key, &fieldIndex{}) // as a failed removal leaves it
	ws.engine.buildIndex(t.Context(), job("score"))
	if got := ws.file.indexes.indexedBy(job("score").key).number; got != existing {
		t.Errorf("index number = %d, want the existing %d", got, existing)
	}
	for i := range 2 * maxFieldIndexes {
		if _, _, err := job(fmt.Sprint("k", i)).start(t.Context(), &fieldIndex{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 * maxFieldIndexes {
		buildField(t, ws, fmt.Sprint("k", i))
	}
	if got := columnOf(t, ws, 0, "SELECT number FROM fields WHERE state <> 'dropped'"); len(got) != maxFieldIndexes {
		t.Errorf("%d indexes, want %d", len(got), maxFieldIndexes)
	}
}

// TestMissingValuesSortFirst: documents without a value precede all others, even minus infinity, and pages are the same
// with and without an index.
func TestMissingValuesSortFirst(t *testing.T) { inBoth(t, testMissingValuesSortFirst) }

func testMissingValuesSortFirst(t *testing.T, shared bool) {
	c := scored()
	ws := openWorkspace(t, openEngine(t, Options{Shared: shared, Dir: t.TempDir()}), "w", c)
	fill(t, ws, c, minIndexedDocuments)
	for i, custom := range []string{`{}`, `{"score":null}`, `{"score":-1e400}`, `{"score":[7]}`, `{}`, `{"plan":"gold"}`} {
		wr := person(c, i*10)
		wr.Op, wr.Doc.Rev, wr.Doc.Custom = driver.Put, 2, []byte(custom)
		if err := ws.Write(t.Context(), []driver.Write{wr}); err != nil {
			t.Fatal(err)
		}
	}
	ref := driver.Ref{Name: "score", Custom: true}
	inOrder := func(op driver.Op, v any) driver.Predicate {
		return driver.Predicate{Op: op, Ref: ref, Values: []any{v}}
	}
	least, after := math.Inf(-1), onField("id", driver.Gt, fmt.Sprintf("%024x", 10))
	missingAfter := driver.Predicate{Op: driver.And, Kids: []driver.Predicate{inOrder(driver.Before, least), after}}
	pages := func() string {
		var result []any
		for _, p := range []driver.Predicate{
			inOrder(driver.From, least), inOrder(driver.Before, least),
			inOrder(driver.From, int64(50)), inOrder(driver.Before, int64(1)),
			onCustom("score", driver.Lt, int64(1)), onCustom("score", driver.Ne, int64(7)),
			missingAfter,
			{Op: driver.Or, Kids: []driver.Predicate{inOrder(driver.From, least), missingAfter}},
		} {
			where := driver.Predicate{Kids: []driver.Predicate{p}}
			ws.file.db.counts.changed(nil)
			n, err := ws.Count(t.Context(), c, where)
			result = append(result, "\n", n, err)
			for _, desc := range []bool{false, true} {
				sort := []driver.Order{{Ref: ref, Desc: desc}}
				docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: where, Sort: sort, Limit: 8})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range docs {
					result = append(result, d.ID[20:])
				}
			}
		}
		return fmt.Sprint(result...)
	}
	without := pages()
	buildField(t, ws, "score")
	if with := pages(); with != without {
		t.Errorf("pages with an index%s\nwant those without one%s", with, without)
	}
}

// TestEntriesOfAnotherVersionAreRebuilt: a version that needs other columns in the entries rebuilds them.
func TestEntriesOfAnotherVersionAreRebuilt(t *testing.T) {
	inBoth(t, testEntriesOfAnotherVersionAreRebuilt)
}

func testEntriesOfAnotherVersionAreRebuilt(t *testing.T, shared bool) {
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	buildField(t, ws, "score")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	seen := &plans{}
	e = openEngine(t, Options{Shared: shared, Dir: dir, Observe: seen.add})
	c = scored()
	c.Rides = []string{"teams", "status"}
	ws = openWorkspace(t, e, "w", c)
	where := driver.Predicate{Kids: []driver.Predicate{onField("status", driver.Ne, "new"), onCustom("score", driver.Gte, int64(50))}}
	ask := func() int {
		n, err := ws.Count(t.Context(), c, where)
		if err != nil || n < minIndexedDocuments/4 {
			t.Fatalf("got %d, %v, want no error and n >= %v", n, err, minIndexedDocuments/4)
		}
		return slices.IndexFunc(seen.take(), func(p Plan) bool {
			return slices.ContainsFunc(p.Lines, func(l string) bool { return len(l) > 9 && l[:8] == "SEARCH e" })
		})
	}
	if ask() >= 0 {
		t.Error("entries with other columns are used")
	}
	s := &statement{t: ws.tables["people"], ws: ws.space.id, indexable: []string{"score"}}
	ws.file.indexes.noteQuery(s, slowScan, false)
	if wanted := ws.file.indexes.noteQuery(s, slowScan, false); len(wanted) != 1 {
		t.Fatalf("slow queries request %v, want one index", wanted)
	}
	e.buildIndex(t.Context(), indexJob{w: ws, t: ws.tables["people"], key: fieldKey{ws.space.id, "people", "", "score"}})
	e.observed.Clear()
	ws.file.db.counts.changed(nil)
	if ask() < 0 {
		t.Error("rebuilt entries are not used")
	}
	checkEntries(t, ws, "score")
}

// TestEntriesAreLimitedToOneKind: a query on one kind of documents reads the entries of that kind alone, a query on
// several kinds reads documents, and the results are the same.
func TestEntriesAreLimitedToOneKind(t *testing.T) { inBoth(t, testEntriesAreLimitedToOneKind) }

func testEntriesAreLimitedToOneKind(t *testing.T, shared bool) {
	c := people()
	c.Custom, c.Of = true, "status"
	c.Indexes = slices.DeleteFunc(c.Indexes, func(x driver.Index) bool { return x.Name == "created" }) // an index on status has it too
	e := openEngine(t, Options{Shared: shared, eager: true})
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, 300)
	score := driver.Ref{Name: "score", Custom: true, Type: driver.Any}
	is := func(status string) driver.Predicate { return onField("status", driver.Eq, status) }
	and := func(kids ...driver.Predicate) driver.Predicate { return driver.Predicate{Op: driver.And, Kids: kids} }
	high := driver.Predicate{Op: driver.Gt, Ref: score, Values: []any{int64(90)}}
	for i, tt := range []struct {
		where   driver.Predicate
		by      []driver.Order
		indexed bool
	}{
		{is("new"), []driver.Order{{Ref: score}}, true},
		{is("new"), []driver.Order{{Ref: score, Desc: true}}, true},
		{and(is("new"), high), nil, true},
		{and(is("new"), high, onField("country", driver.Ne, "DE")), []driver.Order{{Ref: score}}, true},
		{and(and(is("new")), high), nil, true},
		{and(is("new"), is("gone"), high), nil, false},
		{and(is("gone"), onField("email", driver.Eq, "p0000005@example.org"), high), nil, false},
		{and(is("new"), onField("created", driver.Gte, int64(1_700_000_290_000))), []driver.Order{{Ref: score}}, false},
		{high, nil, false},
		{driver.Predicate{Op: driver.Or, Kids: []driver.Predicate{is("new"), high}}, nil, false},
		{onField("status", driver.In, "new", "gone"), []driver.Order{{Ref: score}}, false},
	} {
		q := driver.Query{Collection: c, Where: tt.where, Sort: tt.by, Limit: 50}
		var answers [2]string
		for j := range answers { // first without the index, which is built then, and second with it
			docs, err := ws.Find(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range docs {
				answers[j] += fmt.Sprintf("%s %s\n", d.ID, d.Custom)
			}
		}
		if answers[0] != answers[1] {
			t.Errorf("%d: with the index: %s\nwant as without: %s", i, answers[1], answers[0])
		}
		plan, err := ws.Explain(t.Context(), q)
		if err != nil || (plan.Index == "score") != tt.indexed {
			t.Errorf("%d: index %q, %+v, %v; want index score: %v", i, plan.Index, plan.Fields, err, tt.indexed)
		}
	}
	number := ws.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "new", "score"}).number
	entries := fmt.Sprintf(`SELECT count(*) FROM "e:people" WHERE number = %d`, number)
	if n := columnOf(t, ws, 0, entries); n[0] != "100" {
		t.Errorf("%s entries of the kind, want 100", n[0])
	}
	moved := person(c, 1) // to another kind
	moved.Op, moved.Doc.Rev, moved.Doc.Values[4] = driver.Put, 1, "gone"
	if err := ws.Write(t.Context(), []driver.Write{moved}); err != nil {
		t.Fatal(err)
	}
	if n := columnOf(t, ws, 0, entries); n[0] != "99" {
		t.Errorf("%s entries after a document changed its kind, want 99", n[0])
	}
}

// TestFormerFieldsTableIsReplaced: a table fields with other columns is dropped with all entries.
func TestFormerFieldsTableIsReplaced(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{eager: true})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, 10)
	for _, sql := range []string{
		`CREATE TABLE fields (tbl TEXT, number INTEGER, name TEXT)`,
		`CREATE TABLE "e:people" (v)`, `CREATE TABLE "e:others" (v)`, `INSERT INTO "e:others" VALUES (1)`,
		`CREATE TRIGGER "e:people:insert" AFTER INSERT ON "c:people" BEGIN INSERT INTO "e:others" VALUES (new.id); END`,
	} {
		alter(t, ws, sql)
	}
	score := driver.Ref{Name: "score", Custom: true, Type: driver.Any}
	high := driver.Query{
		Collection: c,
		Where:      driver.Predicate{Op: driver.Gt, Ref: score, Values: []any{int64(5)}},
		Limit:      50,
	}
	for range 2 {
		if docs, err := ws.Find(t.Context(), high); err != nil || len(docs) != 4 {
			t.Errorf("Find = %d documents, %v; want 4", len(docs), err)
		}
	}
	checkEntries(t, ws, "score")
	if n := columnOf(t, ws, 0, `SELECT count(*) FROM sqlite_schema WHERE name = 'e:others'`); n[0] != "0" {
		t.Error("entries of an earlier version remain")
	}
}
