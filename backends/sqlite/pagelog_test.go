package sqlite

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// pageRecords is a log of pages in a file, one record a line.
type pageRecords struct {
	path     string
	whole    int64  // the size of the complete cuts that cuts has read
	shipping func() // called before each cut
	mu       sync.Mutex
	fail     error
}

// pageRecord is a cut of one file, or the end of a cut if it has no file.
type pageRecord struct {
	At       time.Time
	File     string
	Kind     driver.CutKind
	Position driver.PagePosition
	PageSize int
	Count    int
	Pages    map[uint32][]byte
	Why      string
}

func (r *pageRecords) ship(_ context.Context, cut driver.PageCut) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	if r.shipping != nil {
		r.shipping()
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriter(f)
	lines := json.NewEncoder(out)
	for _, one := range cut.Files {
		record := pageRecord{cut.At, one.File, one.Kind, one.Position, one.PageSize, one.Pages, map[uint32][]byte{}, one.Why}
		if one.Changed > 0 {
			for number, page := range one.Read {
				record.Pages[number] = slices.Clone(page)
			}
			if err := one.Err(); err != nil || len(record.Pages) != one.Changed {
				return fmt.Errorf("%d of %d pages: %w", len(record.Pages), one.Changed, err)
			}
		}
		if err := lines.Encode(record); err != nil {
			return err
		}
	}
	if err := lines.Encode(pageRecord{At: cut.At}); err != nil {
		return err
	}
	return errors.Join(out.Flush(), f.Sync())
}

func (r *pageRecords) setFail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

// cuts returns the complete cuts of the log.
func (r *pageRecords) cuts(t testing.TB) (cuts [][]pageRecord) {
	t.Helper()
	f, err := os.Open(r.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var cut []pageRecord
	for in := json.NewDecoder(f); ; {
		record := pageRecord{}
		if err := in.Decode(&record); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return cuts
		} else if err != nil {
			t.Fatal(err)
		}
		cut = append(cut, record)
		if record.File == "" {
			cuts, cut = append(cuts, cut), nil
			r.whole = in.InputOffset() + 1
		}
	}
}

// start logs the changes of the engine.
func (r *pageRecords) start(t testing.TB, e *Engine, now func() time.Time) {
	t.Helper()
	o := driver.PageLogging{Known: map[string]driver.PagePosition{}, Ship: r.ship, Now: now, Told: func(err error) {
		if err != nil {
			t.Log(err)
		}
	}}
	for _, cut := range r.cuts(t) {
		for _, record := range cut {
			switch {
			case record.File == "":
				o.Last = record.At
			case record.Kind == driver.CutGone:
				delete(o.Known, record.File)
			default:
				o.Known[record.File] = record.Position
			}
		}
	}
	if r.whole > 0 {
		if err := os.Truncate(r.path, r.whole); err != nil { // a process may have been killed while it wrote
			t.Fatal(err)
		}
	}
	if err := e.LogPages(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// restore applies the cuts to the files in a folder.
func restorePages(t testing.TB, dir string, cuts [][]pageRecord) {
	t.Helper()
	last := map[string]driver.PagePosition{}
	for _, record := range slices.Concat(cuts...) {
		if record.File == "" {
			continue
		}
		if record.Kind != driver.CutBroken {
			last[record.File] = record.Position
		}
		path := filepath.Join(dir, record.File)
		switch record.Kind {
		case driver.CutBroken:
			t.Fatalf("the changes of %s have a gap, %q: %+v after %+v", record.File, record.Why, record.Position, last[record.File])
		case driver.CutCreated, driver.CutGone:
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		case driver.CutChanged:
		}
		if record.Count == 0 {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		for number, page := range record.Pages {
			if _, err := f.WriteAt(page, int64(number-1)*int64(record.PageSize)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(f.Truncate(int64(record.Count*record.PageSize)), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// items is the collection of the writers below.
func items() *driver.Collection {
	return &driver.Collection{Name: "items", Fields: []driver.Field{{Name: "n", Type: driver.Int}},
		Indexes: []driver.Index{{Name: "n", Fields: []string{"n"}}}}
}

func item(c *driver.Collection, id string, n int, op driver.WriteOp) driver.Write {
	pad := strings.Repeat(strconv.Itoa(n%7), n*7919%5000)
	body := fmt.Appendf(nil, `{"id":%q,"n":%d,"pad":%q}`, id, n, pad)
	return driver.Write{Collection: c, Op: op, Doc: driver.Document{ID: id, Body: body, Values: []any{int64(n)}}}
}

// step returns the writes of step n of a writer: they store how far it is, and change some document.
func step(c *driver.Collection, n int) []driver.Write {
	id := fmt.Sprintf("%024x", 1+n*31%40)
	op := driver.Put
	if n%5 == 4 && n > 40 {
		op = driver.Delete
		id = fmt.Sprintf("%024x", 1+(n-1)*31%40) // what the step before has stored
	}
	return []driver.Write{item(c, strings.Repeat("f", 24), n, driver.Put), item(c, id, n, op)}
}

// after returns what a workspace has after step n.
func after(c *driver.Collection, n int) map[string]string {
	all := map[string]string{}
	for i := 1; i <= n; i++ {
		for _, w := range step(c, i) {
			if all[w.Doc.ID] = string(w.Doc.Body); w.Op == driver.Delete {
				delete(all, w.Doc.ID)
			}
		}
	}
	return all
}

// reached returns how far the writer of a workspace was, and checks that the workspace has what it had then.
func reached(t testing.TB, ws driver.Workspace, c *driver.Collection) int {
	t.Helper()
	docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	n, have := 0, map[string]string{}
	for _, d := range docs {
		have[d.ID] = string(d.Body)
		if d.ID == strings.Repeat("f", 24) {
			var counter struct{ N int }
			if err := json.Unmarshal(d.Body, &counter); err != nil {
				t.Fatal(err)
			}
			n = counter.N
		}
	}
	want := after(c, n)
	for id := range want {
		if have[id] != want[id] {
			t.Fatalf("after step %d %s is %.60q, want %.60q", n, id, have[id], want[id])
		}
	}
	if len(have) != len(want) {
		t.Fatalf("after step %d there are %d documents, want %d", n, len(have), len(want))
	}
	return n
}

// TestPageLog: the files at every cut have what was acknowledged before, and nothing in part, while files are opened,
// closed, checkpointed and truncated.
func TestPageLog(t *testing.T) { inBoth(t, testPageLog) }

func testPageLog(t *testing.T, shared bool) {
	const writers = 24
	c := items()
	e := openEngine(t, Options{
		Shared: shared, MaxOpen: 9, Dir: t.TempDir(), maxLog: 400 << 10, recycled: 50, checkpointRows: 40, pageInterval: 15 * time.Millisecond,
		idleInterval: 20 * time.Millisecond, idleTimeout: 150 * time.Millisecond,
	})
	log := &pageRecords{path: filepath.Join(t.TempDir(), "log")}
	var acknowledged, begun [writers]atomic.Int64
	type bounds struct{ least, most [writers]int64 }
	var last bounds
	began := time.Now()
	var seen []bounds // of the cuts
	log.shipping = func() {
		for i := range writers {
			last.most[i] = begun[i].Load()
		}
		seen = append(seen, last)
	}
	log.start(t, e, func() time.Time {
		for i := range writers {
			last.least[i] = acknowledged[i].Load()
		}
		return began.Add(50 * time.Since(began)) // so that most cuts are of full seconds, which have all files
	})
	name := func(i int) string { return fmt.Sprintf("w%d", i) }
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			ws := openWorkspace(t, e, name(i), c)
			for n := 1; ctx.Err() == nil; n++ {
				begun[i].Store(int64(n))
				if err := ws.Write(t.Context(), step(c, n)); err != nil {
					t.Error(err)
					return
				}
				acknowledged[i].Store(int64(n))
				if i%3 == 0 {
					time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				}
				if n%50 == 49 && e.Checkpoint(t.Context(), name(i)) != nil {
					t.Error("Checkpoint failed")
				}
			}
		})
	}
	wg.Wait()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	cuts := log.cuts(t)
	t.Logf("%d cuts", len(cuts))
	dir := t.TempDir()
	applied := 0
	for _, upTo := range moments(len(cuts), 20) {
		restorePages(t, dir, cuts[applied:upTo])
		applied = upTo
		copied := copyFolder(t, dir)
		then := openEngine(t, Options{Shared: shared, Dir: copied})
		total := 0
		for i := range writers {
			there, err := then.Exists(t.Context(), name(i))
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			if there {
				n = reached(t, openWorkspace(t, then, name(i), c), c)
			}
			total += n
			whole := cuts[upTo-1][len(cuts[upTo-1])-1].At.Nanosecond() == 0
			if b := &seen[upTo-1]; whole && int64(n) < b.least[i] || int64(n) > b.most[i] {
				t.Errorf("cut %d has %s at step %d, want from %d to %d", upTo, name(i), n, b.least[i], b.most[i])
			}
		}
		t.Logf("cut %d of %d: %d steps", upTo, len(cuts), total)
		if err := then.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sum := int64(0)
	for i := range writers {
		sum += acknowledged[i].Load()
	}
	final := openEngine(t, Options{Shared: shared, Dir: copyFolder(t, dir)})
	for i := range writers {
		if n := reached(t, openWorkspace(t, final, name(i), c), c); int64(n) != acknowledged[i].Load() {
			t.Errorf("%s is restored at step %d, want %d", name(i), n, acknowledged[i].Load())
		}
	}
	t.Logf("%d steps in all", sum)
}

// moments returns n numbers up to the last, ascending, and the last.
func moments(last, n int) []int {
	all := []int{last}
	for range n {
		all = append(all, 1+rand.IntN(last))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func copyFolder(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// kinds returns the kinds of what the cuts say of a file, each once in a row.
func kinds(t testing.TB, log *pageRecords, file string) (found []driver.CutKind) {
	t.Helper()
	for _, record := range slices.Concat(log.cuts(t)...) {
		if record.File == file && (len(found) == 0 || found[len(found)-1] != record.Kind) {
			found = append(found, record.Kind)
		}
	}
	return found
}

// TestPageLogSaysGaps: changes of a file that the log lacks break its chain, and what leaves none out does not.
func TestPageLogSaysGaps(t *testing.T) {
	t.Parallel()
	created, changed, broken, gone := driver.CutCreated, driver.CutChanged, driver.CutBroken, driver.CutGone
	for name, test := range map[string]struct {
		between func(t *testing.T, log *pageRecords, dir string, write func(e *Engine, n int))
		want    []driver.CutKind
	}{
		"nothing": {
			between: func(*testing.T, *pageRecords, string, func(*Engine, int)) {},
			want:    []driver.CutKind{created, changed},
		},
		"another program": {
			between: func(t *testing.T, _ *pageRecords, dir string, _ func(*Engine, int)) {
				t.Helper()
				c := raw(t, filepath.Join(dir, "w.db"), "INSERT INTO counters (name, value) VALUES ('x', 1)")
				if err := c.close(); err != nil {
					t.Fatal(err)
				}
			},
			want: []driver.CutKind{created, changed, broken, changed},
		},
		"a killed process": {
			between: func(t *testing.T, log *pageRecords, dir string, write func(*Engine, int)) {
				t.Helper()
				killWithUnshipped(t, log, dir, write)
			},
			want: []driver.CutKind{created, changed},
		},
		"a killed process and another program": {
			between: func(t *testing.T, log *pageRecords, dir string, write func(*Engine, int)) {
				t.Helper()
				killWithUnshipped(t, log, dir, write)
				c := raw(t, filepath.Join(dir, "w.db"), "SELECT count(*) FROM sqlite_schema")
				if err := c.close(); err != nil { // it moves the log into the file
					t.Fatal(err)
				}
			},
			want: []driver.CutKind{created, changed, broken, changed},
		},
		"a killed process and an earlier snapshot that went on": {
			between: func(t *testing.T, log *pageRecords, dir string, write func(*Engine, int)) {
				t.Helper()
				e := openEngine(t, Options{Dir: dir, pageInterval: time.Hour})
				log.start(t, e, time.Now)
				write(e, 2)
				snapshot := copyFolder(t, dir)
				write(e, 3)
				cutNow(e)
				log.setFail(errors.New("killed"))
				_ = e.Close() // the log fails
				log.setFail(nil)
				for _, file := range []string{"w.db", "w.db-wal"} {
					if err := errors.Join(os.RemoveAll(filepath.Join(dir, file)), os.Rename(filepath.Join(snapshot, file), filepath.Join(dir, file))); err != nil {
						t.Fatal(err)
					}
				}
				e = openEngine(t, Options{Dir: dir})
				for n := range 5 {
					write(e, n+10)
				}
				kill(t, e, log, dir)
			},
			want: []driver.CutKind{created, changed, broken, changed},
		},
		"a killed process that sealed and emptied the log": {
			between: func(t *testing.T, log *pageRecords, dir string, write func(*Engine, int)) {
				t.Helper()
				killSealed(t, log, dir, write)
				if err := os.Truncate(filepath.Join(dir, "w.db-wal"), 0); err != nil {
					t.Fatal(err)
				}
			},
			want: []driver.CutKind{created, changed},
		},
		"a killed process that sealed, and another program": {
			between: func(t *testing.T, log *pageRecords, dir string, write func(*Engine, int)) {
				t.Helper()
				killSealed(t, log, dir, write)
				c := raw(t, filepath.Join(dir, "w.db"), "UPDATE counters SET value = value + 1")
				if err := c.close(); err != nil {
					t.Fatal(err)
				}
			},
			want: []driver.CutKind{created, changed, broken, changed},
		},
		"a killed process that sealed, and another file": {
			between: func(t *testing.T, log *pageRecords, dir string, write func(*Engine, int)) {
				t.Helper()
				path := filepath.Join(dir, "w.db")
				older, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				killSealed(t, log, dir, write)
				if err := errors.Join(os.Remove(path+"-wal"), os.WriteFile(path, older, 0o600)); err != nil {
					t.Fatal(err)
				}
			},
			want: []driver.CutKind{created, changed, broken, changed},
		},
		"without a log": {
			between: func(t *testing.T, _ *pageRecords, dir string, write func(*Engine, int)) {
				t.Helper()
				e := openEngine(t, Options{Dir: dir})
				write(e, 2)
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			},
			want: []driver.CutKind{created, changed, broken, changed},
		},
		"a folder that fails": {
			between: func(t *testing.T, log *pageRecords, dir string, write func(*Engine, int)) {
				t.Helper()
				e := openEngine(t, Options{Dir: dir, pageInterval: time.Hour})
				log.start(t, e, time.Now)
				log.setFail(errors.New("full"))
				write(e, 2)
				cutNow(e)
				write(e, 3)
				log.setFail(nil)
				cutNow(e)
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			},
			want: []driver.CutKind{created, changed},
		},
		"a folder that fails for long": {
			between: func(t *testing.T, log *pageRecords, dir string, write func(*Engine, int)) {
				t.Helper()
				e := openEngine(t, Options{Dir: dir, pageInterval: time.Hour, maxUnshipped: 20_000, maxLog: 30_000})
				log.start(t, e, time.Now)
				log.setFail(errors.New("full"))
				for n := range 20 {
					write(e, n+2)
					cutNow(e)
				}
				if err := e.Checkpoint(t.Context(), "w"); err != nil { // the log is not kept for it
					t.Error(err)
				}
				log.setFail(nil)
				cutNow(e)
				write(e, 30)
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			},
			want: []driver.CutKind{created, changed, broken, changed},
		},
		"removal": {
			between: func(t *testing.T, log *pageRecords, dir string, _ func(*Engine, int)) {
				t.Helper()
				e := openEngine(t, Options{Dir: dir, pageInterval: time.Hour})
				log.start(t, e, time.Now)
				if err := errors.Join(e.Remove(t.Context(), "w", ""), e.Close()); err != nil {
					t.Fatal(err)
				}
			},
			want: []driver.CutKind{created, changed, gone, created, changed},
		},
		"removal by hand": {
			between: func(t *testing.T, _ *pageRecords, dir string, _ func(*Engine, int)) {
				t.Helper()
				if err := os.Remove(filepath.Join(dir, "w.db")); err != nil {
					t.Fatal(err)
				}
			},
			want: []driver.CutKind{created, changed, gone, created, changed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, c := t.TempDir(), items()
			log := &pageRecords{path: filepath.Join(t.TempDir(), "log")}
			write := func(e *Engine, n int) {
				t.Helper()
				if err := openWorkspace(t, e, "w", c).Write(t.Context(), step(c, n)); err != nil {
					t.Fatal(err)
				}
			}
			logged := func(n int) {
				t.Helper()
				e := openEngine(t, Options{Dir: dir, pageInterval: time.Hour})
				log.start(t, e, time.Now)
				write(e, n)
				if err := e.Close(); err != nil {
					t.Fatal(err)
				}
			}
			logged(1)
			test.between(t, log, dir, write)
			logged(40)
			if found := kinds(t, log, "w.db"); !slices.Equal(found, test.want) {
				t.Errorf("the log has %v, want %v", found, test.want)
			}
		})
	}
}

// killWithUnshipped leaves the folder as a process that is killed after a write that was not shipped.
func killWithUnshipped(t *testing.T, log *pageRecords, dir string, write func(*Engine, int)) {
	t.Helper()
	e := openEngine(t, Options{Dir: dir, pageInterval: time.Hour})
	log.start(t, e, time.Now)
	write(e, 2)
	cutNow(e)
	log.setFail(errors.New("killed"))
	write(e, 3)
	kill(t, e, log, dir)
}

// kill leaves the folder as if the process of the engine were killed. The log fails.
func kill(t *testing.T, e *Engine, log *pageRecords, dir string) {
	t.Helper()
	killed := copyFolder(t, dir)
	info, err := os.Stat(filepath.Join(dir, "w.db"))
	if err != nil {
		t.Fatal(err)
	}
	_ = e.Close() // the log fails
	log.setFail(nil)
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(filepath.Join(killed, "w.db"+suffix))
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, "w.db"+suffix)
		if err := errors.Join(os.RemoveAll(at), os.WriteFile(at, content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(dir, "w.db"), time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

// killSealed leaves the folder as a process that is killed after it has sealed the log, which a reader kept from being
// emptied.
func killSealed(t *testing.T, log *pageRecords, dir string, write func(*Engine, int)) {
	t.Helper()
	e := openEngine(t, Options{Dir: dir, pageInterval: time.Hour})
	log.start(t, e, time.Now)
	write(e, 2)
	reader := raw(t, filepath.Join(dir, "w.db"), "BEGIN; SELECT count(*) FROM sqlite_schema")
	l := e.pages.Load()
	l.turn <- struct{}{}
	emptied, err := l.rest(t.Context(), "w", true)
	l.give()
	if sealed := l.known["w"]; emptied || err != nil || !sealed.Sealed {
		t.Fatalf("got %v %v at %+v, want a log that is sealed and not empty", emptied, err, sealed)
	}
	log.setFail(errors.New("killed"))
	if err := reader.close(); err != nil {
		t.Fatal(err)
	}
	kill(t, e, log, dir)
}

// cutNow makes a cut of all files.
func cutNow(e *Engine) {
	l := e.pages.Load()
	l.turn <- struct{}{}
	defer l.give()
	_ = l.cut(context.Background(), "", false)
}

// TestPageLogTurnsBack: if the clock was ahead, cuts are made at the true time again, and that is told.
func TestPageLogTurnsBack(t *testing.T) {
	t.Parallel()
	dir, c := t.TempDir(), items()
	log := &pageRecords{path: filepath.Join(t.TempDir(), "log")}
	began := time.Now().Truncate(time.Second)
	ahead := atomic.Int64{}
	ahead.Store(int64(40 * time.Hour))
	told := ""
	e := openEngine(t, Options{Dir: dir, pageInterval: time.Hour})
	err := e.LogPages(t.Context(), driver.PageLogging{
		Ship: log.ship, Now: func() time.Time { return began.Add(time.Duration(ahead.Load())) },
		Told: func(err error) { told += fmt.Sprint(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for n, by := range []time.Duration{40 * time.Hour, time.Minute, 2 * time.Minute} {
		ahead.Store(int64(by))
		if err := openWorkspace(t, e, "w", c).Write(t.Context(), step(c, n+1)); err != nil {
			t.Fatal(err)
		}
		cutNow(e)
		cuts := log.cuts(t)
		if at := cuts[len(cuts)-1][0].At; !at.Equal(began.Add(by)) {
			t.Errorf("got a cut at %s, want it at %s", at, began.Add(by))
		}
	}
	if !strings.Contains(told, "the clock was ahead") {
		t.Errorf("%q was told, want that the clock was ahead", told)
	}
}
