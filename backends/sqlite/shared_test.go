package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// neighbours returns the names of n workspaces that share a file.
func neighbours(n int) (names []string) {
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprintf("w%d", i); sharedName(name) == sharedName("w0") {
			names = append(names, name)
		}
	}
	return names
}

func opening(name, owner string, c ...*driver.Collection) driver.Opening {
	return driver.Opening{Workspace: name, Owner: owner, Collections: c}
}

// TestShared_WorkspacesStayWhereTheyAre: the setting for new workspaces does not move existing ones, and a workspace
// that is in two files is an error.
func TestShared_WorkspacesStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := people()
	names := neighbours(3)
	for round, o := range []Options{{Dir: dir}, {Dir: dir, Shared: true}, {Dir: dir}, {Dir: dir, Shared: true}} {
		e := openEngine(t, o)
		if round < 2 {
			fill(t, openWorkspace(t, e, names[round], c), c, round+1)
		}
		for i := range min(round+1, 2) {
			ws := openWorkspace(t, e, names[i], c)
			if n, err := ws.Count(t.Context(), c, driver.Predicate{}); n != int64(i+1) || err != nil {
				t.Errorf("round %d: Count of workspace %d = %d, %v; want %d", round, i, n, err, i+1)
			}
			if ws.shared != (i == 1) || e.Place(names[i]) != ws.file.path {
				t.Errorf("round %d: workspace %d: shared %t, Place %s; want %t, %s",
					round, i, ws.shared, e.Place(names[i]), i == 1, ws.file.path)
			}
			if err := errors.Join(e.Missing(names[i]), e.Examine(t.Context(), e.Place(names[i]), false)); err != nil {
				t.Error(err)
			}
			if r, err := e.Resident(t.Context(), names[i]); err != nil || !strings.HasSuffix(r.Where, ws.file.path) {
				t.Errorf("round %d: Resident = %+v, %v; want it in %s", round, r, err, ws.file.path)
			}
		}
		want := names[:min(round+1, 2)]
		if got, err := e.Residents(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("round %d: Residents = %v, %v; want %v", round, got, err, want)
		}
		if err := e.Missing(names[2]); !errors.As(err, new(*driver.DamagedError)) {
			t.Errorf("round %d: Missing for an unknown workspace = %v, want a *driver.DamagedError", round, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	e := openEngine(t, Options{Dir: dir, Shared: true})
	apart := opening(names[2], "mine", c)
	apart.Apart = true
	if ws, err := e.Open(t.Context(), apart); err != nil || ws.(*workspace).shared {
		t.Errorf("a workspace opened apart shares a file, or Open = %v", err)
	}
	b, err := os.ReadFile(e.ownPath(names[0]))
	if err == nil {
		err = os.WriteFile(e.ownPath(names[1]), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Open(t.Context(), opening(names[1], "", c))
	if !errors.As(err, new(*driver.DamagedError)) || !strings.Contains(err.Error(), "is both in") {
		t.Errorf("Open of a workspace in two files = %v, want an error with both", err)
	}
}

// countRows returns the number of rows that a workspace has in all tables of a shared file.
func countRows(t *testing.T, path string, ws int64) (n int64) {
	t.Helper()
	c := raw(t, path, "SELECT 1")
	defer func() { _ = c.close() }()
	for _, like := range []string{"c:*", "s:*", "counters", "workspaces"} {
		tables, err := c.tables(like)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			if err := c.rows("SELECT count(*) FROM "+quote(table)+" WHERE ws = ?1", []any{ws}, func(row *sqlite.Stmt) error {
				n += row.ColumnInt64(0)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n
}

// TestShared_RemoveDeletesEverything: handles on a removed workspace neither read nor write, no row of it remains, its
// number is not reused, and other workspaces keep their rows.
func TestShared_RemoveDeletesEverything(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{Shared: true})
	c := tagged()
	c.Custom = true
	names := neighbours(3)
	var all []*workspace
	for _, name := range names[:2] {
		ws := openWorkspace(t, e, name, c)
		var writes []driver.Write
		for i := range clearBatchSize + 10 {
			w := person(c, i)
			w.Doc.Values = append(w.Doc.Values, []string{"a", "b"})
			writes = append(writes, w)
		}
		if err := ws.Write(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
		if _, err := ws.Counter(t.Context(), "n", 1, 0); err != nil {
			t.Fatal(err)
		}
		ws.file.indexes.update(func(all map[fieldKey]*fieldIndex) {
			all[fieldKey{ws.space.id, "people", "", "k"}] = &fieldIndex{state: driver.IndexReady}
		})
		all = append(all, ws)
	}
	removed, kept := all[0], all[1]
	want := int64(3*(clearBatchSize+10) + 2)
	if n := countRows(t, removed.file.path, removed.space.id); n != want {
		t.Fatalf("%d rows, want %d", n, want)
	}
	if err := e.Remove(t.Context(), names[0], "somebody"); err != nil { // the workspace has no owner
		t.Fatal(err)
	}
	if _, err := removed.Count(t.Context(), c, driver.Predicate{}); !errors.Is(err, errRemoved) {
		t.Errorf("Count on a removed workspace = %v, want %v", err, errRemoved)
	}
	if err := removed.Write(t.Context(), []driver.Write{person(c, 1)}); err == nil {
		t.Error("Write to a removed workspace succeeded, want an error")
	}
	n, m := countRows(t, removed.file.path, removed.space.id), countRows(t, kept.file.path, kept.space.id)
	if n != 0 || m != want {
		t.Errorf("%d rows of the removed workspace, %d of the other; want 0, %d", n, m, want)
	}
	indexed := func(ws *workspace) bool {
		return kept.file.indexes.indexedBy(fieldKey{ws.space.id, "people", "", "k"}) != nil
	}
	if indexed(removed) || !indexed(kept) {
		t.Errorf("indexes of the removed workspace: %t, of the other: %t; want false, true", indexed(removed), indexed(kept))
	}
	again := openWorkspace(t, e, names[0], c)
	if again.space.id <= kept.space.id {
		t.Errorf("number of the recreated workspace = %d, want one above %d", again.space.id, kept.space.id)
	}
	if err := e.Remove(t.Context(), names[2], ""); err != nil {
		t.Errorf("Remove of an unknown workspace = %v, want nil", err)
	}
}

// TestShared_WritesAfterRemovalFail: writes and index builds that wait behind a removal change nothing.
func TestShared_WritesAfterRemovalFail(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{Shared: true})
	c := people()
	names := neighbours(2)
	ws, other := openWorkspace(t, e, names[0], c), openWorkspace(t, e, names[1], c)
	fill(t, ws, c, minIndexedDocuments)
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	db.writerLock <- struct{}{} // until all are queued
	removed, written := make(chan error, 1), make(chan error, 1)
	go func() { removed <- e.Remove(t.Context(), names[0], "") }()
	waiting := func(n int) {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			db.queue.mu.Lock()
			have := len(db.queue.jobs)
			db.queue.mu.Unlock()
			if have == n {
				return
			}
		}
		t.Errorf("timed out waiting for %d queued jobs", n)
	}
	waiting(1)
	go func() { written <- ws.Write(t.Context(), []driver.Write{person(c, 2)}) }()
	waiting(2)
	key, made := fieldKey{ws.space.id, "people", "", "score"}, make(chan struct{})
	go func() {
		e.buildIndex(t.Context(), indexJob{w: ws, t: ws.tables["people"], key: key})
		close(made)
	}()
	waiting(3)
	<-db.writerLock
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if <-made; columnOf(t, other, 0, "SELECT name FROM sqlite_schema WHERE name = 'fields'") != nil || ws.file.indexes.status(key).State != "" {
		t.Error("an index of the removed workspace was built, or is reported")
	}
	if err := <-written; !errors.Is(err, errRemoved) {
		t.Errorf("Write behind the removal = %v, want %v", err, errRemoved)
	}
	path, id := ws.file.path, ws.space.id
	ws.file.release()
	if n := countRows(t, path, id); n != 0 {
		t.Errorf("%d rows are left, want 0", n)
	}
}

// TestShared_OpenDuringRemoval: if a workspace is removed after Open has read its number, Open returns a new workspace.
func TestShared_OpenDuringRemoval(t *testing.T) {
	t.Parallel()
	var remove func()
	e := openEngine(t, Options{Shared: true, admitting: func() {
		if do := remove; do != nil {
			remove = nil
			do()
		}
	}})
	c := people()
	name := neighbours(1)[0]
	removed := openWorkspace(t, e, name, c)
	fill(t, removed, c, 3)
	remove = func() {
		if err := e.Remove(t.Context(), name, ""); err != nil {
			t.Error(err)
		}
	}
	again := openWorkspace(t, e, name, c)
	if again.space.id <= removed.space.id || e.spaces.Get(name) != again.space {
		t.Errorf("number = %d after the removal of %d; want a greater one, which other handles get too",
			again.space.id, removed.space.id)
	}
	fill(t, again, c, 1)
	if n, err := again.Count(t.Context(), c, driver.Predicate{}); n != 1 || err != nil {
		t.Errorf("Count = %d, %v; want 1", n, err)
	}
	if _, err := removed.Count(t.Context(), c, driver.Predicate{}); !errors.Is(err, errRemoved) {
		t.Errorf("Count on the removed workspace = %v, want %v", err, errRemoved)
	}
}

// TestShared_InterruptedRemovalIsCompleted: rows that a removal left when the process ended are deleted when the file
// is opened again.
func TestShared_InterruptedRemovalIsCompleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := people()
	names := neighbours(2)
	first := openEngine(t, Options{Dir: dir, Shared: true})
	ws := openWorkspace(t, first, names[0], c)
	fill(t, ws, c, 3)
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.transact(t.Context(), t.Context(), load{}, nil, func(c *conn) error {
		_, err := ws.file.markRemoved(c, names[0], "")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ws.file.release()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	e := openEngine(t, Options{Dir: dir, Shared: true})
	if got, err := e.Residents(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("Residents = %v, %v; want none", got, err)
	}
	openWorkspace(t, e, names[1], c)
	for deadline := time.Now().Add(time.Minute); countRows(t, ws.file.path, ws.space.id) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("rows of the removed workspace are never deleted")
		}
	}
}

// TestShared_ReplacedFileIsDetected: if a shared file is replaced while handles exist, their workspaces are verified
// before anything is read, because the same number may belong to another workspace there.
func TestShared_ReplacedFileIsDetected(t *testing.T) {
	t.Parallel()
	c := people()
	names := neighbours(2)
	mine, theirs := t.TempDir(), t.TempDir()
	openAll := func(dir string, owner string, names ...string) (all []driver.Workspace, e *Engine) {
		e = openEngine(t, Options{Dir: dir, Shared: true})
		for _, name := range names {
			ws, err := e.Open(t.Context(), opening(name, owner, c))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, ws)
		}
		return all, e
	}
	other, strangers := openAll(theirs, "theirs", names[0])
	fill(t, other[0].(*workspace), c, 9)
	if err := strangers.Close(); err != nil {
		t.Fatal(err)
	}
	all, e := openAll(mine, "mine", names...)
	for _, ws := range all {
		fill(t, ws.(*workspace), c, 2)
	}
	swap := func(from, to string) {
		t.Helper()
		f := all[0].(*workspace).file
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if done, err := f.closeIdle(); err != nil || time.Now().After(deadline) {
				t.Fatalf("the file is not closed: %v", err)
			} else if done {
				break
			}
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	path := e.sharedPath(names[0])
	// If the file is closed while the engine inspects it over another connection, it leaves its log behind, which would be
	// taken for that of the next file.
	for _, err := os.Stat(path + "-wal"); err == nil; _, err = os.Stat(path + "-wal") {
		if _, err := all[0].Count(t.Context(), c, driver.Predicate{}); err != nil {
			t.Fatal(err)
		}
		all[0].(*workspace).file.drop()
	}
	swap(path, path+".mine")
	swap(filepath.Join(theirs, filepath.Base(path)), path)
	if _, err := all[0].Count(t.Context(), c, driver.Predicate{}); !errors.Is(err, driver.ErrForeign) {
		t.Errorf("Count on another owner's workspace = %v, want %v", err, driver.ErrForeign)
	}
	if err := all[1].Write(t.Context(), []driver.Write{person(c, 7)}); !errors.As(err, new(*driver.DamagedError)) {
		t.Errorf("Write to a workspace that is not in the file = %v, want a *driver.DamagedError", err)
	}
	swap(path, filepath.Join(theirs, "back"))
	swap(path+".mine", path)
	for i, ws := range all {
		if n, err := ws.Count(t.Context(), c, driver.Predicate{}); n != 2 || err != nil {
			t.Errorf("Count of workspace %d after the file was put back = %d, %v; want 2", i, n, err)
		}
	}
	if _, err := os.Stat(e.ownPath(names[0])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of a file of its own = %v, want %v", err, fs.ErrNotExist)
	}
}

// TestShared_ForeignFilesAreRefused: another program's file, or one that is no database, is not used as a shared file.
func TestShared_ForeignFilesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := people()
	e := openEngine(t, Options{Dir: dir, Shared: true})
	path := e.sharedPath("w")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := raw(t, path, "CREATE TABLE t (x)").close(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open(t.Context(), opening("w", "", c)); err == nil {
		t.Error("Open of another program's file succeeded, want an error")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Remove(ctx, "w", ""); err == nil {
		t.Error("Remove from another program's file succeeded, want an error")
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 400)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open(ctx, opening("w", "", c)); !errors.As(err, new(*driver.DamagedError)) {
		t.Errorf("Open of a file that is no database = %v, want a *driver.DamagedError", err)
	}
	if _, err := e.Residents(ctx); err == nil {
		t.Error("Residents with a file that is no database succeeded, want an error")
	}
}
