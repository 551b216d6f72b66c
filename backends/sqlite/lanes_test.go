package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"tenantry/backends/driver"

	"zombiezen.com/go/sqlite"
)

// runCounting runs a query of the workspace that takes about 12 steps for each of n. The name is its key.
func (w *workspace) runCounting(ctx context.Context, t *testing.T, name string, n int) error {
	t.Helper()
	db, err := w.acquire(ctx)
	if err != nil {
		return err
	}
	defer w.file.release()
	q := queryRun{ctx: ctx, db: db, space: w.space, key: queryKey{w.space.party, name}}
	return wrapError(ctx, "count", q.execute(func(r *reader) error {
		return r.conn.runUntil(ctx, func() error {
			return r.conn.rows(countingSQL, []any{int64(n)}, nil)
		})
	}))
}

const (
	countingSQL = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT count(*) FROM n"
	few         = 4 * tick / 12
	many        = 3 * quickSteps / 12
	endless     = 1 << 50
)

// waitFor waits until a condition is met.
func waitFor(t *testing.T, what string, met func() bool) {
	t.Helper()
	for began := time.Now(); !met(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("timed out waiting: %s", what)
		}
	}
}

// takeProcessors takes all processors for another workspace until give is called.
func (e *Engine) takeProcessors(t *testing.T) (give func()) {
	t.Helper()
	var taken []*turn
	elsewhere := &space{}
	for range e.scheduler.processors {
		at, err := e.scheduler.acquire(t.Context(), elsewhere)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, at)
	}
	return func() {
		for _, at := range taken {
			e.scheduler.release(at)
		}
	}
}

// waitingTurns returns the number of queries that wait for a processor.
func (e *Engine) waitingTurns() int {
	e.scheduler.line.Lock()
	defer e.scheduler.line.Unlock()
	return len(e.scheduler.line.Waiting())
}

// TestLanes_LongQueriesDelayNoOthers: long queries wait for processors and connections, while quick queries, look-ups
// by id and queries of another workspace proceed. Those that wait hold no reader, and leave nothing behind when they
// are cancelled.
func TestLanes_LongQueriesDelayNoOthers(t *testing.T) { inBoth(t, testLongQueriesDelayNoOthers) }

func testLongQueriesDelayNoOthers(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	c := people()
	names := neighbours(2)
	ws, neighbour := openWorkspace(t, e, names[0], c), openWorkspace(t, e, names[1], c)
	fill(t, ws, c, 3)
	fill(t, neighbour, c, 3)
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	give := e.takeProcessors(t)
	ctx, end := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	long := cap(ws.space.long)
	more := 2 * e.opts.Readers
	for i := range long + more { // with different keys, so that none is known to be long
		asking.Go(func() {
			if err := ws.runCounting(ctx, t, fmt.Sprint("long ", i), many); !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled query = %v, want %v", err, context.Canceled)
			}
		})
	}
	waitFor(t, "some have a connection and the others wait for one", func() bool {
		return e.waitingTurns() == long && ws.space.waitingLong.Load() == int64(more)
	})
	waitFor(t, "no reader is taken", func() bool { return len(db.readerSlots) == 0 && len(ws.space.quick) == 0 })
	for what, ask := range map[string]func() error{
		"a quick query": func() error { return ws.runCounting(t.Context(), t, "quick", few) },
		"a document by its id": func() error {
			_, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: onField("id", driver.Eq, "x"), Limit: 1})
			return err
		},
		"a neighbour's quick query": func() error { return neighbour.runCounting(t.Context(), t, "quick", few) },
	} {
		if err := ask(); err != nil {
			t.Errorf("%s = %v, want nil", what, err)
		}
	}
	asking.Go(func() {
		if err := neighbour.runCounting(t.Context(), t, "long", many); err != nil {
			t.Errorf("a neighbour's long query = %v, want nil", err)
		}
	})
	waitFor(t, "the neighbour's query has a connection", func() bool { return e.waitingTurns() == long+1 })
	end()
	waitFor(t, "cancelled queries left nothing behind", func() bool {
		return e.waitingTurns() == 1 && ws.space.waitingLong.Load() == 0 && len(ws.space.long) == 0
	})
	give()
	asking.Wait()
	if len(db.lanes.long) != 0 || len(e.scheduler.running) != 0 || len(db.readerSlots) != 0 {
		t.Errorf("%d connections, %d processors, %d readers are in use, want 0",
			len(db.lanes.long), len(e.scheduler.running), len(db.readerSlots))
	}
	if err := ws.runCounting(t.Context(), t, "long 1", many); err != nil {
		t.Errorf("a long query after the others = %v, want nil", err)
	}
}

// TestLanes_PartsAreScheduledSeparately: the parties of one workspace are scheduled like workspaces in a shared file,
// and a query that is long for one is not for another. A party and its own workspace count as one for contention.
func TestLanes_PartsAreScheduledSeparately(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	c := people()
	control, own := openWorkspace(t, e, "control", c), openWorkspace(t, e, "org-1", c)
	part := func(party string) *workspace { return control.Part(party).(*workspace) }
	ws, neighbour := part("org-1"), part("org-2")
	if part("org-1").space != ws.space || ws.space.party == neighbour.space.party || ws.space.party == control.space.party {
		t.Fatal("parts of different parties share a space, or those of one do not")
	}
	fill(t, ws, c, 3)
	if docs, err := neighbour.Find(t.Context(), driver.Query{Collection: c, Limit: 5}); err != nil || len(docs) != 3 {
		t.Fatalf("Find by another party = %d documents, %v; want 3", len(docs), err)
	}
	if err := ws.runCounting(t.Context(), t, "long", many); err != nil {
		t.Fatal(err)
	}
	lanes, now := &ws.file.db.lanes, time.Now()
	if !lanes.isLong(queryKey{ws.space.party, "long"}, now) || lanes.isLong(queryKey{neighbour.space.party, "long"}, now) {
		t.Error("a query that was long for one party is not remembered, or is for the other")
	}
	give := e.takeProcessors(t)
	ctx, end := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	long := cap(ws.space.long)
	for range long + maxWaitingLong {
		asking.Go(func() { _ = ws.runCounting(ctx, t, "long", many) })
	}
	waitFor(t, "the queue of the party is full", func() bool {
		return e.waitingTurns() == long && ws.space.waitingLong.Load() == maxWaitingLong
	})
	if err := ws.runCounting(t.Context(), t, "long", many); !errors.Is(err, driver.ErrSlow) {
		t.Errorf("one more query = %v, want %v", err, driver.ErrSlow)
	}
	if err := neighbour.runCounting(t.Context(), t, "long", few); err != nil {
		t.Errorf("a quick query of another party = %v, want nil", err)
	}
	asking.Go(func() {
		if err := neighbour.runCounting(t.Context(), t, "long", many); err != nil {
			t.Errorf("a long query of another party = %v, want nil", err)
		}
	})
	waitFor(t, "the other party's query has a connection", func() bool { return e.waitingTurns() == long+1 })
	end()
	give()
	asking.Wait()
	var contention contention
	for range 4 * contentionTurns {
		contention.note(ws.space)
		contention.note(own.space)
	}
	if contention.present() {
		t.Error("a party and its own workspace are in contention")
	}
}

// TestLanes_QuickQueriesLeaveAReader: the quick queries of a workspace never have all readers, and a look-up by a
// unique index may take the last.
func TestLanes_QuickQueriesLeaveAReader(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{Shared: true})
	c := people()
	names := neighbours(2)
	ws, neighbour := openWorkspace(t, e, names[0], c), openWorkspace(t, e, names[1], c)
	fill(t, ws, c, 3)
	for range e.opts.Readers - 1 {
		ws.space.quick <- struct{}{}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := enter(ended, ws.space.quick); !errors.Is(err, context.Canceled) {
		t.Errorf("one more quick query = %v, want it to wait", err)
	}
	if err := neighbour.runCounting(t.Context(), t, "quick", few); err != nil {
		t.Errorf("a neighbour's quick query = %v, want nil", err)
	}
	known := driver.Query{Collection: c, Where: onField("email", driver.Eq, "p0000001@example.org"), Limit: 1}
	if found, err := ws.Find(t.Context(), known); err != nil || len(found) != 1 {
		t.Errorf("Find by a unique index = %d documents, %v; want 1", len(found), err)
	}
	brief, over := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer over()
	of := driver.Query{Collection: c, Where: onField("city", driver.Eq, "City 1"), Limit: 1}
	if _, err := ws.Find(brief, of); !errors.Is(err, driver.ErrSlow) {
		t.Errorf("Find by another index = %v, want %v", err, driver.ErrSlow)
	}
}

// TestLanes_EndlessQueriesShareTheProcessor: endless queries do not keep others from the only processor, neither in
// their file nor in another.
func TestLanes_EndlessQueriesShareTheProcessor(t *testing.T) {
	inBoth(t, testEndlessQueriesShareTheProcessor)
}

func testEndlessQueriesShareTheProcessor(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	e.scheduler.processors = 1
	names := neighbours(2)
	loud, neighbour := openWorkspace(t, e, names[0], people()), openWorkspace(t, e, names[1], people())
	elsewhere := openWorkspace(t, e, "w1", people())
	if shared && elsewhere.file == loud.file {
		t.Fatal("w1 is in the same file")
	}
	ctx, end := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for i := range 3 {
		asking.Go(func() {
			if err := loud.runCounting(ctx, t, fmt.Sprint("endless ", i), endless); !errors.Is(err, context.Canceled) {
				t.Errorf("an endless query = %v, want %v", err, context.Canceled)
			}
		})
	}
	waitFor(t, "endless queries are running", func() bool { return e.waitingTurns() > 0 })
	for _, ws := range []*workspace{neighbour, elsewhere} {
		for range 3 {
			if err := ws.runCounting(t.Context(), t, "long", many); err != nil {
				t.Errorf("a query of another workspace = %v, want nil", err)
			}
		}
	}
	end()
	asking.Wait()
}

// TestLanes_LongMeansMuchWork: queries are classified by their work, not by their time, which is long on a busy
// machine, and the classification expires.
func TestLanes_LongMeansMuchWork(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	ws := openWorkspace(t, e, "acme", people())
	at := time.Now()
	e.scheduler.now = func() time.Time { return at }
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	isLong := func(name string, later time.Duration) bool {
		return db.lanes.isLong(queryKey{ws.space.id, name}, time.Now().Add(later))
	}
	if err := ws.runCounting(t.Context(), t, "work", many); err != nil || !isLong("work", 0) {
		t.Errorf("a query with much work in no time is not long, %v", err)
	}
	if isLong("work", longMemory) {
		t.Error("a query remains long after longMemory")
	}
	e.scheduler.now = func() time.Time { at = at.Add(time.Hour); return at }
	if err := ws.runCounting(t.Context(), t, "held up", few); err != nil || isLong("held up", 0) {
		t.Errorf("a small query that was preempted is long, %v", err)
	}
	if err := ws.runCounting(t.Context(), t, "large documents", 5*few); err != nil || !isLong("large documents", 0) {
		t.Errorf("a query with a few steps that all take long is not long, %v", err)
	}
	if err := ws.runCounting(t.Context(), t, "work", few); err != nil || isLong("work", 0) {
		t.Errorf("a query that was quick the last time is long, %v", err)
	}
	q := queryRun{ctx: t.Context(), db: db, space: ws.space, key: queryKey{ws.space.id, "failed"}}
	db.lanes.record(q.key, quickSteps, time.Now())
	failure := errors.New("the query failed")
	if err := q.execute(func(*reader) error { return failure }); !errors.Is(err, failure) || !isLong("failed", 0) {
		t.Errorf("a long query that failed early is forgotten, %v", err)
	}
	give := e.takeProcessors(t)
	defer give()
	brief, over := context.WithTimeout(t.Context(), 10*time.Second)
	defer over()
	if err := ws.runCounting(brief, t, "held up", few); err != nil {
		t.Errorf("a small query while all processors are in use = %v, want nil", err)
	}
}

// TestLanes_SearchedTextCountsAsWork: the text that instrFold reads counts as work, although a call is one step.
func TestLanes_SearchedTextCountsAsWork(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	ws := openWorkspace(t, e, "acme", people())
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	steps := func(length int) int64 {
		q := queryRun{ctx: t.Context(), db: db, space: ws.space, key: queryKey{0, "search"}}
		const search = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)" +
			" SELECT count(*) FROM n WHERE " + instrFold + "(?1 || i, 'x')"
		text := string(make([]byte, length))
		if err := q.execute(func(r *reader) error { return r.conn.rows(search, []any{text}, nil) }); err != nil {
			t.Fatal(err)
		}
		return q.steps
	}
	if short, long := steps(0), steps(textPerStep*100); long < short+90*1000 {
		t.Errorf("%d steps on short texts, %d on long ones; want %d more", short, long, 90*1000)
	}
}

// TestLanes_WaitingQueriesAreBounded: a long query is refused at once if maxWaitingLong wait already.
func TestLanes_WaitingQueriesAreBounded(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	ws := openWorkspace(t, e, "acme", people())
	for range cap(ws.space.long) {
		ws.space.long <- struct{}{}
	}
	ws.space.waitingLong.Store(maxWaitingLong)
	if err := ws.runCounting(t.Context(), t, "long", many); !errors.Is(err, driver.ErrSlow) || ws.space.waitingLong.Load() != maxWaitingLong {
		t.Errorf("one more query = %v, %d waiting; want %v, %d", err, ws.space.waitingLong.Load(), driver.ErrSlow, maxWaitingLong)
	}
}

// TestLanes_ConnectionsAreBounded: the bounds on connections for long queries of a file, and of all files, hold.
func TestLanes_ConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	ws := openWorkspace(t, e, "acme", people())
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	for _, lane := range []chan struct{}{db.lanes.long, e.long} {
		for range cap(lane) {
			lane <- struct{}{}
		}
		ended, end := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		asking.Go(func() {
			if err := ws.runCounting(ended, t, "cancelled", many); !errors.Is(err, context.Canceled) {
				t.Errorf("a cancelled query = %v, want %v", err, context.Canceled)
			}
		})
		asking.Go(func() {
			if err := ws.runCounting(t.Context(), t, "long", many); err != nil {
				t.Errorf("a long query = %v, want nil", err)
			}
		})
		waitFor(t, "both queries wait", func() bool { return ws.space.waitingLong.Load() == 2 })
		end()
		waitFor(t, "one query is cancelled", func() bool { return ws.space.waitingLong.Load() == 1 })
		for range cap(lane) {
			<-lane
		}
		asking.Wait()
	}
	if len(ws.space.long)+len(db.lanes.long)+len(e.long) != 0 {
		t.Errorf("%d, %d and %d semaphores are held, want 0", len(ws.space.long), len(db.lanes.long), len(e.long))
	}
}

// TestLanes_RowsAreDeliveredOnce: a query that has delivered rows when it becomes long does not start over.
func TestLanes_RowsAreDeliveredOnce(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	ws := openWorkspace(t, e, "acme", people())
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	for range cap(ws.space.long) {
		ws.space.long <- struct{}{}
	}
	var asking sync.WaitGroup
	const rows = 2 * quickSteps / rowSteps
	asking.Go(func() {
		n := 0
		q := queryRun{ctx: t.Context(), db: db, space: ws.space, key: queryKey{0, "rows"}}
		err := q.execute(func(r *reader) error {
			const sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT i FROM n"
			return r.conn.rows(sql, []any{int64(rows)}, func(*sqlite.Stmt) error { n++; return nil })
		})
		if err != nil || n != rows {
			t.Errorf("%d rows, %v; want %d", n, err, rows)
		}
	})
	waitFor(t, "the query waits", func() bool { return ws.space.waitingLong.Load() == 1 })
	<-ws.space.long
	asking.Wait()
}

// TestContentionNeedsSeveralWorkspaces: neither a single workspace nor occasional changes between two are contention.
func TestContentionNeedsSeveralWorkspaces(t *testing.T) {
	t.Parallel()
	var c contention
	var one, other space
	for range 100 {
		c.note(&one)
	}
	if c.present() {
		t.Error("contention of one workspace")
	}
	for range 4 * contentionTurns {
		c.note(&one)
		c.note(&other)
		c.at.Add(-int64(contentionSpan)) // calls are rare
	}
	if c.present() {
		t.Error("contention of two workspaces with rare calls")
	}
	for range 2 * contentionTurns {
		c.note(&one)
		c.note(&other)
	}
	if !c.present() {
		t.Error("no contention of two active workspaces")
	}
	c.seen.Add(-int64(contentionSpan))
	if c.present() {
		t.Error("contention after contentionSpan without calls")
	}
}
