package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

func TestVersionOfSQLite(t *testing.T) {
	t.Parallel()
	for linked, ok := range map[int]bool{
		3_051_002: false, 3_050_009: false, 3_051_003: true, 3_053_000: true, sqlite.VersionNumber: true,
	} {
		if err := checkVersion(linked); (err == nil) != ok {
			t.Errorf("checkVersion(%d) = %v, want success: %t", linked, err, ok)
		}
	}
}

// raw runs a statement on the file without the engine.
func raw(t *testing.T, path, sql string) *conn {
	t.Helper()
	c, err := openConn(path, sqlite.OpenReadWrite, "PRAGMA busy_timeout = 2000")
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	if err := c.script(sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return c
}

func TestNewerFileIsRefusedUntouched(t *testing.T) {
	t.Parallel()
	for _, logged := range []bool{false, true} {
		t.Run(fmt.Sprintf("logged=%v", logged), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "w.db")
			first := openEngine(t, Options{Dir: dir})
			openWorkspace(t, first, "w", people())
			if err := first.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			c := raw(t, path, "PRAGMA user_version = 2")
			if logged {
				defer func() { _ = c.close() }()
			} else if err := c.close(); err != nil {
				t.Fatal(err)
			}
			read := func() (all []byte) {
				for _, suffix := range []string{"", "-wal"} {
					b, err := os.ReadFile(path + suffix)
					if err != nil && !errors.Is(err, os.ErrNotExist) {
						t.Fatal(err)
					}
					all = append(all, b...)
				}
				return all
			}
			before := read()
			e := openEngine(t, Options{Dir: dir})
			_, err := e.Open(t.Context(), driver.Opening{Workspace: "w", Collections: []*driver.Collection{people()}})
			if !errors.Is(err, driver.ErrNewer) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "format 2") {
				t.Errorf("Open = %v, want %v with the path and format 2", err, driver.ErrNewer)
			}
			if !bytes.Equal(before, read()) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "text.db"), bytes.Repeat([]byte("no database "), 50), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := openConn(filepath.Join(dir, "other.db"), sqlite.OpenReadWrite|sqlite.OpenCreate, "CREATE TABLE t (a)")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	e := openEngine(t, Options{Dir: dir})
	for _, name := range []string{"text", "other"} {
		if _, err := e.Open(t.Context(), driver.Opening{Workspace: name, Collections: []*driver.Collection{people()}}); err == nil {
			t.Errorf("Open of %s.db succeeded, want an error", name)
		}
	}
}

func TestMigration(t *testing.T) { inBoth(t, testMigration) }

func testMigration(t *testing.T, shared bool) {
	dir := t.TempDir()
	old := &driver.Collection{
		Name:    "c",
		Fields:  []driver.Field{{Name: "a", Type: driver.String}},
		Indexes: []driver.Index{{Name: "gone", Fields: []string{"a"}}},
	}
	body := map[string]any{
		"a": "x", "n": 7, "flag": true, "any": false, "at": "2024-05-17T00:00:00.5Z", "tags": []string{"p", `q"`}, "s": 5, "f": 1.5,
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	first := openEngine(t, Options{Shared: shared, Dir: dir})
	ws := openWorkspace(t, first, "w", old)
	for i := range 1200 {
		doc := driver.Document{ID: fmt.Sprint(i), Body: text, Values: []any{"x"}}
		if err := ws.Write(t.Context(), []driver.Write{{Collection: old, Doc: doc}}); err != nil {
			t.Fatalf("Write: %v", err)
		}
		if i == 2 {
			break
		}
	}
	batch := make([]driver.Write, 1200)
	for i := range batch {
		doc := driver.Document{ID: fmt.Sprintf("b%d", i), Body: []byte(`{"a":"y"}`), Values: []any{"y"}}
		batch[i] = driver.Write{Collection: old, Doc: doc}
	}
	if err := ws.Write(t.Context(), batch); err != nil {
		t.Fatalf("Write: %v", err)
	}

	// A unique index that the data violates fails the migration, which changes nothing.
	violated := &driver.Collection{
		Name:    "c",
		Fields:  append(old.Fields[:1:1], driver.Field{Name: "n", Type: driver.Int}),
		Indexes: []driver.Index{{Name: "u", Fields: []string{"n"}, Unique: true}},
	}
	if _, err := first.Open(t.Context(), driver.Opening{Workspace: "w", Collections: []*driver.Collection{violated}}); err == nil {
		t.Error("Open with a unique index on equal values succeeded, want an error")
	}
	if n, err := ws.Count(t.Context(), old, onField("a", driver.Eq, "y")); err != nil || n != 1200 {
		t.Errorf("Count after a failed migration = %d, %v; want 1200", n, err)
	}
	if err := first.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}

	seen := &plans{}
	e := openEngine(t, Options{Shared: shared, Dir: dir, Observe: seen.add})
	now := &driver.Collection{Name: "c", Fields: []driver.Field{
		{Name: "f", Type: driver.Float}, {Name: "a", Type: driver.String}, {Name: "n", Type: driver.Int},
		{Name: "flag", Type: driver.Bool}, {Name: "any", Type: driver.Any}, {Name: "at", Type: driver.Time},
		{Name: "tags", Type: driver.Strings}, {Name: "s", Type: driver.String},
	}, Indexes: []driver.Index{{Name: "n", Fields: []string{"n"}}, {Name: "tags", Fields: []string{"tags"}}}}
	ws = openWorkspace(t, e, "w", now)
	for _, c := range []struct {
		p    driver.Predicate
		want int64
	}{
		{onField("n", driver.Eq, int64(7)), 3}, {onField("f", driver.Eq, 1.5), 3},
		{onField("flag", driver.Eq, true), 3}, {onField("any", driver.Eq, false), 3},
		{onField("at", driver.Eq, int64(1_715_904_000_500)), 3},
		{onField("tags", driver.Eq, `q"`), 3}, {onField("tags", driver.Exists, false), 1200},
		{onField("s", driver.Exists, true), 0}, {onField("a", driver.Eq, "x"), 3},
		{driver.Predicate{Kids: []driver.Predicate{onField("n", driver.Eq, int64(7)), onField("tags", driver.Eq, `q"`)}}, 3},
	} {
		if n, err := ws.Count(t.Context(), now, c.p); err != nil || n != c.want {
			t.Errorf("Count of %+v = %d, %v; want %d", c.p, n, err, c.want)
		}
	}
	if plan := seen.take()[0]; !strings.Contains(plan.Lines[0], "SEARCH") {
		t.Errorf("plan = %v, want a search of the new index", plan)
	}
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	if have, err := ws.tables["c"].schema(db.writer); err != nil || len(have) != 2 || have["i:c:gone"] != "" {
		t.Errorf("indexes after migration = %v, %v; want 2 without i:c:gone", have, err)
	}
}

// TestMigrationGoesOn: a migration completes although each caller's deadline is too short for it.
func TestMigrationGoesOn(t *testing.T) { inBoth(t, testMigrationGoesOn) }

func testMigrationGoesOn(t *testing.T, shared bool) {
	dir, c := t.TempDir(), people()
	e := openEngine(t, Options{Dir: dir, Shared: shared})
	fill(t, openWorkspace(t, e, "w", c), c, 10_000)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openEngine(t, Options{Dir: dir, Shared: shared})
	c = people()
	c.Fields = append(c.Fields, driver.Field{Name: "plan", Type: driver.String})
	c.Indexes = append(c.Indexes, driver.Index{Name: "plan", Fields: []string{"plan"}})
	for tries := 1; ; tries++ {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		ws, err := e.Open(ctx, driver.Opening{Workspace: "w", Collections: []*driver.Collection{c}})
		cancel()
		if err == nil {
			if n, err := ws.Count(t.Context(), c, onField("plan", driver.Exists, false)); err != nil || n != 10_000 {
				t.Errorf("Count = %d, %v; want 10000", n, err)
			}
			return
		}
		if tries == 2000 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("after %d tries: %v", tries, err)
		}
	}
}

func TestOpenFilesAreBounded(t *testing.T) {
	t.Parallel()
	const maxOpen, names, workers = 3, 12, 6
	e := openEngine(t, Options{MaxOpen: maxOpen})
	c := people()
	var most atomic.Int64
	var all []*workspace
	for i := range names {
		all = append(all, openWorkspace(t, e, fmt.Sprintf("w%d", i), c))
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range 20 {
				ws := all[(w*5+i)%names]
				if err := ws.Write(t.Context(), []driver.Write{person(c, w*1000+i)}); err != nil {
					t.Errorf("Write: %v", err)
				}
				if n, err := ws.Count(t.Context(), c, onField("email", driver.Eq, person(c, w*1000+i).Doc.Values[0])); err != nil || n != 1 {
					t.Errorf("Count of an acknowledged write = %d, %v; want 1", n, err)
				}
				if n := int64(len(e.opened())); n > most.Load() {
					most.Store(n)
				}
			}
		})
	}
	wg.Wait()
	if most.Load() > maxOpen {
		t.Errorf("%d files were open, want at most %d", most.Load(), maxOpen)
	}
	total := int64(0)
	for _, ws := range all {
		n, err := ws.Count(t.Context(), c, driver.Predicate{})
		if err != nil {
			t.Fatalf("Count: %v", err)
		}
		total += n
	}
	if total != workers*20 {
		t.Errorf("%d documents, want %d", total, workers*20)
	}
}

func TestWaitingForAFileHonoursTheDeadline(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{MaxOpen: 1})
	c := people()
	a, b := openWorkspace(t, e, "a", c), openWorkspace(t, e, "b", c)
	if _, err := a.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := b.Count(ctx, c, driver.Predicate{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Count while the only slot is in use = %v, want %v", err, context.DeadlineExceeded)
	}
	a.file.release()
	if _, err := b.Count(t.Context(), c, driver.Predicate{}); err != nil {
		t.Errorf("Count with a free slot = %v, want nil", err)
	}
}

func TestIdleFilesAreClosed(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{idleInterval: 5 * time.Millisecond, idleTimeout: 20 * time.Millisecond})
	c := people()
	ws := openWorkspace(t, e, "a", c)
	for deadline := time.Now().Add(30 * time.Second); len(e.opened()) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the file is still open")
		}
	}
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Errorf("Write to a closed file = %v, want nil", err)
	}
}

func TestRemoveDeletesTheFiles(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	c := people()
	ws := openWorkspace(t, e, "a", c)
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatalf("Write: %v", err)
	}
	if err := e.Remove(t.Context(), "a", ""); err != nil {
		t.Fatalf("Remove: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(e.opts.Dir, "a.db*")); err != nil || len(left) != 0 {
		t.Errorf("files after Remove = %v, %v; want none", left, err)
	}
	if _, err := ws.Count(t.Context(), c, driver.Predicate{}); err == nil {
		t.Error("Count on a removed workspace succeeded, want an error")
	}
}

func TestCloseRefusesLaterCalls(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	c := people()
	ws := openWorkspace(t, e, "a", c)
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatalf("Write: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if log, err := os.Stat(filepath.Join(e.opts.Dir, "a.db-wal")); err == nil && log.Size() > 0 {
		t.Errorf("the log has %d bytes after Close, want 0", log.Size())
	}
	_, err := ws.Count(t.Context(), c, driver.Predicate{})
	_, openErr := e.Open(t.Context(), driver.Opening{Workspace: "b", Collections: []*driver.Collection{c}})
	for _, err := range []error{err, openErr, e.Remove(t.Context(), "a", ""), e.Check(t.Context())} {
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("call after Close = %v, want %v", err, driver.ErrUnavailable)
		}
	}
	if err := e.Close(); err != nil {
		t.Errorf("second Close = %v, want nil", err)
	}
}

func TestDeclarationsAreChecked(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	f := []driver.Field{{Name: "a", Type: driver.String}, {Name: "l", Type: driver.Strings}}
	for name, c := range map[string]*driver.Collection{
		"collection name":  {Name: `x" --`, Fields: f},
		"field name":       {Name: "x", Fields: []driver.Field{{Name: "a b"}}},
		"repeated field":   {Name: "x", Fields: []driver.Field{{Name: "a"}, {Name: "a"}}},
		"index name":       {Name: "x", Fields: f, Indexes: []driver.Index{{Name: `i"`, Fields: []string{"a"}}}},
		"undeclared field": {Name: "x", Fields: f, Indexes: []driver.Index{{Name: "i", Fields: []string{"b"}}}},
		"empty index":      {Name: "x", Fields: f, Indexes: []driver.Index{{Name: "i"}}},
		"unique list":      {Name: "x", Fields: f, Indexes: []driver.Index{{Name: "i", Fields: []string{"l"}, Unique: true}}},
		"leading list":     {Name: "x", Fields: f, Indexes: []driver.Index{{Name: "i", Fields: []string{"l", "a"}}}},
	} {
		if _, err := e.Open(t.Context(), driver.Opening{Workspace: "w", Collections: []*driver.Collection{c}}); err == nil {
			t.Errorf("Open with an invalid %s succeeded, want an error", name)
		}
	}
}
