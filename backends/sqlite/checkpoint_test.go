package sqlite

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// countInCopy returns the number of documents in a plain copy of the file without its log, -1 if it has no table for
// them.
func countInCopy(t *testing.T, path string) int64 {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(to, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := openConn(to, connectionFlags)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.close() }()
	n, err := c.number(`SELECT count(*) FROM "c:people"`)
	if err != nil {
		return -1
	}
	return n
}

// awaitCopy waits until a plain copy of the file has the wanted number of documents. It calls meanwhile repeatedly.
func awaitCopy(t *testing.T, path string, want int64, meanwhile func()) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		n := countInCopy(t, path)
		if n >= want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the copy of %s has %d documents, want %d", path, n, want)
		}
		meanwhile()
	}
}

// TestLogIsCheckpointedPeriodically: the log is checkpointed into the file while others write or read.
func TestLogIsCheckpointedPeriodically(t *testing.T) {
	inBoth(t, func(t *testing.T, shared bool) {
		t.Helper()
		c := people()
		e := openEngine(t, Options{Shared: shared, idleInterval: 5 * time.Millisecond, idleTimeout: time.Hour})
		ws := openWorkspace(t, e, "w", c)
		path := e.Place("w")
		n := 0
		write := func() {
			t.Helper()
			if err := ws.Write(t.Context(), []driver.Write{person(c, n)}); err != nil {
				t.Fatal(err)
			}
			n++
		}
		write()
		awaitCopy(t, path, 20, write)
		awaitCopy(t, path, int64(n), func() {
			if _, err := ws.Count(t.Context(), c, driver.Predicate{}); err != nil {
				t.Fatal(err)
			}
		})
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			bytes, age := e.Lag()
			if bytes == 0 && age == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("Lag = %d bytes, %s; want 0", bytes, age)
			}
		}
	})
}

// TestLagWhileTheLogIsRead: while another connection reads the database, the log is not truncated, and Lag reports it.
func TestLagWhileTheLogIsRead(t *testing.T) {
	t.Parallel()
	c := people()
	e := openEngine(t, Options{QueryTimeout: 300 * time.Millisecond, idleInterval: time.Hour})
	ws := openWorkspace(t, e, "w", c)
	truncated := func() bool {
		for _, f := range e.opened() {
			f.checkpointIdle()
			f.checkpointIdle() // the second call truncates, because nothing was written in between
		}
		info, err := os.Stat(e.Place("w") + "-wal")
		return err == nil && info.Size() == 0
	}
	waitFor(t, "the log is truncated after the end of the engine's own snapshot", truncated)
	other := raw(t, e.Place("w"), "BEGIN; SELECT count(*) FROM sqlite_schema")
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatal(err)
	}
	if bytes, age := e.Lag(); bytes == 0 || age == 0 {
		t.Errorf("Lag = %d bytes, %s; want more than 0", bytes, age)
	}
	if truncated() {
		t.Error("the log was truncated while it was being read")
	}
	if err := other.close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the log is truncated when it is not being read", truncated)
}

// TestCloseLeavesNoLog: Close leaves no log, and a file that was opened again has none either.
func TestCloseLeavesNoLog(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), people()
	for round := range 2 {
		e := openEngine(t, Options{Dir: dir})
		ws := openWorkspace(t, e, "w", c)
		if err := ws.Write(t.Context(), []driver.Write{person(c, round)}); err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if left, err := filepath.Glob(filepath.Join(dir, "*-wal")); err != nil || len(left) > 0 {
			t.Errorf("round %d: logs after Close = %v, %v; want none", round, left, err)
		}
		if n := countInCopy(t, filepath.Join(dir, "w.db")); n != int64(round+1) {
			t.Errorf("round %d: %d documents in the file, want %d", round, n, round+1)
		}
	}
}
