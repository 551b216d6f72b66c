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

// neighbours returns n names of workspaces that share a file.
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

// TestShared_WorkspacesStayWhereTheyAre: what new workspaces get does not move those that are there, and what lies in
// two places is not guessed.
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
				t.Errorf("round %d: workspace %d has %d documents, %v", round, i, n, err)
			}
			if ws.shared != (i == 1) || e.Place(names[i]) != ws.file.path {
				t.Errorf("round %d: workspace %d is shared: %t, and said to be in %s", round, i, ws.shared, e.Place(names[i]))
			}
			if err := errors.Join(e.Missing(names[i]), e.Examine(t.Context(), e.Place(names[i]), false)); err != nil {
				t.Error(err)
			}
			if r, err := e.Resident(t.Context(), names[i]); err != nil || !strings.HasSuffix(r.Where, ws.file.path) {
				t.Errorf("round %d: %+v, %v", round, r, err)
			}
		}
		want := names[:min(round+1, 2)]
		if got, err := e.Residents(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("round %d: residents %v, %v", round, got, err)
		}
		if err := e.Missing(names[2]); !errors.As(err, new(*driver.DamagedError)) {
			t.Errorf("round %d: one that nobody made: %v", round, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	e := openEngine(t, Options{Dir: dir, Shared: true})
	apart := opening(names[2], "mine", c)
	apart.Apart = true
	if ws, err := e.Open(t.Context(), apart); err != nil || ws.(*workspace).shared {
		t.Errorf("one that is to be apart shares a file: %v", err)
	}
	b, err := os.ReadFile(e.ownPath(names[0]))
	if err == nil {
		err = os.WriteFile(e.ownPath(names[1]), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open(t.Context(), opening(names[1], "", c)); !errors.As(err, new(*driver.DamagedError)) || !strings.Contains(err.Error(), "is both in") {
		t.Errorf("one that lies in two places: %v", err)
	}
}

// rows counts what a shared file has under a number, in every table.
func rows(t *testing.T, path string, ws int64) (n int64) {
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

// TestShared_RemovedIsGone: handles to a removed workspace neither read nor write, nothing of it remains, its number
// is not given again, and neighbours keep theirs.
func TestShared_RemovedIsGone(t *testing.T) {
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
	gone, kept := all[0], all[1]
	want := int64(3*(clearBatchSize+10) + 2)
	if n := rows(t, gone.file.path, gone.space.id); n != want {
		t.Fatalf("%d rows", n)
	}
	if err := e.Remove(t.Context(), names[0], "somebody"); err != nil { // it was nobody's
		t.Fatal(err)
	}
	if _, err := gone.Count(t.Context(), c, driver.Predicate{}); !errors.Is(err, errRemoved) {
		t.Errorf("reading what was removed: %v", err)
	}
	if err := gone.Write(t.Context(), []driver.Write{person(c, 1)}); err == nil {
		t.Error("writing to what was removed")
	}
	if n, m := rows(t, gone.file.path, gone.space.id), rows(t, kept.file.path, kept.space.id); n != 0 || m != want {
		t.Errorf("%d rows remain, and %d of its neighbour", n, m)
	}
	if has := kept.file.indexes.indexedBy; has(fieldKey{gone.space.id, "people", "", "k"}) != nil || has(fieldKey{kept.space.id, "people", "", "k"}) == nil {
		t.Error("its indexes remain, or its neighbour's do not")
	}
	again := openWorkspace(t, e, names[0], c)
	if again.space.id <= kept.space.id {
		t.Errorf("number %d is given again", again.space.id)
	}
	if err := e.Remove(t.Context(), names[2], ""); err != nil {
		t.Errorf("removing what was never there: %v", err)
	}
}

// TestShared_WritesBehindARemoval: who waits behind a removal writes nothing, and makes no index.
func TestShared_WritesBehindARemoval(t *testing.T) {
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
	db.writerLock <- struct{}{} // until all wait
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
		t.Errorf("%d do not wait", n)
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
		t.Error("an index was made of what is gone, or is said to be")
	}
	if err := <-written; !errors.Is(err, errRemoved) {
		t.Errorf("a write behind the removal: %v", err)
	}
	path, id := ws.file.path, ws.space.id
	ws.file.release()
	if n := rows(t, path, id); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// TestShared_OpenedWhileItIsRemoved: who has read its number by then gets that of the one after it.
func TestShared_OpenedWhileItIsRemoved(t *testing.T) {
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
	gone := openWorkspace(t, e, name, c)
	fill(t, gone, c, 3)
	remove = func() {
		if err := e.Remove(t.Context(), name, ""); err != nil {
			t.Error(err)
		}
	}
	again := openWorkspace(t, e, name, c)
	if again.space.id <= gone.space.id || e.spaces.Get(name) != again.space {
		t.Errorf("number %d of what was removed as %d, and others get another", again.space.id, gone.space.id)
	}
	fill(t, again, c, 1)
	if n, err := again.Count(t.Context(), c, driver.Predicate{}); n != 1 || err != nil {
		t.Errorf("%d documents, not 1: %v", n, err)
	}
	if _, err := gone.Count(t.Context(), c, driver.Predicate{}); !errors.Is(err, errRemoved) {
		t.Errorf("a question to what was removed: %v", err)
	}
}

// TestShared_RemovalIsFinished: what a removal left when the process ended is deleted when the file is opened again.
func TestShared_RemovalIsFinished(t *testing.T) {
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
		t.Errorf("residents %v, %v", got, err)
	}
	openWorkspace(t, e, names[1], c)
	for deadline := time.Now().Add(time.Minute); rows(t, ws.file.path, ws.space.id) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what was removed is still there")
		}
	}
}

// TestShared_AnotherFileIsFoundOut: a file that was put in the place of one that handles know is looked at before
// anything is read from it: the same number may be another's there.
func TestShared_AnotherFileIsFoundOut(t *testing.T) {
	t.Parallel()
	c := people()
	names := neighbours(2)
	mine, theirs := t.TempDir(), t.TempDir()
	make := func(dir string, owner string, names ...string) (all []driver.Workspace, e *Engine) {
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
	other, strangers := make(theirs, "theirs", names[0])
	fill(t, other[0].(*workspace), c, 9)
	if err := strangers.Close(); err != nil {
		t.Fatal(err)
	}
	all, e := make(mine, "mine", names...)
	for _, ws := range all {
		fill(t, ws.(*workspace), c, 2)
	}
	swap := func(from, to string) {
		t.Helper()
		f := all[0].(*workspace).file
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			if done, err := f.closeIdle(); err != nil || time.Now().After(deadline) {
				t.Fatalf("the file stays open: %v", err)
			} else if done {
				break
			}
		}
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	path := e.sharedPath(names[0])
	// Closed while the engine looks into the file on its own, it leaves its log behind, which would be taken for that
	// of the next.
	for _, err := os.Stat(path + "-wal"); err == nil; _, err = os.Stat(path + "-wal") {
		if _, err := all[0].Count(t.Context(), c, driver.Predicate{}); err != nil {
			t.Fatal(err)
		}
		all[0].(*workspace).file.drop()
	}
	swap(path, path+".mine")
	swap(filepath.Join(theirs, filepath.Base(path)), path)
	if _, err := all[0].Count(t.Context(), c, driver.Predicate{}); !errors.Is(err, driver.ErrForeign) {
		t.Errorf("the same number is another's: %v", err)
	}
	if err := all[1].Write(t.Context(), []driver.Write{person(c, 7)}); !errors.As(err, new(*driver.DamagedError)) {
		t.Errorf("the number is nobody's: %v", err)
	}
	swap(path, filepath.Join(theirs, "back"))
	swap(path+".mine", path)
	for i, ws := range all {
		if n, err := ws.Count(t.Context(), c, driver.Predicate{}); n != 2 || err != nil {
			t.Errorf("workspace %d with the file back: %d, %v", i, n, err)
		}
	}
	if _, err := os.Stat(e.ownPath(names[0])); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of its own was made: %v", err)
	}
}

// TestShared_ForeignFilesAreRefused: a file that is no shared one is not used as such, nor the other way round.
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
		t.Error("another program's file was opened")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Remove(ctx, "w", ""); err == nil {
		t.Error("it was removed from")
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 400)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open(ctx, opening("w", "", c)); !errors.As(err, new(*driver.DamagedError)) {
		t.Errorf("what is no database: %v", err)
	}
	if _, err := e.Residents(ctx); err == nil {
		t.Error("who lives there can be told")
	}
}
