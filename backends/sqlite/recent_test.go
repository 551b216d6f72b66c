package sqlite

import (
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// TestRecentDocuments: who asks by id over and over sees every commit at once, what somebody else did to the
// file as soon as a snapshot would show it, and the memory is given back.
func TestRecentDocuments(t *testing.T) { inBoth(t, testRecentDocuments) }

func testRecentDocuments(t *testing.T, shared bool) {
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	written := person(c, 1)
	named := onField("email", driver.Eq, written.Doc.Values[0])
	for range 2 {
		if docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: named, Limit: 1}); len(docs) != 0 || err != nil {
			t.Fatalf("before it is there: %v %v", docs, err)
		}
	}
	if err := ws.Write(t.Context(), []driver.Write{written}); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		var bodies [2]string
		for i, where := range []driver.Predicate{onField("id", driver.Eq, written.Doc.ID), named} {
			docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: where, Limit: 1})
			if err != nil || len(docs) != 1 {
				t.Fatalf("got %v %v, want no error and len(docs) = 1", docs, err)
			}
			bodies[i] = string(docs[0].Body)
		}
		if bodies[0] != bodies[1] {
			return bodies[0] + " by its id, " + bodies[1] + " by its name"
		}
		return bodies[0]
	}
	for i := range 50 {
		written.Op, written.Doc.Rev = driver.Replace, int64(i+1)
		written.Doc.Body = []byte(`{"turn":"` + strings.Repeat("x", i) + `"}`)
		if err := ws.Write(t.Context(), []driver.Write{written}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if got := read(); got != string(written.Doc.Body) {
				t.Fatalf("after write %d: %s", i, got)
			}
		}
	}
	if c := raw(t, ws.file.path, `UPDATE "c:people" SET body = '{"turn":"of another"}'`); c != nil {
		_ = c.close()
	}
	deadline := time.Now().Add(10 * time.Second)
	for read() != `{"turn":"of another"}` {
		if time.Now().After(deadline) {
			t.Fatal("what another process wrote is never seen")
		}
	}
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	for ; db.recent.docs.Len() > 0; time.Sleep(snapshotAge) {
		if time.Now().After(deadline) {
			t.Fatal("documents that nobody asks for are kept")
		}
	}
	var r recent
	if r.put(place{asked: strings.Repeat("x", maxRecentSize+1)}, seen{}); r.docs.Len() > 0 {
		t.Error("a question larger than any document is kept")
	}
}

// TestKeptCounts: a count is asked of the file once, until its table changes; every write is counted at once,
// beside others who count.
func TestKeptCounts(t *testing.T) { inBoth(t, testKeptCounts) }

func testKeptCounts(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	c, other := people(), tagged()
	other.Name = "others"
	ws := openWorkspace(t, e, "w", c, other)
	fill(t, ws, c, leastKept)
	german := onField("country", driver.Exists, true)
	counted := func() int64 {
		n, err := ws.Count(t.Context(), c, german)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	kept := func() int {
		db.counts.mu.Lock()
		defer db.counts.mu.Unlock()
		return len(db.counts.tables[shelf{ws.space.id, c.Name}].kept)
	}
	if counted() != leastKept || kept() != 1 {
		t.Fatalf("%d are counted, %d counts kept", counted(), kept())
	}
	if n, err := ws.Count(t.Context(), c, onField("country", driver.Eq, "XX")); n != 0 || err != nil || kept() != 1 {
		t.Errorf("another question: %d, %v; %d counts kept", n, err, kept())
	}
	if err := ws.Write(t.Context(), []driver.Write{{Collection: other, Doc: driver.Document{ID: "000000000000000000000001", Body: []byte("{}"), Values: make([]any, len(other.Fields))}}}); err != nil {
		t.Fatal(err)
	}
	if kept() != 1 {
		t.Error("a write to another table took the count away")
	}
	if err := ws.Write(t.Context(), []driver.Write{person(c, leastKept), person(c, 0)}); !errors.As(err, new(*driver.DuplicateError)) || kept() != 1 {
		t.Errorf("a write that is refused took the count away: %v", err)
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					counted()
				}
			}
		})
	}
	for i := range 80 {
		if err := ws.Write(t.Context(), []driver.Write{person(c, leastKept+i)}); err != nil {
			t.Fatal(err)
		}
		if n := counted(); n != int64(leastKept+i+1) {
			t.Fatalf("%d after write %d", n, i)
		}
	}
	close(stop)
	all.Wait()
}

// TestCountKey: no text makes one question look like another.
func TestCountKey(t *testing.T) {
	t.Parallel()
	seen := map[string][]any{}
	for _, args := range [][]any{
		{"a", "b"}, {"a\x00string:b"}, {"a\x00string:1:b"}, {"a", "b\x00string:c"}, {"a\x00string:b", "c"}, {"a", "b\x00string:1:c"}, {"a\x00string:1:b", "c"},
		{int64(1)}, {1.0}, {"1"}, {true}, {"true"}, {nil}, {"<nil>"},
	} {
		key := countKey("SELECT", args)
		if before, ok := seen[key]; ok {
			t.Errorf("%#v and %#v have one key", before, args)
		}
		seen[key] = args
	}
}

// TestDeepPages: pages that are read in two steps, and from where others began or ended, are those that are read in
// one, also of what has no value to be ordered by, and after every write.
func TestDeepPages(t *testing.T) { inBoth(t, testDeepPages) }

func testDeepPages(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	fill(t, ws, c, 3*deepPage)
	lacking := func(i int) driver.Write {
		w := person(c, i)
		w.Doc.Values[0], w.Doc.Values[2], w.Doc.Values[5] = nil, nil, nil // address, country, age
		return w
	}
	var more []driver.Write
	for i := range 2 * deepPage {
		more = append(more, lacking(3*deepPage+i))
	}
	if err := ws.Write(t.Context(), more); err != nil {
		t.Fatal(err)
	}
	for turn, sort := range [][]driver.Order{
		nil, {{Ref: driver.Ref{Name: "age", Type: driver.Int}}}, {{Ref: driver.Ref{Name: "country", Type: driver.String}}, {Ref: driver.Ref{Name: "age", Type: driver.Int}}}, {{Ref: driver.Ref{Name: "country", Type: driver.String}, Desc: true}},
		{{Ref: driver.Ref{Name: "age", Type: driver.Int}, Desc: true}, {Ref: driver.Ref{Name: "id", Type: driver.String}, Desc: true}}, {{Ref: driver.Ref{Name: "country", Type: driver.String}, Desc: true}, {Ref: driver.Ref{Name: "id", Type: driver.String}, Desc: true}},
		{{Ref: driver.Ref{Name: "country", Type: driver.String}, Desc: true}, {Ref: driver.Ref{Name: "age", Type: driver.Int}, Desc: true}, {Ref: driver.Ref{Name: "id", Type: driver.String}, Desc: true}}, {{Ref: driver.Ref{Name: "age", Type: driver.Int}}, {Ref: driver.Ref{Name: "id", Type: driver.String}, Desc: true}},
	} {
		q := driver.Query{Collection: c, Sort: sort, Limit: 1000, Where: onField("country", driver.Ne, "FR")}
		whole, err := ws.Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		q.Limit = 7
		for step := range len(whole) {
			// Every other offset, then here and there, with a write now and then.
			if q.Offset = deepPage - 1 + 2*step; step > len(whole)/2 {
				q.Offset = step * 7919 % (len(whole) + 2)
			}
			if step%199 == 198 {
				if err := ws.Write(t.Context(), []driver.Write{lacking(1000*(turn+1) + step)}); err != nil {
					t.Fatal(err)
				}
				limit, offset := q.Limit, q.Offset
				q.Limit, q.Offset = 2000, 0
				if whole, err = ws.Find(t.Context(), q); err != nil {
					t.Fatal(err)
				}
				q.Limit, q.Offset = limit, offset
			}
			page, err := ws.Find(t.Context(), q)
			if want := whole[min(q.Offset, len(whole)):min(q.Offset+7, len(whole))]; err != nil || !reflect.DeepEqual(ids(page), ids(want)) {
				t.Fatalf("from %d: %v %v, want %v", q.Offset, err, ids(page), ids(want))
			}
		}
	}
}

func ids(docs []driver.Document) (all []string) {
	for _, d := range docs {
		all = append(all, d.ID)
	}
	return all
}
