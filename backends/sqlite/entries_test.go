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

// entriesAreThose checks that the entries of an index are those of the documents as they are.
func entriesAreThose(t *testing.T, ws *workspace, name string) {
	t.Helper()
	x := ws.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "", name})
	if x == nil {
		t.Fatalf("%s has no index: %s", name, ws.file.indexes.states())
	}
	tb := ws.tables["people"]
	have := fmt.Sprintf("SELECT * FROM %s WHERE number = %d", tb.entries, x.number)
	want := "SELECT " + tb.entry("", fmt.Sprint(x.number), "'"+name+"'", fmt.Sprint(x.coversCustom)) + " FROM " + tb.quoted + tb.ifShared(fmt.Sprintf(" WHERE ws = %d", ws.space.id))
	for what, sql := range map[string]string{"too many": have + " EXCEPT " + want, "missing": want + " EXCEPT " + have} {
		if odd := columnOf(t, ws, 0, "SELECT count(*) FROM ("+sql+")"); odd[0] != "0" {
			t.Errorf("%s entries are %s", odd[0], what)
		}
	}
	if n := columnOf(t, ws, 0, "SELECT count(*) FROM ("+want+")"); n[0] == "0" {
		t.Error("there are no documents")
	}
}

// odd are values that entries have in another form than documents, or not at all.
var odd = []string{`7`, `7.5`, `-1e300`, `"7"`, `""`, `true`, `false`, `null`, `[7]`, `{"a":7}`, `9007199254740993`, `"ä\u0000\"b"`}

// TestEntries_AreThoseOfDocuments: documents are written while the index is made, and after that, and the index has
// one entry of each as it is.
func TestEntries_AreThoseOfDocuments(t *testing.T) { inBoth(t, testEntriesAreThoseOfDocuments) }

func testEntriesAreThoseOfDocuments(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	c := scored()
	ws, next := openWorkspace(t, e, "w", c), openWorkspace(t, e, "next", c)
	fill(t, ws, c, 2*minIndexedDocuments)
	fill(t, next, c, 10)
	change := func(i int) {
		wr := person(c, i)
		wr.Op, wr.Doc.Rev = driver.Put, 1
		if i%7 > 0 {
			wr.Doc.Custom = []byte(`{"score":` + odd[i%len(odd)] + `}`)
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
	makeField(t, ws, "score")
	close(stop)
	if n := <-stopped; n < 100 {
		t.Errorf("only %d documents were written meanwhile", n/13)
	}
	entriesAreThose(t, ws, "score")
	makeField(t, ws, "plan")
	for i := range 500 {
		change(i * 3)
	}
	for _, name := range []string{"score", "plan"} {
		entriesAreThose(t, ws, name)
	}
	if n := columnOf(t, next, 0, `SELECT count(*) FROM sqlite_schema WHERE name = 'fields'`); !shared && n[0] != "0" {
		t.Error("the neighbour has an index too")
	}
	if shared {
		if others := columnOf(t, ws, 0, fmt.Sprintf(`SELECT DISTINCT ws FROM "e:people" WHERE ws <> %d`, ws.space.id)); len(others) > 0 {
			t.Errorf("there are entries of %v", others)
		}
	}
}

// TestEntries_GoOn: an index that was begun is kept up, and made from where it was by who asks for it after the
// program was started anew.
func TestEntries_GoOn(t *testing.T) { inBoth(t, testEntriesGoOn) }

func testEntriesGoOn(t *testing.T, shared bool) {
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
		t.Skip("it was made before it could be ended")
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
	makeField(t, ws, "score")
	entriesAreThose(t, ws, "score")
	if numbers := columnOf(t, ws, 0, "SELECT number FROM fields"); len(numbers) != 1 || numbers[0] != "1" {
		t.Errorf("it was begun anew: %v", numbers)
	}
	// What is begun and not asked for goes as what is not used does.
	alter(t, ws, "UPDATE fields SET state = ?1, used = ?2", entriesBuilding, time.Now().Add(-unusedAfter-time.Hour).Unix())
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Shared: shared, Dir: dir})
	ws = openWorkspace(t, e, "w", c)
	deleteDropped(t, ws)
	if n := columnOf(t, ws, 0, `SELECT count(*) FROM "e:people"`); n[0] != "0" {
		t.Errorf("%s entries are left", n[0])
	}
}

// TestEntries_OfAnotherFile: a file that was put back from a backup has the indexes that it had then, whatever is known
// of the one before, is being made in it, or is to be deleted from it.
func TestEntries_OfAnotherFile(t *testing.T) { inBoth(t, testEntriesOfAnotherFile) }

func testEntriesOfAnotherFile(t *testing.T, shared bool) {
	c := scored()
	filled := func(t *testing.T) *workspace {
		ws := openWorkspace(t, openEngine(t, Options{Shared: shared, Dir: t.TempDir()}), "w", c)
		fill(t, ws, c, minIndexedDocuments)
		return ws
	}
	backup := func(t *testing.T, ws *workspace) (putBack func()) {
		closed := func() {
			if done, err := ws.file.closeIdle(); !done || err != nil {
				t.Fatalf("got %v, %v, want done and no error", done, err)
			}
		}
		closed()
		before, err := os.ReadFile(ws.file.path)
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			closed()
			if err := errors.Join(os.Remove(ws.file.path), os.WriteFile(ws.file.path, before, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Run("ready", func(t *testing.T) {
		ws := filled(t)
		putBack := backup(t, ws)
		makeField(t, ws, "score")
		putBack()
		sevens(t, ws)
	})
	t.Run("dropped", func(t *testing.T) {
		ws := filled(t)
		putBack := backup(t, ws)
		makeField(t, ws, "plan")
		ws.file.dropUnused(t.Context(), time.Now().Add(time.Hour))
		putBack()
		makeField(t, ws, "score") // which has the same number
		deleted(t, ws)
		sevens(t, ws)
		entriesAreThose(t, ws, "score")
	})
	t.Run("under way", func(t *testing.T) {
		ws := filled(t)
		makeField(t, ws, "plan")
		putBack := backup(t, ws)
		j := indexJob{w: ws, t: ws.tables["people"], key: fieldKey{ws.space.id, "people", "", "score"}}
		x := &fieldIndex{}
		at, _, err := j.start(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		if at, _, err = j.storeRun(t.Context(), x, at); err != nil {
			t.Fatal(err)
		}
		putBack()
		if _, _, err = j.storeRun(t.Context(), x, at); !errors.Is(err, errIndexGone) {
			t.Errorf("it goes on: %v", err)
		}
		makeField(t, ws, "score")
		entriesAreThose(t, ws, "score")
	})
	t.Run("of the backup", func(t *testing.T) {
		ws := filled(t)
		makeField(t, ws, "score")
		putBack := backup(t, ws)
		sevens(t, ws) // which opens it
		ws.file.dropUnused(t.Context(), time.Now().Add(time.Hour))
		putBack()
		sevens(t, ws)
		if ws.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "", "score"}) == nil {
			t.Error("its index is not known")
		}
	})
}

// sevens looks for those with the score 7, of people as fill makes them.
func sevens(t *testing.T, ws *workspace) {
	t.Helper()
	found, err := ws.Find(t.Context(), driver.Query{Collection: scored(), Where: onCustom("score", driver.Eq, int64(7)), Limit: minIndexedDocuments})
	if err != nil || len(found) != minIndexedDocuments/100 {
		t.Errorf("%d have the score 7, %v", len(found), err)
	}
}

// deleted has the entries deleted that were dropped, as far as they may, and waits until that is through.
func deleted(t *testing.T, ws *workspace) {
	t.Helper()
	ws.file.deleteDropped(time.Now().Add(time.Hour))
	through := make(chan struct{})
	ws.engine.builds <- func(context.Context) { close(through) }
	<-through
}

// TestEntries_BegunLongAgo: an index that was begun and left alone for long goes, unless somebody asks for it first.
func TestEntries_BegunLongAgo(t *testing.T) { inBoth(t, testEntriesBegunLongAgo) }

func testEntriesBegunLongAgo(t *testing.T, shared bool) {
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
	makeField(t, ws, "score")
	deleted(t, ws)
	sevens(t, ws)
	entriesAreThose(t, ws, "score")
	if got := columnOf(t, ws, 0, "SELECT name FROM fields"); !slices.Equal(got, []string{"score"}) {
		t.Errorf("there are %v", got)
	}
}

// TestEntries_OneIndexEach: a field has one, whoever asks for it at the same time or has forgotten it, and a collection
// no more than it may.
func TestEntries_OneIndexEach(t *testing.T) { inBoth(t, testEntriesOneIndexEach) }

func testEntriesOneIndexEach(t *testing.T, shared bool) {
	ws := openWorkspace(t, openEngine(t, Options{Shared: shared, Dir: t.TempDir()}), "w", scored())
	fill(t, ws, scored(), minIndexedDocuments)
	tb := ws.tables["people"]
	job := func(name string) indexJob {
		return indexJob{w: ws, t: tb, key: fieldKey{ws.space.id, "people", "", name}}
	}
	for range 3 {
		ws.engine.buildIndex(t.Context(), job("score"))
	}
	forgotten := ws.file.indexes.indexedBy(job("score").key).number
	ws.file.indexes.set(job("score").key, &fieldIndex{}) // as a removal does that then fails
	ws.engine.buildIndex(t.Context(), job("score"))
	if got := ws.file.indexes.indexedBy(job("score").key).number; got != forgotten {
		t.Errorf("%d was made beside %d", got, forgotten)
	}
	for i := range 2 * maxFieldIndexes {
		if _, _, err := job(fmt.Sprint("k", i)).start(t.Context(), &fieldIndex{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 * maxFieldIndexes {
		makeField(t, ws, fmt.Sprint("k", i))
	}
	if got := columnOf(t, ws, 0, "SELECT number FROM fields WHERE state <> 'dropped'"); len(got) != maxFieldIndexes {
		t.Errorf("there are %d", len(got))
	}
}

// TestEntries_NothingComesFirst: what has no value comes before all that has, minus infinity too, and pages after and
// of those are the same with an index and without.
func TestEntries_NothingComesFirst(t *testing.T) { inBoth(t, testEntriesNothingComesFirst) }

func testEntriesNothingComesFirst(t *testing.T, shared bool) {
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
	placed := func(op driver.Op, v any) driver.Predicate {
		return driver.Predicate{Op: op, Ref: ref, Values: []any{v}}
	}
	least, after := math.Inf(-1), onField("id", driver.Gt, fmt.Sprintf("%024x", 10))
	pages := func() string {
		var told []any
		for _, p := range []driver.Predicate{
			placed(driver.From, least), placed(driver.Before, least), placed(driver.From, int64(50)), placed(driver.Before, int64(1)), onCustom("score", driver.Lt, int64(1)), onCustom("score", driver.Ne, int64(7)),
			{Op: driver.And, Kids: []driver.Predicate{placed(driver.Before, least), after}},
			{Op: driver.Or, Kids: []driver.Predicate{placed(driver.From, least), {Op: driver.And, Kids: []driver.Predicate{placed(driver.Before, least), after}}}},
		} {
			where := driver.Predicate{Kids: []driver.Predicate{p}}
			ws.file.db.counts.changed(nil)
			n, err := ws.Count(t.Context(), c, where)
			told = append(told, "\n", n, err)
			for _, desc := range []bool{false, true} {
				docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: where, Sort: []driver.Order{{Ref: ref, Desc: desc}}, Limit: 8})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range docs {
					told = append(told, d.ID[20:])
				}
			}
		}
		return fmt.Sprint(told...)
	}
	without := pages()
	makeField(t, ws, "score")
	if with := pages(); with != without {
		t.Errorf("without an index%s\nwith one%s", without, with)
	}
}

// TestEntries_OfAnotherShape: a version that wants other columns in them makes them anew.
func TestEntries_OfAnotherShape(t *testing.T) { inBoth(t, testEntriesOfAnotherShape) }

func testEntriesOfAnotherShape(t *testing.T, shared bool) {
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, minIndexedDocuments)
	makeField(t, ws, "score")
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
		t.Error("entries of another shape are asked for")
	}
	s := &statement{t: ws.tables["people"], ws: ws.space.id, indexable: []string{"score"}}
	ws.file.indexes.noteQuery(s, slowScan, false)
	if wanted := ws.file.indexes.noteQuery(s, slowScan, false); len(wanted) != 1 {
		t.Fatalf("slow questions want %v", wanted)
	}
	e.buildIndex(t.Context(), indexJob{w: ws, t: ws.tables["people"], key: fieldKey{ws.space.id, "people", "", "score"}})
	e.observed.Clear()
	ws.file.db.counts.changed(nil)
	if ask() < 0 {
		t.Error("they are not asked for once they are made anew")
	}
	entriesAreThose(t, ws, "score")
}

// TestEntries_OfAKind: what sorts or limits documents of one kind by a custom value reads entries of that kind alone,
// whatever others there are; what is about several kinds reads documents, and the answers are the same.
func TestEntries_OfAKind(t *testing.T) { inBoth(t, testEntriesOfAKind) }

func testEntriesOfAKind(t *testing.T, shared bool) {
	c := people()
	c.Custom, c.Of = true, "status"
	c.Indexes = slices.DeleteFunc(c.Indexes, func(x driver.Index) bool { return x.Name == "created" }) // which follows the status in another
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
		for j := range answers { // without the index, which is made then, and by it
			docs, err := ws.Find(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range docs {
				answers[j] += fmt.Sprintf("%s %s\n", d.ID, d.Custom)
			}
		}
		if answers[0] != answers[1] {
			t.Errorf("%d: by the index: %s\nwithout: %s", i, answers[1], answers[0])
		}
		plan, err := ws.Explain(t.Context(), q)
		if err != nil || (plan.Index == "score") != tt.indexed {
			t.Errorf("%d: read by %q, %+v, %v", i, plan.Index, plan.Fields, err)
		}
	}
	entries := fmt.Sprintf(`SELECT count(*) FROM "e:people" WHERE number = %d`, ws.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "new", "score"}).number)
	if n := columnOf(t, ws, 0, entries); n[0] != "100" {
		t.Errorf("%s entries for 100 documents of the kind", n[0])
	}
	turned := person(c, 1) // of the kind
	turned.Op, turned.Doc.Rev, turned.Doc.Values[4] = driver.Put, 1, "gone"
	if err := ws.Write(t.Context(), []driver.Write{turned}); err != nil {
		t.Fatal(err)
	}
	if n := columnOf(t, ws, 0, entries); n[0] != "99" {
		t.Errorf("%s entries once one has become another kind's", n[0])
	}
}

// TestEntries_OfAnEarlierVersion: a table of indexes that has other columns goes with all that it is about.
func TestEntries_OfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{eager: true})
	c := scored()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, 10)
	for _, sql := range []string{
		`CREATE TABLE fields (tbl TEXT, number INTEGER, name TEXT)`, `CREATE TABLE "e:people" (v)`, `CREATE TABLE "e:others" (v)`, `INSERT INTO "e:others" VALUES (1)`,
		`CREATE TRIGGER "e:people:insert" AFTER INSERT ON "c:people" BEGIN INSERT INTO "e:others" VALUES (new.id); END`,
	} {
		alter(t, ws, sql)
	}
	high := driver.Query{Collection: c, Where: driver.Predicate{Op: driver.Gt, Ref: driver.Ref{Name: "score", Custom: true, Type: driver.Any}, Values: []any{int64(5)}}, Limit: 50}
	for range 2 {
		if docs, err := ws.Find(t.Context(), high); err != nil || len(docs) != 4 {
			t.Errorf("%d documents, %v", len(docs), err)
		}
	}
	entriesAreThose(t, ws, "score")
	if n := columnOf(t, ws, 0, `SELECT count(*) FROM sqlite_schema WHERE name = 'e:others'`); n[0] != "0" {
		t.Error("entries of an earlier version are kept")
	}
}
