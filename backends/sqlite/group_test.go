package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/background"

	"zombiezen.com/go/sqlite"
)

// grouped are jobs of people for one transaction.
type grouped struct {
	t    *testing.T
	ws   *workspace
	db   *database
	c    *driver.Collection
	jobs []*job
}

func newGroup(t *testing.T) *grouped {
	t.Helper()
	c := people()
	ws := openWorkspace(t, openEngine(t, Options{Dir: t.TempDir()}), "w", c)
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ws.file.release)
	return &grouped{t: t, ws: ws, db: db, c: c}
}

// add adds a job that inserts the persons and ends with err.
func (g *grouped) add(ctx context.Context, err error, persons ...int) *job {
	j := &job{ctx: ctx, wait: ctx, load: load{documents: len(persons), rows: len(persons)}, partitions: map[partition]bool{{g.ws.space.id, "people"}: true}, done: make(chan struct{})}
	j.do = func(c *conn) error {
		for i, n := range persons {
			change, err := g.ws.change(person(g.c, n))
			if err != nil {
				return err
			}
			if err := change.apply(c, i); err != nil {
				return err
			}
		}
		return err
	}
	g.jobs = append(g.jobs, j)
	return j
}

func (g *grouped) stored() int64 {
	g.t.Helper()
	n, err := g.ws.Count(g.t.Context(), g.c, driver.Predicate{})
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

// TestGroup_EachHasItsVerdict: what one of a transaction is refused, or gives up, the others are stored beside.
func TestGroup_EachHasItsVerdict(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	gone, leave := context.WithCancel(t.Context())
	leave()
	broken := errors.New("changed its mind")
	first, twice, undone := g.add(t.Context(), nil, 1, 2), g.add(t.Context(), nil, 3, 1), g.add(t.Context(), broken, 4)
	late, last := g.add(gone, nil, 5), g.add(t.Context(), nil, 6)
	g.db.writerLock <- struct{}{}
	if done := g.db.runGrouped(g.jobs, false); done > 0 || g.stored() != 0 {
		t.Errorf("what had begun and failed was not taken back: %d persons", g.stored())
	}
	shared := g.db.runGrouped(g.jobs, true)
	<-g.db.writerLock
	var dup *driver.DuplicateError
	if shared != len(g.jobs) || first.err != nil || last.err != nil || !errors.As(twice.err, &dup) || dup.Position != 1 || !errors.Is(undone.err, broken) || !errors.Is(late.err, context.Canceled) {
		t.Errorf("got %d: %v, %v, %v, %v, %v, want shared = %v and no error and no error and an error of the type of dup and dup.Position = 1 and the error broken and the error context.Canceled",
			shared, first.err, twice.err, undone.err, late.err, last.err, len(g.jobs))
	}
	if n := g.stored(); n != 3 {
		t.Errorf("%d persons, want 1, 2 and 6", n)
	}
}

// TestGroup_WhatChangedNothingIsTakenBackFromNobody: a job that fails at once needs no second time of all.
func TestGroup_WhatChangedNothingIsTakenBackFromNobody(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	first, twice, stale, last := g.add(t.Context(), nil, 1), g.add(t.Context(), nil, 1), g.add(t.Context(), nil), g.add(t.Context(), nil, 2)
	stale.do = func(c *conn) error {
		write := person(g.c, 1)
		write.Op, write.Doc.Rev = driver.Replace, 7
		change, err := g.ws.change(write)
		if err != nil {
			return err
		}
		return change.apply(c, 0)
	}
	g.db.writerLock <- struct{}{}
	shared := g.db.runGrouped(g.jobs, false)
	<-g.db.writerLock
	var dup *driver.DuplicateError
	var conflict *driver.ConflictError
	if shared != len(g.jobs) || first.err != nil || last.err != nil || !errors.As(twice.err, &dup) || !errors.As(stale.err, &conflict) {
		t.Errorf("got %d: %v, %v, %v, %v, want shared = %v and no error and no error and an error of the type of dup and an error of the type of conflict",
			shared, first.err, twice.err, stale.err, last.err, len(g.jobs))
	}
	if n := g.stored(); n != 2 {
		t.Errorf("%d persons, want 1 and 2", n)
	}
}

// TestGroup_OneThatIsInterruptedHarmsNobody: SQLite ends the whole transaction with an interrupted statement.
func TestGroup_OneThatIsInterruptedHarmsNobody(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	ctx, cancel := context.WithCancel(t.Context())
	first, long, last := g.add(t.Context(), nil, 1), g.add(ctx, nil, 2), g.add(t.Context(), nil, 3)
	insert := long.do
	long.do = func(c *conn) error {
		if err := insert(c); err != nil {
			return err
		}
		time.AfterFunc(20*time.Millisecond, cancel)
		return c.exec(`WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)
			INSERT INTO "c:people" (id, rev, body) SELECT printf('%024x', i), 1, '{}' FROM n`)
	}
	for _, j := range g.jobs {
		g.db.queue.add(j)
	}
	g.db.writerLock <- struct{}{}
	g.db.runJobs()
	for _, j := range g.jobs {
		<-j.done
	}
	if first.err != nil || last.err != nil || !errors.Is(failed(ctx, "write", long.err), context.Canceled) {
		t.Errorf("got %v, %v, %v, want no error and no error and the error context.Canceled", first.err, long.err, last.err)
	}
	if n := g.stored(); n != 2 {
		t.Errorf("%d persons, want 1 and 3", n)
	}
}

// TestGroup_PanicFailsItsOwnWriteOnly holds that a panic is the error of the write that caused it. Writes before and
// after it in the group are stored, also once their callers have left, and a panic while a document is read frees
// the reader and its queue.
func TestGroup_PanicFailsItsOwnWriteOnly(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	ctx, leave := context.WithCancel(t.Context())
	first, bad, last := g.add(t.Context(), nil, 1), g.add(ctx, nil, 2), g.add(t.Context(), nil, 3)
	insert := bad.do
	bad.do = func(c *conn) error { panic(insert(c)) }
	for _, j := range g.jobs {
		g.db.queue.add(j)
	}
	g.db.writerLock <- struct{}{}
	g.db.runJobs()
	for _, j := range g.jobs {
		<-j.done
	}
	if !errors.Is(bad.err, background.ErrPanic) || first.err != nil || last.err != nil || g.stored() != 2 {
		t.Errorf("%v, %v, %v, %d persons stored, want 1 and 3", first.err, bad.err, last.err, g.stored())
	}
	for n := range 3 * g.ws.engine.opts.Readers {
		alone := func(*conn) error { panic("a fault of the program") }
		if err := g.db.transact(ctx, ctx, load{documents: 1, rows: 1}, nil, alone); !errors.Is(err, background.ErrPanic) {
			t.Error(err)
		}
		s, err := g.ws.compileQuery(g.ws.tables["people"], driver.Query{Limit: 9}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.ws.read(ctx, "find", s, func(*sqlite.Stmt) error { panic("a fault of the program") }); !errors.Is(err, background.ErrPanic) {
			t.Error(err)
		}
		g.ws.engine.jobs <- func(context.Context) { panic("a fault of the program") }
		leave()
		var cancelled context.CancelFunc
		ctx, cancelled = context.WithCancel(t.Context())
		leave = cancelled
		if err := g.ws.Write(ctx, []driver.Write{person(g.c, 10+n)}); err != nil {
			t.Error(err)
		}
		if stored := g.stored(); stored != int64(3+n) {
			t.Errorf("%d persons, want %d", stored, 3+n)
		}
	}
	leave()
	done := make(chan struct{})
	g.ws.engine.jobs <- func(context.Context) { close(done) }
	<-done
}

// TestGroup_LargeJobsAreAmongThemselves: who stores little does not wait for who stores much.
func TestGroup_LargeJobsAreAmongThemselves(t *testing.T) {
	t.Parallel()
	var l jobQueue
	sizes := []int{1, 2, 500, 501, 1, 1000, 500, 500, 500, 500, 1, maxLargeRows - 2000, 600, 600, 1, maxLargeRows + 1, 501}
	for _, n := range sizes {
		l.add(&job{load: load{rows: n}, partitions: map[partition]bool{}})
	}
	l.add(&job{}) // may change anything
	var got [][]int
	for jobs := l.take(); len(jobs) > 0; jobs = l.take() {
		var group []int
		for _, j := range jobs {
			group = append(group, j.rows)
		}
		got = append(got, group)
	}
	if want := "[[1 2 500 1 500 500 500] [501 1000] [8000] [500 1 1] [600 600] [10001] [501] [0]]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	many := &jobQueue{}
	for range maxGroup + 1 {
		many.add(&job{partitions: map[partition]bool{}})
	}
	if n := len(many.take()); n != maxGroup {
		t.Errorf("%d jobs in a group", n)
	}
}

// TestGroup_LargeJobsMakeRoom: those that share a transaction end it after the one at work where somebody else waits,
// and go on behind; who has given up by then is not stored.
func TestGroup_LargeJobsMakeRoom(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	large := func(i int) (batch []driver.Write) {
		for n := range largeRows {
			batch = append(batch, person(g.c, 1000*i+n))
		}
		return batch
	}
	g.db.writerLock <- struct{}{} // until all wait
	ended := make(chan string, 4)
	write := func(ctx context.Context, name string, batch []driver.Write) {
		before := len(g.waiting())
		go func() {
			err := g.ws.Write(ctx, batch)
			ended <- fmt.Sprint(name, " ", err)
		}()
		for deadline := time.Now().Add(time.Minute); len(g.waiting()) == before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it does not wait")
			}
		}
	}
	write(t.Context(), "first", large(1))
	hopeless, giveUp := context.WithCancel(t.Context())
	write(hopeless, "second", large(2))
	write(t.Context(), "third", large(3))
	inFirst, goOn := make(chan struct{}), make(chan struct{})
	first := g.waiting()[0]
	do := first.do
	first.do = func(c *conn) error {
		close(inFirst)
		<-goOn
		return do(c)
	}
	<-g.db.writerLock // one of them does the work of all
	<-inFirst
	write(t.Context(), "small", []driver.Write{person(g.c, 1)})
	giveUp()
	close(goOn)
	verdicts := map[string]bool{}
	for range 4 {
		verdicts[<-ended] = true
	}
	for _, want := range []string{"first <nil>", "third <nil>", "small <nil>"} {
		if !verdicts[want] {
			t.Errorf("not %s: %v", want, verdicts)
		}
	}
	if n := g.stored(); n != 2*largeRows+1 || verdicts["second <nil>"] {
		t.Errorf("%d persons, %v", n, verdicts)
	}
}

// TestGroup_WhoWaitsWithoutEnd is served, and told that it is done once it is.
func TestGroup_WhoWaitsWithoutEnd(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	ctx := context.WithoutCancel(t.Context())
	done := false
	if err := g.db.transact(ctx, ctx, load{documents: 1, rows: 1}, map[partition]bool{}, func(*conn) error { done = true; return nil }); err != nil || !done {
		t.Errorf("got %t, %v, want no error and done", done, err)
	}
}

// inLine waits until so many jobs are in line.
func (g *grouped) inLine(n int) {
	g.t.Helper()
	for deadline := time.Now().Add(time.Minute); len(g.waiting()) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			g.t.Fatalf("%d jobs are in line, want %d", len(g.waiting()), n)
		}
	}
}

// TestGroup_WhoIsPutBackStaysBeforeLargeOnes that came later, however many do.
func TestGroup_WhoIsPutBackStaysBeforeLargeOnes(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	var all sync.WaitGroup
	came, served := 0, 0
	submit := func(rows int, do func(*conn) error) {
		before := len(g.waiting())
		all.Go(func() { _ = g.db.transact(t.Context(), t.Context(), load{rows: rows}, map[partition]bool{}, do) })
		g.inLine(before + 1)
	}
	var large func()
	large = func() {
		came++
		again := came < 50
		submit(largeRows+1, func(*conn) error {
			if again {
				again = false
				submit(1, func(*conn) error { return nil })
				large()
			}
			return nil
		})
	}
	g.db.writerLock <- struct{}{}
	large()
	submit(largeRows+1, func(*conn) error { served = came; return nil })
	<-g.db.writerLock
	all.Wait()
	if served > 4 {
		t.Errorf("the second in line was done after %d others", served)
	}
}

// TestGroup_WhoIsPutBackCanLeave: who stopped waiting while others made room is told so at once.
func TestGroup_WhoIsPutBackCanLeave(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	ctx, cancel := context.WithCancel(t.Context())
	ours := g.add(ctx, nil, 1)
	g.db.queue.add(g.add(t.Context(), nil, 2))
	cancel()
	g.db.queue.requeue([]*job{ours, g.add(t.Context(), nil, 3)})
	select {
	case <-ours.done:
	default:
		t.Error("it waits on")
	}
	if !errors.Is(ours.err, context.Canceled) || len(g.waiting()) != 2 {
		t.Errorf("%v, and %d wait", ours.err, len(g.waiting()))
	}
}

// TestGroup_AForeignLockIsWaitedForOnce, by all who want the writer at that time.
func TestGroup_AForeignLockIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	other := raw(t, g.ws.file.path, "BEGIN IMMEDIATE")
	for i := range 4 {
		g.db.queue.add(g.add(t.Context(), nil, i))
	}
	g.db.writerLock <- struct{}{}
	began := time.Now()
	g.db.runJobs()
	took := time.Since(began)
	if err := other.close(); err != nil {
		t.Error(err)
	}
	if took > 2*lockTimeout {
		t.Errorf("it was waited for as long as %v", took)
	}
	for _, j := range g.jobs {
		if <-j.done; j.err == nil {
			t.Error("stored beside a foreign lock")
		}
	}
}

// TestGroup_NoVerdictStandsOnWhatWasNotStored: who is refused because of another in the same transaction, which then is
// not stored, is told of that.
func TestGroup_NoVerdictStandsOnWhatWasNotStored(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	if err := g.ws.Write(t.Context(), []driver.Write{person(g.c, 50)}); err != nil {
		t.Fatal(err)
	}
	g.db.writerLock <- struct{}{}
	if err := g.db.writer.script("PRAGMA foreign_keys = ON; CREATE TABLE p (a PRIMARY KEY); CREATE TABLE q (a REFERENCES p (a) DEFERRABLE INITIALLY DEFERRED)"); err != nil {
		t.Fatal(err)
	}
	first, second, bad := g.add(t.Context(), nil, 1), g.add(t.Context(), nil, 1), g.add(t.Context(), nil)
	bad.do = func(c *conn) error { return c.exec("INSERT INTO q VALUES (7)") } // which the commit refuses
	for _, j := range g.jobs {
		g.db.queue.add(j)
	}
	g.db.runJobs()
	if dup := new(driver.DuplicateError); first.err == nil || second.err == nil || errors.As(second.err, &dup) || g.stored() != 1 {
		t.Errorf("%v, %v, %v, %d stored", first.err, second.err, bad.err, g.stored())
	}
}

// TestGroup_WhoHasGoneIsNoHead: the others share their transaction, and make room, although the first in line has gone.
func TestGroup_WhoHasGoneIsNoHead(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	gone, leave := context.WithCancel(t.Context())
	leave()
	for i := range 20 {
		ctx := t.Context()
		if i == 0 {
			ctx = gone
		}
		g.add(ctx, nil, i).rows = largeRows + 1
	}
	g.add(t.Context(), nil, 100) // for whom they make room
	for i, j := range g.jobs {
		if i == 20 {
			g.db.queue.turns.Serve(0, 1, 1) // it comes later
		}
		g.db.queue.add(j)
	}
	g.db.writerLock <- struct{}{}
	g.db.runJobs()
	if n := len(g.waiting()); n != 19 || g.stored() != 1 {
		t.Errorf("%d wait, %d were stored", n, g.stored())
	}
	if <-g.jobs[0].done; !errors.Is(g.jobs[0].err, context.Canceled) {
		t.Errorf("got %v, want the error context.Canceled", g.jobs[0].err)
	}
}

// waiting returns the jobs in line.
func (g *grouped) waiting() []*job {
	g.db.queue.mu.Lock()
	defer g.db.queue.mu.Unlock()
	return slices.Clone(g.db.queue.jobs)
}

// TestGroup_ManyWriters: every one of many that write at once reads what it was told is stored, and who gives up
// while it waits is not stored later.
func TestGroup_ManyWriters(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	var writers sync.WaitGroup
	for w := range 32 {
		writers.Go(func() {
			for i := range 10 {
				n := w*10 + i
				if err := g.ws.Write(t.Context(), []driver.Write{person(g.c, n)}); err != nil {
					t.Error(err)
				}
				docs, err := g.ws.Find(t.Context(), driver.Query{Collection: g.c, Where: onField("id", driver.Eq, fmt.Sprintf("%024x", n)), Limit: 1})
				if err != nil || len(docs) != 1 {
					t.Errorf("%d is not there: %v", n, err)
				}
			}
		})
	}
	writers.Wait()
	g.db.writerLock <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := g.ws.Write(ctx, []driver.Write{person(g.c, 999)})
	<-g.db.writerLock
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := g.ws.Write(t.Context(), []driver.Write{person(g.c, 1000)}); err != nil {
		t.Error(err)
	}
	if n := g.stored(); n != 321 {
		t.Errorf("%d persons, want 321", n)
	}
}

// held reports whether a reader lies idle with a snapshot.
func (g *grouped) held() bool {
	g.db.mu.Lock()
	defer g.db.mu.Unlock()
	return len(g.db.idle) > 0 && g.db.idle[0].inSnapshot
}

// TestLogIsWrittenBackWhole although a reader lies idle with a snapshot of before the commit, alone and together.
func TestLogIsWrittenBackWhole(t *testing.T) {
	t.Parallel()
	for name, jobs := range map[string]int{"alone": 1, "together": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t)
			n := 0
			write := func() {
				g.jobs = nil
				for range jobs {
					n++
					g.add(t.Context(), nil, n)
				}
				if jobs > 1 {
					g.db.writerLock <- struct{}{}
					if done := g.db.runGrouped(g.jobs, false); done < jobs {
						t.Fatal("not written together")
					}
					<-g.db.writerLock
					return
				}
				if err := g.db.runAlone(g.jobs[0]); err != nil {
					t.Fatal(err)
				}
			}
			write()
			for !g.held() { // the sweep may have ended it already
				g.stored() // the reader keeps its snapshot for the next question
			}
			write()
			var in, back int64
			if err := g.db.writer.rows("PRAGMA wal_checkpoint(PASSIVE)", nil, func(row *sqlite.Stmt) error {
				in, back = row.ColumnInt64(1), row.ColumnInt64(2)
				return nil
			}); err != nil || in == 0 || in != back {
				t.Errorf("%d of %d pages were written back: %v", back, in, err)
			}
			if got := g.stored(); got != int64(n) {
				t.Errorf("%d documents, want %d", got, n)
			}
		})
	}
}

// TestLogBeginsAnew_BesideALongQuestion: one that goes on holds up no others, whatever the length of the log, which
// begins anew after it.
func TestLogBeginsAnew_BesideALongQuestion(t *testing.T) {
	t.Parallel()
	const most = 64 << 10
	c := people()
	ws := openWorkspace(t, openEngine(t, Options{maxLog: most}), "w", c)
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	long, err := db.reader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log := func() int64 {
		info, err := os.Stat(db.path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	n := 0
	write := func() {
		w := person(c, n)
		w.Doc.Body = fmt.Appendf(nil, `{"x": "%60000d"}`, n)
		if err := ws.Write(t.Context(), []driver.Write{w}); err != nil {
			t.Fatal(err)
		}
		n++
	}
	for log() < 400*most {
		write()
		if !db.truncating.Load() {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		if _, err := ws.Count(ctx, c, driver.Predicate{}); err != nil {
			t.Fatalf("with a log of %d KiB another question waits for the long one: %v", log()>>10, err)
		}
		cancel()
	}
	db.putReader(long, nil)
	for deadline := time.Now().Add(time.Minute); log() >= 400*most; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log has %d KiB", log()>>10)
		}
		write()
	}
}

// TestLogIsMovedBesideTheWriter: what many rows left in the log is in the file before the writer has to see to that.
func TestLogIsMovedBesideTheWriter(t *testing.T) {
	t.Parallel()
	c := people()
	ws := openWorkspace(t, openEngine(t, Options{}), "w", c)
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	size := func() int64 {
		info, err := os.Stat(db.path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before, rows := size(), 0
	for n := 0; rows < checkpointRows; n += 100 {
		var some []driver.Write
		for i := range 100 {
			some = append(some, person(c, n+i))
			rows += some[i].Rows()
		}
		if err := ws.Write(t.Context(), some); err != nil {
			t.Fatal(err)
		}
	}
	db.background.Wait()
	if after := size(); after < before+100<<10 {
		t.Errorf("of %d rows the file has %d KiB more", rows, (after-before)>>10)
	}
}

// TestLogBeginsAnew although there is no moment without somebody who reads, each from before the other ends.
func TestLogBeginsAnew(t *testing.T) {
	inBoth(t, func(t *testing.T, shared bool) { testLogBeginsAnew(t, shared, false) })
}

// TestLogBeginsAnew_LongQuestions: the same for connections that are none of the readers.
func TestLogBeginsAnew_LongQuestions(t *testing.T) {
	inBoth(t, func(t *testing.T, shared bool) { testLogBeginsAnew(t, shared, true) })
}

func testLogBeginsAnew(t *testing.T, shared, long bool) {
	const most = 256 << 10
	c := people()
	ws := openWorkspace(t, openEngine(t, Options{Shared: shared, maxLog: most}), "w", c)
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	ctx, end := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer end()
	var begun atomic.Int64
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				lane := db.readerSlots
				if long {
					lane = db.lanes.long
				}
				if enter(ctx, lane) != nil {
					return
				}
				r, err := db.extraReader(ctx)
				if err != nil {
					<-lane
					return
				}
				_, _, err = r.findByID(ws.engine, recentKey{ws: ws.space.id, t: ws.tables["people"], id: "x"})
				own := begun.Add(1)
				for until := time.Now().Add(10 * time.Millisecond); begun.Load() == own && time.Now().Before(until); {
					time.Sleep(time.Millisecond)
				}
				db.putReader(r, err)
				<-lane
			}
		})
	}
	anew, before := 0, int64(0)
	for n := 0; anew < 3; n += 50 {
		var writes []driver.Write
		for i := range 50 {
			w := person(c, n+i)
			w.Doc.Body = fmt.Appendf(nil, `{"x": "%3000d"}`, n)
			writes = append(writes, w)
		}
		if err := ws.Write(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
		for waited := false; ; waited = true {
			log, err := os.Stat(db.path + "-wal")
			if err != nil || log.Size() > 100*most {
				t.Fatalf("it has %d KiB, and began anew %d times: %v", before>>10, anew, err)
			}
			if log.Size() < before {
				anew++
			}
			before = log.Size()
			if waited {
				break
			}
			for db.truncating.Load() { // a busy machine could write much until then
				time.Sleep(time.Millisecond)
			}
		}
	}
}
