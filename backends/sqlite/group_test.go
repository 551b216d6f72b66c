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

// jobGroup has jobs that write people in one transaction.
type jobGroup struct {
	t    *testing.T
	ws   *workspace
	db   *database
	c    *driver.Collection
	jobs []*job
}

func newGroup(t *testing.T) *jobGroup {
	t.Helper()
	c := people()
	ws := openWorkspace(t, openEngine(t, Options{Dir: t.TempDir()}), "w", c)
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ws.file.release)
	return &jobGroup{t: t, ws: ws, db: db, c: c}
}

// add adds a job that inserts persons and returns err.
func (g *jobGroup) add(ctx context.Context, err error, persons ...int) *job {
	j := &job{
		ctx:        ctx,
		wait:       ctx,
		load:       load{documents: len(persons), rows: len(persons)},
		partitions: map[partition]bool{{g.ws.space.id, "people"}: true},
		done:       make(chan struct{}),
	}
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

// stored returns the number of stored persons.
func (g *jobGroup) stored() int64 {
	g.t.Helper()
	n, err := g.ws.Count(g.t.Context(), g.c, driver.Predicate{})
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

// TestGroup_FailedJobsDoNotAffectOthers: if jobs of a group are refused, fail or are cancelled, the others are stored.
func TestGroup_FailedJobsDoNotAffectOthers(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	failure := errors.New("failed after its changes")
	first, duplicate, failing := g.add(t.Context(), nil, 1, 2), g.add(t.Context(), nil, 3, 1), g.add(t.Context(), failure, 4)
	late, last := g.add(cancelled, nil, 5), g.add(t.Context(), nil, 6)
	g.db.writerLock <- struct{}{}
	if done := g.db.runGrouped(g.jobs, false); done > 0 || g.stored() != 0 {
		t.Errorf("unguarded runGrouped = %d, %d persons stored; want 0, 0", done, g.stored())
	}
	done := g.db.runGrouped(g.jobs, true)
	<-g.db.writerLock
	if done != len(g.jobs) || first.err != nil || last.err != nil {
		t.Errorf("guarded runGrouped = %d, first %v, last %v; want %d without errors", done, first.err, last.err, len(g.jobs))
	}
	var dup *driver.DuplicateError
	if !errors.As(duplicate.err, &dup) || dup.Position != 1 {
		t.Errorf("duplicate: %v, want a duplicate at position 1", duplicate.err)
	}
	if !errors.Is(failing.err, failure) || !errors.Is(late.err, context.Canceled) {
		t.Errorf("failing: %v, late: %v; want %v, %v", failing.err, late.err, failure, context.Canceled)
	}
	if n := g.stored(); n != 3 {
		t.Errorf("%d persons stored, want 1, 2 and 6", n)
	}
}

// TestGroup_FailureWithoutChangesNeedsNoRollback: a job that fails before it changes anything does not make the group
// start over.
func TestGroup_FailureWithoutChangesNeedsNoRollback(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	first, duplicate := g.add(t.Context(), nil, 1), g.add(t.Context(), nil, 1)
	stale, last := g.add(t.Context(), nil), g.add(t.Context(), nil, 2)
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
	done := g.db.runGrouped(g.jobs, false)
	<-g.db.writerLock
	if done != len(g.jobs) || first.err != nil || last.err != nil {
		t.Errorf("runGrouped = %d, first %v, last %v; want %d without errors", done, first.err, last.err, len(g.jobs))
	}
	var dup *driver.DuplicateError
	var conflict *driver.ConflictError
	if !errors.As(duplicate.err, &dup) || !errors.As(stale.err, &conflict) {
		t.Errorf("duplicate: %v, stale: %v; want a duplicate and a conflict", duplicate.err, stale.err)
	}
	if n := g.stored(); n != 2 {
		t.Errorf("%d persons stored, want 1 and 2", n)
	}
}

// TestGroup_InterruptedJobDoesNotAffectOthers: an interrupted statement makes SQLite roll the whole transaction back,
// and the other jobs are stored nevertheless.
func TestGroup_InterruptedJobDoesNotAffectOthers(t *testing.T) {
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
	if first.err != nil || last.err != nil || !errors.Is(wrapError(ctx, "write", long.err), context.Canceled) {
		t.Errorf("first %v, interrupted %v, last %v; want nil, %v, nil", first.err, long.err, last.err, context.Canceled)
	}
	if n := g.stored(); n != 2 {
		t.Errorf("%d persons stored, want 1 and 3", n)
	}
}

// TestGroup_PanicFailsItsOwnWriteOnly: a panic is the error of the write that caused it, and the other writes of the
// group are stored. A panic while documents are read releases the reader, and one in a background job does not stop the
// queue.
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
		t.Errorf("first %v, panicking %v, last %v, %d persons stored; want nil, %v, nil, 2",
			first.err, bad.err, last.err, g.stored(), background.ErrPanic)
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
			t.Errorf("%d persons stored, want %d", stored, 3+n)
		}
	}
	leave()
	done := make(chan struct{})
	g.ws.engine.jobs <- func(context.Context) { close(done) }
	<-done
}

// TestGroup_LargeAndSmallJobsAreSeparate: small jobs do not share transactions with large ones.
func TestGroup_LargeAndSmallJobsAreSeparate(t *testing.T) {
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
		t.Errorf("groups = %v, want %s", got, want)
	}
	many := &jobQueue{}
	for range maxGroup + 1 {
		many.add(&job{partitions: map[partition]bool{}})
	}
	if n := len(many.take()); n != maxGroup {
		t.Errorf("%d jobs in a group, want %d", n, maxGroup)
	}
}

// TestGroup_LargeJobsYieldToOthers: a group of large jobs ends after the running one if another job waits, and the rest
// are requeued. A job whose wait has ended by then is not stored.
func TestGroup_LargeJobsYieldToOthers(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	large := func(i int) (batch []driver.Write) {
		for n := range largeRows {
			batch = append(batch, person(g.c, 1000*i+n))
		}
		return batch
	}
	g.db.writerLock <- struct{}{} // until all are queued
	ended := make(chan string, 4)
	write := func(ctx context.Context, name string, batch []driver.Write) {
		before := len(g.waiting())
		go func() {
			err := g.ws.Write(ctx, batch)
			ended <- fmt.Sprint(name, " ", err)
		}()
		for deadline := time.Now().Add(time.Minute); len(g.waiting()) == before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the job was not queued")
			}
		}
	}
	write(t.Context(), "first", large(1))
	cancelled, cancel := context.WithCancel(t.Context())
	write(cancelled, "second", large(2))
	write(t.Context(), "third", large(3))
	inFirst, goOn := make(chan struct{}), make(chan struct{})
	first := g.waiting()[0]
	do := first.do
	first.do = func(c *conn) error {
		close(inFirst)
		<-goOn
		return do(c)
	}
	<-g.db.writerLock // one of the callers runs all jobs
	<-inFirst
	write(t.Context(), "small", []driver.Write{person(g.c, 1)})
	cancel()
	close(goOn)
	results := map[string]bool{}
	for range 4 {
		results[<-ended] = true
	}
	for _, want := range []string{"first <nil>", "third <nil>", "small <nil>"} {
		if !results[want] {
			t.Errorf("results = %v, want %s", results, want)
		}
	}
	if n := g.stored(); n != 2*largeRows+1 || results["second <nil>"] {
		t.Errorf("%d persons stored, results %v; want %d and a failure of the second", n, results, 2*largeRows+1)
	}
}

// TestGroup_ServesContextWithoutEnd: a job whose context never ends is run, and transact returns.
func TestGroup_ServesContextWithoutEnd(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	ctx := context.WithoutCancel(t.Context())
	done := false
	do := func(*conn) error { done = true; return nil }
	if err := g.db.transact(ctx, ctx, load{documents: 1, rows: 1}, map[partition]bool{}, do); err != nil || !done {
		t.Errorf("transact = %v, done %t; want nil, true", err, done)
	}
}

// awaitQueued waits until the queue has n jobs.
func (g *jobGroup) awaitQueued(n int) {
	g.t.Helper()
	for deadline := time.Now().Add(time.Minute); len(g.waiting()) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			g.t.Fatalf("%d jobs are queued, want %d", len(g.waiting()), n)
		}
	}
}

// TestGroup_RequeuedJobsKeepTheirPlace: a large job that was requeued precedes large jobs that came later, however
// many.
func TestGroup_RequeuedJobsKeepTheirPlace(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	var all sync.WaitGroup
	came, served := 0, 0
	submit := func(rows int, do func(*conn) error) {
		before := len(g.waiting())
		all.Go(func() { _ = g.db.transact(t.Context(), t.Context(), load{rows: rows}, map[partition]bool{}, do) })
		g.awaitQueued(before + 1)
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
		t.Errorf("the second job ran after %d large ones had come, want at most 4", served)
	}
}

// TestGroup_RequeuedJobCanBeCancelled: a job whose context ended before it was requeued ends with that error.
func TestGroup_RequeuedJobCanBeCancelled(t *testing.T) {
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
		t.Error("the cancelled job was queued again")
	}
	if !errors.Is(ours.err, context.Canceled) || len(g.waiting()) != 2 {
		t.Errorf("cancelled job: %v, %d jobs queued; want %v, 2", ours.err, len(g.waiting()), context.Canceled)
	}
}

// TestGroup_WaitsForForeignLockOnce: the jobs of a group wait together for the lock of another process.
func TestGroup_WaitsForForeignLockOnce(t *testing.T) {
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
		t.Errorf("the group waited for %v, want at most %v", took, 2*lockTimeout)
	}
	for _, j := range g.jobs {
		if <-j.done; j.err == nil {
			t.Error("a job succeeded under a foreign lock, want an error")
		}
	}
}

// TestGroup_FailedCommitFailsAllJobs: if the commit fails, a job that was refused because of another in the same
// transaction gets the error of the commit, because the other is not stored either.
func TestGroup_FailedCommitFailsAllJobs(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	if err := g.ws.Write(t.Context(), []driver.Write{person(g.c, 50)}); err != nil {
		t.Fatal(err)
	}
	g.db.writerLock <- struct{}{}
	if err := g.db.writer.script("PRAGMA foreign_keys = ON; CREATE TABLE p (a PRIMARY KEY);" +
		" CREATE TABLE q (a REFERENCES p (a) DEFERRABLE INITIALLY DEFERRED)"); err != nil {
		t.Fatal(err)
	}
	first, second, bad := g.add(t.Context(), nil, 1), g.add(t.Context(), nil, 1), g.add(t.Context(), nil)
	bad.do = func(c *conn) error { return c.exec("INSERT INTO q VALUES (7)") } // fails the commit
	for _, j := range g.jobs {
		g.db.queue.add(j)
	}
	g.db.runJobs()
	if dup := new(driver.DuplicateError); first.err == nil || second.err == nil || errors.As(second.err, &dup) || g.stored() != 1 {
		t.Errorf("errors %v, %v, %v, %d stored; want errors of the commit, 1", first.err, second.err, bad.err, g.stored())
	}
}

// TestGroup_CancelledHeadDoesNotSplitTheGroup: if the first job is cancelled, the others still form a group, and yield
// to a waiting small job.
func TestGroup_CancelledHeadDoesNotSplitTheGroup(t *testing.T) {
	t.Parallel()
	g := newGroup(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 20 {
		ctx := t.Context()
		if i == 0 {
			ctx = cancelled
		}
		g.add(ctx, nil, i).rows = largeRows + 1
	}
	g.add(t.Context(), nil, 100) // the small job
	for i, j := range g.jobs {
		if i == 20 {
			g.db.queue.turns.Serve(0, 1, 1) // so that it starts after the others
		}
		g.db.queue.add(j)
	}
	g.db.writerLock <- struct{}{}
	g.db.runJobs()
	if n := len(g.waiting()); n != 19 || g.stored() != 1 {
		t.Errorf("%d jobs queued, %d stored; want 19, 1", n, g.stored())
	}
	if <-g.jobs[0].done; !errors.Is(g.jobs[0].err, context.Canceled) {
		t.Errorf("cancelled job: %v, want %v", g.jobs[0].err, context.Canceled)
	}
}

// waiting returns the queued jobs.
func (g *jobGroup) waiting() []*job {
	g.db.queue.mu.Lock()
	defer g.db.queue.mu.Unlock()
	return slices.Clone(g.db.queue.jobs)
}

// TestGroup_ManyWriters: each of many concurrent writers finds its acknowledged documents, and a write whose deadline
// passes while it waits is not stored later.
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
					t.Errorf("Find of person %d = %d documents, %v; want 1", n, len(docs), err)
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
		t.Errorf("Write while the writer is in use = %v, want %v", err, context.DeadlineExceeded)
	}
	if err := g.ws.Write(t.Context(), []driver.Write{person(g.c, 1000)}); err != nil {
		t.Error(err)
	}
	if n := g.stored(); n != 321 {
		t.Errorf("%d persons stored, want 321", n)
	}
}

// holdsSnapshot reports whether an idle reader has a snapshot.
func (g *jobGroup) holdsSnapshot() bool {
	g.db.mu.Lock()
	defer g.db.mu.Unlock()
	return len(g.db.idle) > 0 && g.db.idle[0].inSnapshot
}

// TestCommitAllowsFullCheckpoint: the log can be checkpointed completely after a commit, although an idle reader had a
// snapshot from before it. This holds for single jobs and groups.
func TestCommitAllowsFullCheckpoint(t *testing.T) {
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
						t.Fatalf("runGrouped = %d, want %d", done, jobs)
					}
					<-g.db.writerLock
					return
				}
				if err := g.db.runAlone(g.jobs[0]); err != nil {
					t.Fatal(err)
				}
			}
			write()
			for !g.holdsSnapshot() { // the sweep may have ended it already
				g.stored() // the reader keeps its snapshot for the next query
			}
			write()
			var in, back int64
			if err := g.db.writer.rows("PRAGMA wal_checkpoint(PASSIVE)", nil, func(row *sqlite.Stmt) error {
				in, back = row.ColumnInt64(1), row.ColumnInt64(2)
				return nil
			}); err != nil || in == 0 || in != back {
				t.Errorf("%d of %d pages were checkpointed, %v; want all", back, in, err)
			}
			if got := g.stored(); got != int64(n) {
				t.Errorf("%d persons stored, want %d", got, n)
			}
		})
	}
}

// TestTruncationDoesNotBlockOnLongQuery: while a long query keeps the log from being truncated, other queries proceed,
// however long the log gets, and it is truncated afterwards.
func TestTruncationDoesNotBlockOnLongQuery(t *testing.T) {
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
			t.Fatalf("Count with a log of %d KiB during a long query = %v, want nil", log()>>10, err)
		}
		cancel()
	}
	db.putReader(long, nil)
	for deadline := time.Now().Add(time.Minute); log() >= 400*most; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log has %d KiB, want less than %d", log()>>10, 400*most>>10)
		}
		write()
	}
}

// TestLogIsCheckpointedInBackground: after checkpointRows rows the log is checkpointed into the file, before the writer
// has to do it.
func TestLogIsCheckpointedInBackground(t *testing.T) {
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
		t.Errorf("the file grew by %d KiB after %d rows, want at least 100", (after-before)>>10, rows)
	}
}

// TestLogIsTruncatedUnderConstantReads: the log is truncated although overlapping readers leave no moment without one.
func TestLogIsTruncatedUnderConstantReads(t *testing.T) {
	inBoth(t, func(t *testing.T, shared bool) { testLogIsTruncated(t, shared, false) })
}

// TestLogIsTruncatedUnderLongQueries: the same for the extra connections of long queries.
func TestLogIsTruncatedUnderLongQueries(t *testing.T) {
	inBoth(t, func(t *testing.T, shared bool) { testLogIsTruncated(t, shared, true) })
}

func testLogIsTruncated(t *testing.T, shared, long bool) {
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
	truncations, before := 0, int64(0)
	for n := 0; truncations < 3; n += 50 {
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
				t.Fatalf("the log has %d KiB after %d truncations, %v; want 3 truncations", before>>10, truncations, err)
			}
			if log.Size() < before {
				truncations++
			}
			before = log.Size()
			if waited {
				break
			}
			for db.truncating.Load() { // on a busy machine the log could grow much meanwhile
				time.Sleep(time.Millisecond)
			}
		}
	}
}
