package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// TestWorkspacesShareSchemas: workspaces with the same collections share a schema, so that an idle one takes little
// memory.
func TestWorkspacesShareSchemas(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{MaxOpen: 2})
	c, other := people(), tagged()
	first := openWorkspace(t, e, "w0", c)
	for i := range 20 {
		ws := openWorkspace(t, e, fmt.Sprintf("w%d", i), c)
		if ws.tables["people"] != first.tables["people"] || ws.file.prepared != first.schema {
			t.Fatalf("workspace %d has a schema of its own", i)
		}
	}
	if ws := openWorkspace(t, e, "x", other); ws.schema == first.schema || ws.byCollection[c] != nil {
		t.Error("a workspace with other collections has the same schema")
	}
	for range 3 * maxSchemas {
		openWorkspace(t, e, "y", people())
	}
	if n := len(e.schemas); n > maxSchemas {
		t.Errorf("%d schemas are kept, want at most %d", n, maxSchemas)
	}
}

// TestConnectionsAreOpenedWhenNeeded: the writer is opened by the first write, and a second reader when two read at the
// same time.
func TestConnectionsAreOpenedWhenNeeded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := people()
	first := openEngine(t, Options{Dir: dir})
	fill(t, openWorkspace(t, first, "w", c), c, 3)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	e := openEngine(t, Options{Dir: dir, Readers: 3})
	ws := openWorkspace(t, e, "w", c)
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	connections := func(writer bool, readers int) {
		t.Helper()
		db.writerLock <- struct{}{}
		defer func() { <-db.writerLock }()
		db.mu.Lock()
		defer db.mu.Unlock()
		if (db.writer != nil) != writer || len(db.idle) != readers {
			t.Errorf("writer %v, %d readers; want %v, %d", db.writer != nil, len(db.idle), writer, readers)
		}
	}
	for range 5 {
		if n, err := ws.Count(t.Context(), c, driver.Predicate{}); n != 3 || err != nil {
			t.Fatalf("Count = %d, %v; want 3", n, err)
		}
	}
	connections(false, 1)
	a, err1 := db.reader(t.Context())
	b, err2 := db.reader(t.Context())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	db.putReader(a, nil)
	db.putReader(b, nil)
	connections(false, 2)
	if err := ws.Write(t.Context(), []driver.Write{person(c, 4)}); err != nil {
		t.Fatal(err)
	}
	connections(true, 2)
}

// TestFileWithoutLogGetsOne: a file that is not in WAL mode, as a copy may be, is put into it when it is opened.
func TestFileWithoutLogGetsOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := people()
	first := openEngine(t, Options{Dir: dir})
	fill(t, openWorkspace(t, first, "w", c), c, 3)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "w.db")
	if err := raw(t, path, "PRAGMA journal_mode = DELETE").close(); err != nil {
		t.Fatal(err)
	}
	if logged, err := first.checkFile(path); logged || err != nil {
		t.Fatalf("checkFile = %t, %v; want false", logged, err)
	}
	ws := openWorkspace(t, openEngine(t, Options{Dir: dir}), "w", c)
	if n, err := ws.Count(t.Context(), c, driver.Predicate{}); n != 3 || err != nil {
		t.Fatalf("Count = %d, %v; want 3", n, err)
	}
	if logged, err := first.checkFile(path); !logged || err != nil {
		t.Errorf("checkFile after Open = %t, %v; want true", logged, err)
	}
}

// TestLostFileTakesNoWrites: a write to a file that was lost while open fails, and does not create it again.
func TestLostFileTakesNoWrites(t *testing.T) {
	t.Parallel()
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprintf("written=%v", written), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := people()
			first := openEngine(t, Options{Dir: dir})
			openWorkspace(t, first, "w", c)
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			ws := openWorkspace(t, openEngine(t, Options{Dir: dir}), "w", c)
			if written {
				fill(t, ws, c, 1)
			}
			if err := os.Rename(ws.file.path, ws.file.path+".lost"); err != nil {
				t.Fatal(err)
			}
			var damage *driver.DamagedError
			if err := ws.Write(t.Context(), []driver.Write{person(c, 2)}); !errors.Is(err, driver.ErrUnavailable) || !errors.As(err, &damage) {
				t.Errorf("Write to a lost file = %v, want a *driver.DamagedError", err)
			}
			if _, err := os.Stat(ws.file.path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("Stat of the lost file = %v, want %v", err, fs.ErrNotExist)
			}
		})
	}
}

// TestLostFileIsClosed: reads of a lost file fail after a few seconds.
func TestLostFileIsClosed(t *testing.T) { inBoth(t, testLostFileIsClosed) }

func testLostFileIsClosed(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared, idleInterval: time.Millisecond})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	if _, err := ws.Count(t.Context(), c, driver.Predicate{}); err != nil { // opens a reader
		t.Fatal(err)
	}
	if err := os.Rename(ws.file.path, ws.file.path+".lost"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		_, err := ws.Count(t.Context(), c, driver.Predicate{})
		if errors.Is(err, driver.ErrUnavailable) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("Count on a lost file = %v, want %v", err, driver.ErrUnavailable)
		}
	}
}

// TestReaderRecoversTheLog: the log of a killed process is recovered by the first reader, without a writer.
func TestReaderRecoversTheLog(t *testing.T) {
	t.Parallel()
	dir, copied := t.TempDir(), t.TempDir()
	c := people()
	ws := openWorkspace(t, openEngine(t, Options{Dir: dir}), "w", c)
	fill(t, ws, c, 7)
	for _, suffix := range []string{"", "-wal"} { // copy the state on disk while the process runs
		b, err := os.ReadFile(ws.file.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, "w.db"+suffix), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	after := openEngine(t, Options{Dir: copied})
	again := openWorkspace(t, after, "w", c)
	if n, err := again.Count(t.Context(), c, driver.Predicate{}); n != 7 || err != nil {
		t.Errorf("Count = %d, %v; want 7", n, err)
	}
	if again.file.db.writer != nil {
		t.Error("a read has opened the writer")
	}
	if err := after.Close(); err != nil {
		t.Fatal(err)
	}
	checkIntegrity(t, filepath.Join(copied, "w.db"))
	if left, err := os.Stat(filepath.Join(copied, "w.db-wal")); err == nil && left.Size() > 0 {
		t.Errorf("the log has %d bytes after Close, want 0", left.Size())
	}
}

// BenchmarkReopen queries more workspaces than may be open, in turn: each operation opens one file and closes another.
func BenchmarkReopen(b *testing.B) {
	var all []*driver.Collection
	for i := range 16 {
		c := *people()
		c.Name = fmt.Sprintf("people%d", i)
		all = append(all, &c)
	}
	e, err := Open(b.Context(), Options{Dir: b.TempDir(), MaxOpen: 8, idleTimeout: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	var spaces []driver.Workspace
	for i := range 40 {
		ws, err := e.Open(b.Context(), driver.Opening{Workspace: fmt.Sprintf("w%d", i), Collections: all})
		if err != nil {
			b.Fatal(err)
		}
		spaces = append(spaces, ws)
	}
	i := 0
	for b.Loop() {
		if _, err := spaces[i%len(spaces)].Count(b.Context(), all[0], driver.Predicate{}); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
