package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store/driver"
)

// TestRecentDocuments: who asks by id over and over sees every commit at once, what somebody else did to the
// file as soon as a snapshot would show it, and the memory is given back.
func TestRecentDocuments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := openEngine(t, Options{Dir: dir})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	written := person(c, 1)
	if err := ws.Write(t.Context(), []driver.Write{written}); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: onField("id", driver.Eq, written.Doc.ID), Limit: 1})
		if err != nil || len(docs) != 1 {
			t.Fatalf("%v %v", docs, err)
		}
		return string(docs[0].Body)
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
	if c := raw(t, filepath.Join(dir, "w.db"), `UPDATE "c:people" SET body = '{"turn":"of another"}'`); c != nil {
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
	kept := func() int {
		db.recent.mu.RLock()
		defer db.recent.mu.RUnlock()
		return len(db.recent.docs)
	}
	for ; kept() > 0; time.Sleep(snapshotAge) {
		if time.Now().After(deadline) {
			t.Fatal("documents that nobody asks for are kept")
		}
	}
}
