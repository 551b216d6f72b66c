package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// copied returns how many documents a plain copy of the file has, without its log; -1 where it has not even their
// table.
func copied(t *testing.T, path string) int64 {
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

// await waits until a plain copy of the file has so many documents, while meanwhile goes on.
func await(t *testing.T, path string, want int64, meanwhile func()) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		n := copied(t, path)
		if n >= want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a copy of %s has %d documents, want %d", path, n, want)
		}
		meanwhile()
	}
}

// TestLogIsSettled: what was written gets into the file by itself, whether others write on or only read.
func TestLogIsSettled(t *testing.T) {
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
		await(t, path, 20, write)
		await(t, path, int64(n), func() {
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
				t.Fatalf("the log has %d bytes, for %s", bytes, age)
			}
		}
	})
}

// TestLagIsTold: while something else reads the database what is in the log alone is told, and it stays there until
// that ends.
func TestLagIsTold(t *testing.T) {
	t.Parallel()
	c := people()
	e := openEngine(t, Options{QueryTimeout: 300 * time.Millisecond, idleInterval: time.Hour})
	ws := openWorkspace(t, e, "w", c)
	settled := func() bool {
		for _, f := range e.opened() {
			f.checkpointIdle()
			f.checkpointIdle() // nobody has written since
		}
		info, err := os.Stat(e.Place("w") + "-wal")
		return err == nil && info.Size() == 0
	}
	waitFor(t, "the log is emptied once the engine's own snapshot has ended", settled)
	other := raw(t, e.Place("w"), "BEGIN; SELECT count(*) FROM sqlite_schema")
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatal(err)
	}
	if bytes, age := e.Lag(); bytes == 0 || age == 0 {
		t.Errorf("the log has %d bytes, for %s", bytes, age)
	}
	if settled() {
		t.Error("a log that somebody reads was emptied")
	}
	if err := other.close(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the log is emptied once nobody reads it", settled)
}

// TestNoLogIsLeft: at its end an engine leaves no log, also none that a process before it has left.
func TestNoLogIsLeft(t *testing.T) {
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
			t.Errorf("round %d: %v %v", round, left, err)
		}
		if n := copied(t, filepath.Join(dir, "w.db")); n != int64(round+1) {
			t.Error(fmt.Sprint("documents in the file: ", n))
		}
	}
}
