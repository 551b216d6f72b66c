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

// TestRecentDocumentsSeeEveryCommit: repeated look-ups see every commit at once, and changes by another program as soon
// as a snapshot expires. Unused entries are removed.
func TestRecentDocumentsSeeEveryCommit(t *testing.T) { inBoth(t, testRecentDocumentsSeeEveryCommit) }

func testRecentDocumentsSeeEveryCommit(t *testing.T, shared bool) {
	dir := t.TempDir()
	e := openEngine(t, Options{Shared: shared, Dir: dir})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	written := person(c, 1)
	named := onField("email", driver.Eq, written.Doc.Values[0])
	for range 2 {
		if docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: named, Limit: 1}); len(docs) != 0 || err != nil {
			t.Fatalf("Find before the insert = %v, %v; want none", docs, err)
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
				t.Fatalf("Find = %v, %v; want one document", docs, err)
			}
			bodies[i] = string(docs[0].Body)
		}
		if bodies[0] != bodies[1] {
			return bodies[0] + " by id, " + bodies[1] + " by email"
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
				t.Fatalf("body after write %d = %s, want %s", i, got, written.Doc.Body)
			}
		}
	}
	if c := raw(t, ws.file.path, `UPDATE "c:people" SET body = '{"turn":"of another"}'`); c != nil {
		_ = c.close()
	}
	deadline := time.Now().Add(10 * time.Second)
	for read() != `{"turn":"of another"}` {
		if time.Now().After(deadline) {
			t.Fatal("the write of another program is never seen")
		}
	}
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	for ; db.recent.docs.Len() > 0; time.Sleep(snapshotAge) {
		if time.Now().After(deadline) {
			t.Fatal("unused entries are never removed")
		}
	}
	var r recentCache
	if r.put(recentKey{query: strings.Repeat("x", maxRecentSize+1)}, recentDoc{}); r.docs.Len() > 0 {
		t.Error("an entry with an oversized key is cached")
	}
}

// TestCachedCountsSeeEveryWrite: a count is cached until its table changes, and every write is counted at once, during
// concurrent counts too.
func TestCachedCountsSeeEveryWrite(t *testing.T) { inBoth(t, testCachedCountsSeeEveryWrite) }

func testCachedCountsSeeEveryWrite(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	c, other := people(), tagged()
	other.Name = "others"
	ws := openWorkspace(t, e, "w", c, other)
	fill(t, ws, c, minCachedCount)
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
		return len(db.counts.partitions[partition{ws.space.id, c.Name}].counts)
	}
	if counted() != minCachedCount || kept() != 1 {
		t.Fatalf("Count = %d, %d counts cached; want %d, 1", counted(), kept(), minCachedCount)
	}
	if n, err := ws.Count(t.Context(), c, onField("country", driver.Eq, "XX")); n != 0 || err != nil || kept() != 1 {
		t.Errorf("another Count = %d, %v, %d counts cached; want 0, 1", n, err, kept())
	}
	unrelated := driver.Document{ID: "000000000000000000000001", Body: []byte("{}"), Values: make([]any, len(other.Fields))}
	if err := ws.Write(t.Context(), []driver.Write{{Collection: other, Doc: unrelated}}); err != nil {
		t.Fatal(err)
	}
	if n := kept(); n != 1 {
		t.Errorf("%d counts cached after a write to another table, want 1", n)
	}
	err = ws.Write(t.Context(), []driver.Write{person(c, minCachedCount), person(c, 0)})
	if !errors.As(err, new(*driver.DuplicateError)) || kept() != 1 {
		t.Errorf("refused Write = %v, %d counts cached; want a duplicate, 1", err, kept())
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
		if err := ws.Write(t.Context(), []driver.Write{person(c, minCachedCount+i)}); err != nil {
			t.Fatal(err)
		}
		if n := counted(); n != int64(minCachedCount+i+1) {
			t.Fatalf("Count after write %d = %d, want %d", i, n, minCachedCount+i+1)
		}
	}
	close(stop)
	all.Wait()
}

// TestCacheKeysAreDistinct: no argument makes the key of one query equal to that of another.
func TestCacheKeysAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string][]any{}
	for _, args := range [][]any{
		{"a", "b"}, {"a\x00string:b"}, {"a\x00string:1:b"}, {"a", "b\x00string:c"}, {"a\x00string:b", "c"}, {"a", "b\x00string:1:c"}, {"a\x00string:1:b", "c"},
		{int64(1)}, {1.0}, {"1"}, {true}, {"true"}, {nil}, {"<nil>"},
	} {
		key := cacheKey("SELECT", args)
		if before, ok := seen[key]; ok {
			t.Errorf("%#v and %#v have the same key", before, args)
		}
		seen[key] = args
	}
}

// TestDeepPagesMatchTheWholeResult: pages that are read in two steps, and from bookmarks, match the result that is read
// at once. This holds for documents without a value in the sort order, and after every write.
func TestDeepPagesMatchTheWholeResult(t *testing.T) { inBoth(t, testDeepPagesMatchTheWholeResult) }

func testDeepPagesMatchTheWholeResult(t *testing.T, shared bool) {
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
	age := driver.Ref{Name: "age", Type: driver.Int}
	country, id := driver.Ref{Name: "country", Type: driver.String}, driver.Ref{Name: "id", Type: driver.String}
	for turn, sort := range [][]driver.Order{
		nil,
		{{Ref: age}},
		{{Ref: country}, {Ref: age}},
		{{Ref: country, Desc: true}},
		{{Ref: age, Desc: true}, {Ref: id, Desc: true}},
		{{Ref: country, Desc: true}, {Ref: id, Desc: true}},
		{{Ref: country, Desc: true}, {Ref: age, Desc: true}, {Ref: id, Desc: true}},
		{{Ref: age}, {Ref: id, Desc: true}},
	} {
		q := driver.Query{Collection: c, Sort: sort, Limit: 1000, Where: onField("country", driver.Ne, "FR")}
		whole, err := ws.Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		q.Limit = 7
		for step := range len(whole) {
			// Every other offset first, then scattered ones, with occasional writes.
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
				t.Fatalf("page at offset %d = %v, %v; want %v", q.Offset, ids(page), err, ids(want))
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
