package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"tenantry/backends/driver"
)

func testWrites(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	r := record{id: "a1", values: map[string]any{"name": "Ann", "n": int64(7), "tags": []string{"x"}}, custom: `{"k":"v"}`}
	b.insert(r)
	want := r.document(t, b.things)
	got, ok := b.get(b.things, "a1")
	if !ok || got.Rev != 1 || string(got.Body) != string(want.Body) || string(got.Custom) != `{"k":"v"}` {
		t.Fatalf("after insert: %v rev %d body %s custom %s", ok, got.Rev, got.Body, got.Custom)
	}

	r.rev, r.values["name"], r.values["tags"], r.custom = 1, "Bea", []string{"y", "z"}, ""
	if err := b.write(driver.Replace, b.things, r); err != nil {
		t.Fatalf("Replace: %v", err)
	}
	if got, _ := b.get(b.things, "a1"); got.Rev != 2 || got.Custom != nil {
		t.Errorf("after replace: rev %d custom %q", got.Rev, got.Custom)
	}
	for _, c := range []struct {
		p    driver.Predicate
		want int64
	}{
		{where("name", driver.Eq, "Ann"), 0}, {where("name", driver.Eq, "Bea"), 1},
		{where("tags", driver.Eq, "x"), 0}, {where("tags", driver.Eq, "z"), 1},
	} {
		if n := b.count(b.things, c.p); n != c.want {
			t.Errorf("after replace %+v counts %d, want %d", c.p, n, c.want)
		}
	}
	if n := b.count(b.plain, where("name", driver.Eq, "Ann")); n != 1 {
		t.Errorf("the same id in another collection was touched")
	}

	if err := b.write(driver.Delete, b.things, record{id: "a1", rev: 2}); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	if _, ok := b.get(b.things, "a1"); ok {
		t.Error("the document exists after its deletion")
	}
	if n := b.count(b.things, where("tags", driver.Eq, "z")); n != 0 {
		t.Errorf("%d documents are found by the list of a deleted document, want 0", n)
	}
	if err := b.write(driver.Insert, b.things, record{id: "a1", values: map[string]any{}}); err != nil {
		t.Errorf("inserting with the id of a deleted document: %v", err)
	}
	if err := b.ws.Write(b.ctx, nil); err != nil {
		t.Errorf("writing nothing: %v", err)
	}
}

func testConflicts(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(record{id: "a", values: map[string]any{"n": int64(1)}})
	for _, c := range []struct {
		name string
		kind driver.WriteOp
		r    record
	}{
		{"replace with an older revision", driver.Replace, record{id: "a", rev: 0}},
		{"replace with a newer revision", driver.Replace, record{id: "a", rev: 2}},
		{"replace of nothing", driver.Replace, record{id: "b", rev: 1}},
		{"delete with another revision", driver.Delete, record{id: "a", rev: 2}},
		{"delete of nothing", driver.Delete, record{id: "b", rev: 1}},
	} {
		var conflict *driver.ConflictError
		err := b.write(c.kind, b.things, c.r)
		if !errors.As(err, &conflict) {
			t.Errorf("%s: %v, want a ConflictError", c.name, err)
		} else if conflict.Collection != "things" || conflict.Position != 0 {
			t.Errorf("%s: %+v", c.name, conflict)
		}
	}
	if d, ok := b.get(b.things, "a"); !ok || d.Rev != 1 {
		t.Errorf("after refused writes: %v rev %d", ok, d.Rev)
	}
}

func testDuplicates(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(
		record{id: "a", values: map[string]any{"slug": "one", "kind": "k", "code": int64(1)}},
		record{id: "b", values: map[string]any{"slug": "two", "kind": "k", "code": int64(2)}},
		record{id: "c", values: map[string]any{"kind": "k"}},
	)
	for _, c := range []struct {
		name, index string
		kind        driver.WriteOp
		r           record
	}{
		{"id", "id", driver.Insert, record{id: "a", values: map[string]any{"slug": "new"}}},
		{"one field", "slug", driver.Insert, record{id: "d", values: map[string]any{"slug": "one"}}},
		{"two fields", "kind_code", driver.Insert, record{id: "d", values: map[string]any{"kind": "k", "code": int64(2)}}},
		{"by replacement", "slug", driver.Replace, record{id: "b", rev: 1, values: map[string]any{"slug": "one"}}},
	} {
		var duplicate *driver.DuplicateError
		err := b.write(c.kind, b.things, c.r)
		if !errors.As(err, &duplicate) {
			t.Errorf("%s: %v, want a DuplicateError", c.name, err)
		} else if want := (driver.DuplicateError{Collection: "things", Index: c.index}); *duplicate != want {
			t.Errorf("%s: %+v, want %+v", c.name, *duplicate, want)
		}
	}
	for _, r := range []record{
		{id: "e", values: map[string]any{"kind": "k"}},
		{id: "f", values: map[string]any{"code": int64(1)}},
		{id: "g", values: map[string]any{"slug": "One", "kind": "K", "code": int64(1)}},
		{id: "h", values: map[string]any{}},
		{id: "i", values: map[string]any{"slug": "one "}},
	} {
		if err := b.write(driver.Insert, b.things, r); err != nil {
			t.Errorf("inserting %s, which is not a duplicate: %v", r.id, err)
		}
	}
	if err := b.write(driver.Replace, b.things, record{id: "a", rev: 1, values: map[string]any{"slug": "one"}}); err != nil {
		t.Errorf("replacing a document with its own unique value: %v", err)
	}
}

func testHolds(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(record{id: "a"}, record{id: "b"})
	hold := func(id string, rev int64) driver.Write {
		return driver.Write{Collection: b.things, Op: driver.Hold, Doc: driver.Document{ID: id, Rev: rev}}
	}
	insert := func(id string) driver.Write {
		return driver.Write{Collection: b.things, Op: driver.Insert, Doc: (&record{id: id}).document(t, b.things)}
	}
	for i, c := range []struct {
		name    string
		writes  []driver.Write
		refused int // the position of the refused write; -1: none
	}{
		{"unchanged documents", []driver.Write{insert("new0"), hold("a", 1), hold("b", 1), hold("none", 0)}, -1},
		{"a hold without other writes", []driver.Write{hold("a", 1)}, -1},
		{"a document at another revision", []driver.Write{insert("new2"), hold("a", 1), hold("b", 2)}, 2},
		{"a missing document", []driver.Write{insert("new3"), hold("none", 1), hold("b", 1)}, 1},
		{"a document that should be missing", []driver.Write{insert("new4"), insert("other"), hold("a", 0)}, 2},
		{"a write of another collection", []driver.Write{
			{Collection: b.plain, Op: driver.Insert, Doc: (&record{id: "new5"}).document(t, b.plain)},
			hold("a", 1), hold("gone", 3),
		}, 2},
		{"before a write", []driver.Write{hold("a", 2), insert("new6")}, 0},
	} {
		err := b.ws.Write(b.ctx, c.writes)
		var conflict *driver.ConflictError
		if c.refused < 0 {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !errors.As(err, &conflict) || conflict.Collection != "things" || conflict.Position != c.refused {
			t.Errorf("%s: %v, want a ConflictError of write %d", c.name, err, c.refused)
		}
		for _, of := range []*driver.Collection{b.things, b.plain} {
			if _, there := b.get(of, fmt.Sprintf("new%d", i)); there {
				t.Errorf("%s: a write of the refused batch is stored", c.name)
			}
		}
	}
	if d, _ := b.get(b.things, "a"); d.Rev != 1 {
		t.Errorf("the held document is at revision %d, want 1", d.Rev)
	}
	if n := b.count(b.things, driver.Predicate{}); n != 3 {
		t.Errorf("%d documents, want 3: a, b and new0", n)
	}
}

func testBatches(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(record{id: "old", values: map[string]any{"slug": "taken", "tags": []string{"t"}}})
	insert := func(id, slug string) driver.Write {
		r := record{id: id, values: map[string]any{"slug": slug, "tags": []string{"t"}}}
		return driver.Write{Collection: b.things, Op: driver.Insert, Doc: r.document(t, b.things)}
	}
	err := b.ws.Write(b.ctx, []driver.Write{insert("a", "a"), insert("b", "b"), insert("c", "taken"), insert("d", "d")})
	var duplicate *driver.DuplicateError
	if !errors.As(err, &duplicate) || duplicate.Position != 2 || duplicate.Index != "slug" {
		t.Errorf("a duplicate as third of four writes: %v, want a DuplicateError of slug at 2", err)
	}
	err = b.ws.Write(b.ctx, []driver.Write{insert("a", "a"), insert("a", "z")})
	if !errors.As(err, &duplicate) || duplicate.Position != 1 || duplicate.Index != "id" {
		t.Errorf("the same id twice: %v, want a DuplicateError of id at 1", err)
	}
	err = b.ws.Write(b.ctx, []driver.Write{insert("a", "a"), {Collection: b.things, Op: driver.Delete, Doc: driver.Document{ID: "old", Rev: 9}}})
	var conflict *driver.ConflictError
	if !errors.As(err, &conflict) || conflict.Position != 1 {
		t.Errorf("a conflict as second of two writes: %v, want a ConflictError at 1", err)
	}
	if n := b.count(b.things, driver.Predicate{}); n != 1 {
		t.Errorf("%d documents after failed batches, want 1", n)
	}
	if n := b.count(b.things, where("tags", driver.Eq, "t")); n != 1 {
		t.Errorf("%d documents found by list after failed batches, want 1", n)
	}
	// All kinds of writes before a refused one are undone.
	before, _ := b.get(b.things, "old")
	changed := record{id: "old", rev: 1, values: map[string]any{"slug": "changed"}}
	err = b.ws.Write(b.ctx, []driver.Write{
		insert("a", "a"), {Collection: b.things, Op: driver.Replace, Doc: changed.document(t, b.things)},
		insert("b", "taken"), {Collection: b.things, Op: driver.Delete, Doc: driver.Document{ID: "old", Rev: 2}},
		insert("c", "changed"), {Collection: b.things, Op: driver.Delete, Doc: driver.Document{ID: "b", Rev: 1}},
		{Collection: b.plain, Op: driver.Delete, Doc: driver.Document{ID: "none", Rev: 1}},
	})
	if !errors.As(err, &conflict) || conflict.Position != 6 || conflict.Collection != "plain" {
		t.Errorf("a conflict as last of seven writes: %v, want a ConflictError of plain at 6", err)
	}
	if after, ok := b.get(b.things, "old"); !ok || !cmp.Equal(before, after) || b.count(b.things, driver.Predicate{}) != 1 {
		t.Errorf("after a refused batch: %v, %+v, want %+v alone", ok, after, before)
	}
	// Writes are applied in order: a unique value is free once its document is deleted in the same batch.
	if err := b.ws.Write(b.ctx, []driver.Write{
		{Collection: b.things, Op: driver.Delete, Doc: driver.Document{ID: "old", Rev: 1}}, insert("new", "taken"),
	}); err != nil {
		t.Errorf("delete, then insert: %v", err)
	}
}

func testPuts(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(record{id: "old", values: map[string]any{"slug": "old", "n": int64(1)}, custom: `{"k":1}`})
	if err := b.write(driver.Put, b.things,
		record{id: "new", rev: 41, values: map[string]any{"slug": "new", "tags": []string{"t"}}},
		record{id: "old", rev: 7, values: map[string]any{"n": int64(2), "tags": []string{"t"}}},
		record{id: "third", rev: 1, values: map[string]any{"slug": "old"}},
	); err != nil {
		t.Fatalf("Put: %v", err)
	}
	for id, rev := range map[string]int64{"new": 41, "old": 7, "third": 1} {
		if d, ok := b.get(b.things, id); !ok || d.Rev != rev || d.Custom != nil {
			t.Errorf("%s: %v, revision %d, custom %s, want revision %d", id, ok, d.Rev, d.Custom, rev)
		}
	}
	if n := b.count(b.things, where("tags", driver.Eq, "t")); n != 2 {
		t.Errorf("%d documents are found by list, want 2", n)
	}
	if n := b.count(b.things, where("n", driver.Eq, int64(1))); n != 0 {
		t.Error("the former value of a replaced document is still found")
	}
	if err := b.write(driver.Replace, b.things, record{id: "new", rev: 41, values: map[string]any{"slug": "new"}}); err != nil {
		t.Errorf("replacing a document that was put: %v", err)
	}
	var duplicate *driver.DuplicateError
	err := b.write(driver.Put, b.things, record{id: "a", rev: 2}, record{id: "b", rev: 2, values: map[string]any{"slug": "new"}}, record{id: "c", rev: 2})
	if !errors.As(err, &duplicate) || duplicate.Index != "slug" || duplicate.Position != 1 {
		t.Errorf("putting a duplicate: %v, want a DuplicateError of slug at 1", err)
	}
	if n := b.count(b.things, driver.Predicate{}); n != 3 {
		t.Errorf("%d documents after a refused batch, want 3", n)
	}
	parallel(8, func(i int) {
		if err := b.write(driver.Put, b.things, record{id: "same", rev: int64(i + 1)}); err != nil {
			t.Errorf("Put %d: %v", i, err)
		}
	})
}

// parallel runs do n times concurrently.
func parallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

func testOneWinner(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	var won, lost atomic.Int64
	parallel(32, func(i int) {
		err := b.write(driver.Insert, b.things, record{id: strconv.Itoa(i), values: map[string]any{"slug": "same"}})
		var duplicate *driver.DuplicateError
		switch {
		case err == nil:
			won.Add(1)
		case errors.As(err, &duplicate) && duplicate.Index == "slug":
			lost.Add(1)
		default:
			t.Errorf("insert %d: %v", i, err)
		}
	})
	if won.Load() != 1 || lost.Load() != 31 {
		t.Errorf("%d inserts succeeded and %d were duplicates, want 1 and 31", won.Load(), lost.Load())
	}
	if n := b.count(b.things, where("slug", driver.Eq, "same")); n != 1 {
		t.Errorf("%d documents have the slug, want 1", n)
	}
}

func testCompareAndSet(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(record{id: "a", values: map[string]any{"n": int64(0)}})
	const workers, each = 4, 5
	parallel(workers, func(int) {
		for done := 0; done < each; {
			d, _ := b.get(b.things, "a")
			err := b.write(driver.Replace, b.things, record{id: "a", rev: d.Rev, values: map[string]any{"n": d.Rev}})
			var conflict *driver.ConflictError
			if err == nil {
				done++
			} else if !errors.As(err, &conflict) {
				t.Errorf("Replace: %v", err)
				return
			}
		}
	})
	if d, _ := b.get(b.things, "a"); d.Rev != 1+workers*each {
		t.Errorf("revision %d after %d changes, want %d", d.Rev, workers*each, 1+workers*each)
	}
}

func testCounters(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	for i, c := range []struct {
		name         string
		add, atLeast int64
		want         int64
	}{
		{"a", 1, 0, 1}, {"a", 1, 0, 2}, {"a", 5, 100, 105}, {"a", 1, 50, 106}, {"a", 0, 0, 106},
		{"b", 1, 10, 11}, {"'; DROP TABLE counters; --", 2, 0, 2}, {"$where", 3, 0, 3}, {"a.b", 4, 0, 4},
	} {
		if got, err := b.ws.Counter(b.ctx, c.name, c.add, c.atLeast); err != nil || got != c.want {
			t.Errorf("step %d: Counter(%q, %d, %d) = %d, %v, want %d", i, c.name, c.add, c.atLeast, got, err, c.want)
		}
	}
	var seen sync.Map
	parallel(8, func(int) {
		for range 5 {
			n, err := b.ws.Counter(b.ctx, "shared", 1, 0)
			if err != nil {
				t.Errorf("Counter: %v", err)
			} else if _, twice := seen.LoadOrStore(n, true); twice {
				t.Errorf("Counter returned %d twice", n)
			}
		}
	})
	if n, err := b.ws.Counter(b.ctx, "shared", 0, 0); err != nil || n != 40 {
		t.Errorf("Counter after 40 calls = %d, %v; want 40", n, err)
	}
}

func testIsolation(t *testing.T, e driver.Engine) {
	a, b := newBench(t, e), newBench(t, e)
	r := record{id: "same", values: map[string]any{"slug": "same", "name": "of a"}}
	a.insert(r)
	if _, ok := b.get(b.things, "same"); ok {
		t.Fatal("a document of one workspace is read in another")
	}
	if n := b.count(b.things, driver.Predicate{}); n != 0 {
		t.Errorf("%d documents counted in an empty workspace", n)
	}
	r.values["name"] = "of b"
	b.insert(r)
	if err := b.write(driver.Delete, b.things, record{id: "same", rev: 1}); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	if d, ok := a.get(a.things, "same"); !ok || !cmp.Equal(string(d.Body), `{"id":"same","name":"of a","slug":"same"}`) {
		t.Errorf("deleting in one workspace changed the other: %s", d.Body)
	}
	if _, err := a.ws.Counter(a.ctx, "c", 5, 0); err != nil {
		t.Fatalf("Counter: %v", err)
	}
	if n, err := b.ws.Counter(b.ctx, "c", 1, 0); err != nil || n != 1 {
		t.Errorf("counters are shared: %d, %v", n, err)
	}
	again, err := e.Open(a.ctx, driver.Opening{Workspace: a.name, Collections: []*driver.Collection{things(), plain()}})
	if err != nil {
		t.Fatalf("second Open: %v", err)
	}
	if n, err := again.Count(a.ctx, things(), driver.Predicate{}); err != nil || n != 1 {
		t.Errorf("a second handle counts %d, %v, want 1", n, err)
	}
}

func testRemove(t *testing.T, e driver.Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := e.Remove(ctx, newName("absent"), ""); err != nil {
		t.Errorf("Remove of an unknown workspace: %v", err)
	}
	b, other := newBench(t, e), newBench(t, e)
	r := record{id: "a", values: map[string]any{"slug": "s"}}
	b.insert(r)
	other.insert(r)
	if _, err := b.ws.Counter(ctx, "c", 5, 0); err != nil {
		t.Fatalf("Counter: %v", err)
	}
	if err := e.Remove(ctx, b.name, ""); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	ws, err := e.Open(ctx, driver.Opening{Workspace: b.name, Collections: []*driver.Collection{b.things, b.plain}})
	if err != nil {
		t.Fatalf("Open after Remove: %v", err)
	}
	b.ws = ws
	if n := b.count(b.things, driver.Predicate{}); n != 0 {
		t.Errorf("%d documents after Remove, want 0", n)
	}
	if n, err := ws.Counter(ctx, "c", 1, 0); err != nil || n != 1 {
		t.Errorf("Counter after Remove = %d, %v; want 1", n, err)
	}
	if n := other.count(other.things, driver.Predicate{}); n != 1 {
		t.Errorf("removing one workspace left %d documents of another, want 1", n)
	}
}

func testContext(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(record{id: "a", values: map[string]any{"n": int64(1)}})
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancelLate := context.WithTimeout(context.Background(), -1)
	defer cancelLate()
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{canceled, context.Canceled}, {late, context.DeadlineExceeded}} {
		_, err1 := b.ws.Find(c.ctx, driver.Query{Collection: b.things, Limit: 1})
		_, err2 := b.ws.Find(c.ctx, driver.Query{Collection: b.things, Where: where("id", driver.Eq, "a"), Limit: 1})
		_, err3 := b.ws.Count(c.ctx, b.things, driver.Predicate{})
		_, err4 := b.ws.Aggregate(c.ctx, driver.Aggregation{Collection: b.things, Measures: []driver.Measure{{Op: driver.Count}}, Limit: 1})
		_, err5 := b.ws.Counter(c.ctx, "c", 1, 0)
		err6 := b.ws.Write(c.ctx, []driver.Write{{Collection: b.things, Op: driver.Delete, Doc: driver.Document{ID: "a", Rev: 1}}})
		for i, err := range []error{err1, err2, err3, err4, err5, err6} {
			if !errors.Is(err, c.want) {
				t.Errorf("call %d: %v, want %v", i, err, c.want)
			}
		}
	}
	if n, err := b.ws.Counter(b.ctx, "c", 1, 0); err != nil || n != 1 {
		t.Errorf("Counter = %d, %v; want 1, because calls with an ended context must not count", n, err)
	}
	if _, ok := b.get(b.things, "a"); !ok {
		t.Error("a call with an ended context deleted the document")
	}
}

func testCheck(t *testing.T, e driver.Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if err := e.Check(ctx); err != nil {
		t.Errorf("Check: %v", err)
	}
	for _, name := range []string{"", "A", "a/b", "..", "a b", fmt.Sprintf("%065d", 0)} {
		if _, err := e.Open(ctx, driver.Opening{Workspace: name, Collections: []*driver.Collection{things()}}); err == nil {
			t.Errorf("Open accepted the workspace name %q", name)
		}
	}
}
