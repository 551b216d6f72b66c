package sqlite

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/driver"

	"zombiezen.com/go/sqlite"
)

func TestFullDisk(t *testing.T) { inBoth(t, testFullDisk) }

func testFullDisk(t *testing.T, shared bool) {
	var pages atomic.Int64
	pages.Store(80)
	e := openEngine(t, Options{Shared: shared, maxPages: func() int { return int(pages.Load()) }})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	written := 0
	var err error
	for ; written < 10_000 && err == nil; written++ {
		err = ws.Write(t.Context(), []driver.Write{person(c, written)})
	}
	written--
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Fatalf("Write to a full disk = %v, want %v", err, driver.ErrUnavailable)
	}
	if _, err := ws.Counter(t.Context(), strings.Repeat("long", 100_000), 1, 0); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Counter on a full disk = %v, want %v", err, driver.ErrUnavailable)
	}
	if n, err := ws.Count(t.Context(), c, driver.Predicate{}); err != nil || n != int64(written) {
		t.Errorf("Count on a full disk = %d, %v; want %d", n, err, written)
	}
	pages.Store(1 << 20)
	if err := ws.Write(t.Context(), []driver.Write{person(c, written)}); err != nil {
		t.Errorf("Write with free space again = %v, want nil", err)
	}
	if n, err := ws.Count(t.Context(), c, driver.Predicate{}); err != nil || n != int64(written)+1 {
		t.Errorf("Count after recovery = %d, %v; want %d", n, err, written+1)
	}
}

func TestWriteWaitsForForeignLock(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	other := raw(t, filepath.Join(e.opts.Dir, "w.db"), "BEGIN IMMEDIATE")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	started := time.Now()
	if err := ws.Write(ctx, []driver.Write{person(c, 1)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Write under a foreign lock = %v, want %v", err, context.DeadlineExceeded)
	}
	if d := time.Since(started); d > 5*time.Second {
		t.Errorf("Write with a deadline of 50 ms took %v", d)
	}
	if _, err := ws.Count(t.Context(), c, driver.Predicate{}); err != nil {
		t.Errorf("Count under a foreign lock = %v, want nil", err)
	}
	if err := other.close(); err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Errorf("Write after the lock was released = %v, want nil", err)
	}
}

// slowPredicate returns a condition that takes long on many documents.
func slowPredicate() driver.Predicate {
	p := driver.Predicate{Op: driver.Or}
	for i := range 200 {
		ref := driver.Ref{Name: fmt.Sprintf("k%d", i), Custom: true}
		p.Kids = append(p.Kids, driver.Predicate{Op: driver.Contains, Ref: ref, Values: []any{"x"}})
	}
	return p
}

func fill(t *testing.T, ws *workspace, c *driver.Collection, n int) {
	t.Helper()
	batch := make([]driver.Write, n)
	for i := range batch {
		batch[i] = person(c, i)
	}
	if err := ws.Write(t.Context(), batch); err != nil {
		t.Fatalf("Write: %v", err)
	}
}

func TestLongQueriesAreInterrupted(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{Readers: 1, idleInterval: time.Hour}) // what closes idle files reads the timeout
	p := people()
	ws := openWorkspace(t, e, "w", p)
	fill(t, ws, p, 20_000) // slowPredicate would take seconds
	for _, c := range []struct {
		name    string
		timeout time.Duration // of the engine
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		want    error
	}{
		{"deadline", 0, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 30*time.Millisecond)
		}, context.DeadlineExceeded},
		{"cancel", 0, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(30*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled},
		{"timeout of the engine", 30 * time.Millisecond, context.WithCancel, context.DeadlineExceeded},
	} {
		t.Run(c.name, func(t *testing.T) {
			usual := e.opts.QueryTimeout
			for range 3 {
				ctx, cancel := c.ctx(t.Context())
				e.opts.QueryTimeout = cmp.Or(c.timeout, usual)
				slow := c.want == context.DeadlineExceeded //nolint:errorlint // one of the two values above
				if _, err := ws.Count(ctx, p, slowPredicate()); !errors.Is(err, c.want) || errors.Is(err, driver.ErrSlow) != slow {
					t.Errorf("Count of a slow query = %v, want %v, ErrSlow: %v", err, c.want, slow)
				}
				e.opts.QueryTimeout = usual // the next query must succeed on a busy machine too
				cancel()
				// The only reader must be usable again.
				if docs, err := ws.Find(t.Context(), driver.Query{Collection: p, Limit: 3}); err != nil || len(docs) != 3 {
					t.Errorf("Find after an interrupt = %d documents, %v; want 3", len(docs), err)
				}
			}
		})
	}
}

func TestInterruptedWriteLeavesNothing(t *testing.T) { inBoth(t, testInterruptedWriteLeavesNothing) }

func testInterruptedWriteLeavesNothing(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	batch := make([]driver.Write, 12_000)
	for i := range batch {
		batch[i] = person(c, i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := ws.Write(ctx, batch); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted Write = %v, want %v", err, context.Canceled)
	}
	if n, err := ws.Count(t.Context(), c, driver.Predicate{}); err != nil || n != 0 {
		t.Errorf("Count = %d, %v; want 0", n, err)
	}
	if err := ws.Write(t.Context(), batch[:1]); err != nil {
		t.Errorf("next Write = %v, want nil", err)
	}
}

func TestReadersSeeAcknowledgedWrites(t *testing.T) { inBoth(t, testReadersSeeAcknowledgedWrites) }

func testReadersSeeAcknowledgedWrites(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared, Readers: 3})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 60 {
				wr := person(c, w*1000+i)
				if err := ws.Write(t.Context(), []driver.Write{wr}); err != nil {
					t.Errorf("Write: %v", err)
					return
				}
				for range 4 {
					docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: onField("id", driver.Eq, wr.Doc.ID), Limit: 1})
					if err != nil || len(docs) != 1 {
						t.Errorf("Find after an acknowledged write = %d documents, %v; want 1", len(docs), err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	snapshots := func() (n int) {
		db.mu.Lock()
		defer db.mu.Unlock()
		for _, r := range db.idle {
			if r.inSnapshot {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(30 * time.Second); snapshots() > 0; time.Sleep(snapshotAge / 2) {
		if time.Now().After(deadline) {
			t.Fatal("an idle reader keeps its snapshot")
		}
	}
}

func TestStatementsAreBounded(t *testing.T) { inBoth(t, testStatementsAreBounded) }

func testStatementsAreBounded(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared, Readers: 1})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	for i := range 3 * maxStatements {
		p := driver.Predicate{Op: driver.Or}
		for bit := range 10 {
			op := driver.Eq
			if i>>bit&1 == 1 {
				op = driver.Gt
			}
			p.Kids = append(p.Kids, onField("age", op, int64(bit)))
		}
		if _, err := ws.Count(t.Context(), c, p); err != nil {
			t.Fatalf("Count: %v", err)
		}
	}
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	cached := func() (n, texts, longest, counted int) {
		db.mu.Lock() // the sweeper accesses idle readers too
		defer db.mu.Unlock()
		c := db.idle[0].conn
		for sql := range c.stmts {
			texts += len(sql)
			longest = max(longest, len(sql))
		}
		return len(c.stmts), texts, longest, c.textBytes
	}
	if n, _, _, _ := cached(); n > maxStatements {
		t.Errorf("%d statements are cached, want at most %d", n, maxStatements)
	}

	// Of long statements fewer are cached, or none, and keys of counts are short.
	long := func(kinds, values int, op driver.Op) {
		t.Helper()
		p := driver.Predicate{}
		for k := range kinds {
			list := []any{strings.Repeat("x", 4*longBinding)}
			for v := range values {
				list = append(list, strconv.Itoa(v))
			}
			p.Kids = append(p.Kids, onField("city", driver.Nin, list...), onField("age", op, int64(-k-1)))
		}
		if n, err := ws.Count(t.Context(), c, p); err != nil || n != minCachedCount {
			t.Fatalf("Count = %d, %v; want %d", n, err, minCachedCount)
		}
	}
	fill(t, ws, c, minCachedCount)
	for kinds := range 20 {
		long(kinds+1, 100, driver.Gt)
		long(kinds+1, 100, driver.Gte)
	}
	n, texts, longest, counted := cached()
	if texts > maxTexts || texts != counted || n < 2 {
		t.Errorf("%d statements with %d bytes are cached, counted as %d; want 2 or more with at most %d bytes",
			n, texts, counted, maxTexts)
	}
	long(150, 7, driver.Gt)
	if _, _, now, _ := cached(); now != longest { // their number changes, because the engine runs statements of its own
		t.Errorf("a statement of %d bytes is cached, want none longer than %d", now, longest)
	}
	partitions, keys := 0, 0
	for _, t := range db.counts.partitions {
		partitions++
		for key := range t.counts {
			keys += len(key)
		}
	}
	if db.counts.entries == 0 || keys > db.counts.entries*maxKeyLength {
		t.Errorf("%d counts of %d partitions have keys of %d bytes, want at most %d each",
			db.counts.entries, partitions, keys, maxKeyLength)
	}
}

// TestCountsAreBounded: the bound of cached counts and bookmarks holds for all workspaces of a file together.
func TestCountsAreBounded(t *testing.T) {
	t.Parallel()
	var c countCache
	total := func() (n int) {
		for _, t := range c.partitions {
			n += len(t.counts) + len(t.bookmarks)
		}
		return n
	}
	for i := range 3 * maxCacheEntries {
		of := partition{int64(i % 100), "people"}
		c.put(of, strconv.Itoa(i), minCachedCount, c.version(of))
		c.addBookmarks(of, strconv.Itoa(i), []bookmark{{offset: 1, values: []any{"x"}}}, c.version(of))
		if i%1000 == 0 {
			c.changed(map[partition]bool{of: true})
		}
		if n := total(); i%997 == 0 && (n > maxCacheEntries || n != c.entries) {
			t.Fatalf("%d entries are cached, counted as %d; want at most %d", n, c.entries, maxCacheEntries)
		}
	}
	if c.changed(nil); total() != 0 || c.entries != 0 {
		t.Errorf("%d entries after a change of everything, counted as %d; want 0", total(), c.entries)
	}
}

// TestMigratedValues: a field that is declared later gets the values that a write would have given it.
func TestMigratedValues(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		typ  driver.Type
		raw  string
		want any
	}{
		{driver.String, `"a"`, "a"}, {driver.String, `""`, nil}, {driver.String, `0`, nil}, {driver.String, ``, nil},
		{driver.Date, `""`, nil}, {driver.Any, `""`, nil},
		{driver.Time, `5`, int64(5)}, {driver.Time, `0`, nil},
		{driver.Time, `"1970-01-01T00:00:00Z"`, nil}, {driver.Time, `"1970-01-01T00:00:01Z"`, int64(1000)},
		{driver.Int, `0`, int64(0)}, {driver.Bool, `false`, false},
		{driver.Strings, `[]`, nil}, {driver.Strings, `["a"]`, []string{"a"}},
	} {
		if got := fromJSON(v.typ, json.RawMessage(v.raw)); !reflect.DeepEqual(got, v.want) {
			t.Errorf("fromJSON(%v, %s) = %v, want %v", v.typ, v.raw, got, v.want)
		}
	}
}

const (
	crashDir    = "TENANTRY_TEST_CRASH_DIR"
	crashShared = "TENANTRY_TEST_CRASH_SHARED"
)

// TestCrashWriter runs in the process that TestKilledProcessLosesNothing kills.
func TestCrashWriter(t *testing.T) {
	dir := os.Getenv(crashDir)
	if dir == "" {
		t.Skip("runs as a child of TestKilledProcessLosesNothing")
	}
	e := openEngine(t, Options{Dir: dir, Shared: os.Getenv(crashShared) != ""})
	c := crashCollection()
	ws := openWorkspace(t, e, "w", c)
	start, err := ws.Counter(t.Context(), "round", 100_000, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // builds and drops an index repeatedly
		for ; t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			e.buildIndex(t.Context(), indexJob{w: ws, t: ws.tables["people"], key: fieldKey{ws.space.id, "people", "", "score"}})
			ws.file.dropUnused(t.Context(), time.Now())
			ws.file.deleteDropped(time.Now().Add(time.Hour))
		}
	}()
	var printing sync.Mutex
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
				i := int(start + next.Add(1))
				wr := person(c, i)
				wr.Doc.Values = append(wr.Doc.Values, []string{"t"})
				if err := ws.Write(t.Context(), []driver.Write{wr}); err != nil {
					t.Error(err)
					return
				}
				printing.Lock()
				fmt.Printf("acknowledged %s\n", wr.Doc.ID)
				printing.Unlock()
			}
		})
	}
	wg.Wait()
}

// crashCollection returns people with lists and custom fields.
func crashCollection() *driver.Collection {
	c := tagged()
	c.Custom, c.Rides = true, []string{"teams"}
	return c
}

func TestKilledProcessLosesNothing(t *testing.T) { inBoth(t, testKilledProcessLosesNothing) }

func testKilledProcessLosesNothing(t *testing.T, shared bool) {
	dir := t.TempDir()
	var acknowledged []string
	c := crashCollection()
	e := openEngine(t, Options{Shared: shared, Dir: dir})
	before := make([]driver.Write, 2*minIndexedDocuments)
	for i := range before {
		before[i] = person(c, i)
		before[i].Doc.Values = append(before[i].Doc.Values, []string{"t"})
	}
	if err := errors.Join(openWorkspace(t, e, "w", c).Write(t.Context(), before), e.Close()); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		acknowledged = append(acknowledged, crash(t, dir, shared, time.Duration(100+70*round)*time.Millisecond)...)
		e := openEngine(t, Options{Shared: shared, Dir: dir})
		ws := openWorkspace(t, e, "w", c)
		for _, id := range acknowledged {
			docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: onField("id", driver.Eq, id), Limit: 1})
			if err != nil || len(docs) != 1 {
				t.Fatalf("round %d: the acknowledged document %s is lost: %v", round, id, err)
			}
		}
		all, err1 := ws.Count(t.Context(), c, driver.Predicate{})
		listed, err2 := ws.Count(t.Context(), c, onField("tags", driver.Eq, "t"))
		if err1 != nil || err2 != nil || all != listed || all < int64(len(acknowledged)+len(before)) {
			t.Errorf("round %d: %d documents, %d found by list, %v, %v; want as many of each, and at least the %d acknowledged ones",
				round, all, listed, err1, err2, len(acknowledged)+len(before))
		}
		buildField(t, ws, "score") // continues
		checkEntries(t, ws, "score")
		if err := e.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		checkIntegrity(t, ws.file.path)
	}
	if len(acknowledged) == 0 {
		t.Error("nothing was acknowledged in any round")
	}
}

// crash runs the writer, kills it some time after its first write, and returns the acknowledged ids.
func crash(t *testing.T, dir string, shared bool, after time.Duration) (ids []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestCrashWriter$", "-test.v")
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	if shared {
		cmd.Env = append(cmd.Env, crashShared+"=yes")
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "acknowledged "); ok && len(id) == 24 {
			ids = append(ids, id)
			once.Do(func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) })
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the writer ended before it was killed")
	}
	return ids
}

// checkIntegrity runs SQLite's integrity check on a file.
func checkIntegrity(t *testing.T, path string) {
	t.Helper()
	c, err := openConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.close() }()
	if err := c.rows("PRAGMA integrity_check", nil, func(row *sqlite.Stmt) error {
		if text := row.ColumnText(0); text != "ok" {
			t.Errorf("integrity_check: %s", text)
		}
		return nil
	}); err != nil {
		t.Errorf("integrity_check: %v", err)
	}
}
