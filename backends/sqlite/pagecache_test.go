package sqlite

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// cacheSizes returns the sum of the cache sizes that are set in the open connections, in KiB, and their number.
func cacheSizes(t *testing.T, e *Engine) (kib, connections int64) {
	t.Helper()
	for _, f := range e.opened() {
		if !f.retain() {
			continue
		}
		db := f.db
		db.writerLock <- struct{}{}
		db.mu.Lock()
		var all []*conn
		for _, r := range db.idle {
			all = append(all, r.conn)
		}
		if db.writer != nil {
			all = append(all, db.writer)
		}
		for _, c := range all {
			connections++
			if err := c.rows("PRAGMA cache_size", nil, func(row *sqlite.Stmt) error {
				kib += row.ColumnInt64(0) * pageKiB
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		db.mu.Unlock()
		db.releaseWriter()
		f.unref()
	}
	return kib, connections
}

// TestConnectionsShareTheCache: the cache sizes of all connections together do not exceed the setting, however many are
// open, and few connections have most of it.
func TestConnectionsShareTheCache(t *testing.T) {
	t.Parallel()
	const all = 8 << 10
	e := openEngine(t, Options{Cache: 8, MaxOpen: 24, Readers: 4, idleInterval: time.Hour, idleTimeout: time.Hour})
	c := people()
	use := func(ws *workspace, at int) {
		t.Helper()
		if err := ws.Write(t.Context(), []driver.Write{person(c, at)}); err != nil {
			t.Fatal(err)
		}
		db, err := ws.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer ws.file.release()
		db.writerLock <- struct{}{} // waits until the writer is idle
		db.releaseWriter()
		var together sync.WaitGroup
		ready := make(chan struct{}, 4)
		for range cap(ready) {
			together.Go(func() {
				if err := db.withReader(t.Context(), func(*reader) error {
					for ready <- struct{}{}; len(ready) < cap(ready); time.Sleep(time.Microsecond) { // until all have a reader
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		together.Wait()
	}
	// fits waits, because idle connections learn their share asynchronously.
	fits := func(files int, least int64) {
		t.Helper()
		kib, connections := int64(0), int64(0)
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if kib, connections = cacheSizes(t, e); kib <= all && kib >= least {
				break
			}
		}
		if kib > all || kib < least || connections != int64(5*files) {
			t.Fatalf("%d files: %d connections with %d KiB together; want %d connections with %d to %d KiB",
				files, connections, kib, 5*files, least, int64(all))
		}
	}
	var spaces []*workspace
	for i := range 40 {
		spaces = append(spaces, openWorkspace(t, e, fmt.Sprintf("w%d", i), c))
		use(spaces[i], 1)
		fits(min(i+1, 24), all*3/4)
	}
	for _, ws := range spaces[1:] {
		ws.file.drop()
	}
	use(spaces[0], 2)
	fits(1, all*3/4)
}

// TestWriterLearnsConcurrentShareChanges: of several changes at the same moment, the writer has the last, although each
// call of fit may find it in use by another.
func TestWriterLearnsConcurrentShareChanges(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{Cache: 64, idleInterval: time.Hour, idleTimeout: time.Hour})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatal(err)
	}
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	missed := 0
	for range 20_000 {
		var together sync.WaitGroup
		for parts := range int64(3) {
			together.Go(func() {
				e.cache.count(50 << parts)
				db.fit()
			})
		}
		together.Wait()
		if db.writer.pages != e.cache.shareSize.Load()*writerShares {
			missed++
		}
		e.cache.count(-350)
		db.fit()
	}
	if missed > 0 {
		t.Errorf("the writer missed %d of 20000 changes, want 0", missed)
	}
}
