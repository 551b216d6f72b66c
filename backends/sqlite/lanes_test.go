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

// asked is a question of a workspace that does about 12 steps for each of n, told from others by its name.
func (w *workspace) asked(ctx context.Context, t *testing.T, name string, n int) error {
	t.Helper()
	db, err := w.acquire(ctx)
	if err != nil {
		return err
	}
	defer w.file.release()
	v := visit{ctx: ctx, db: db, space: w.space, question: question{w.space.party, name}}
	return failed(ctx, "count", v.answer(func(r *reader) error {
		return r.conn.until(ctx, func() error {
			return r.conn.rows(counting, []any{int64(n)}, nil)
		})
	}))
}

const (
	counting = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT count(*) FROM n"
	few      = 4 * tick / 12
	many     = 3 * quickSteps / 12
	endless  = 1 << 50
)

// waitFor waits for an event that something else brings about.
func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("it never came that %s", what)
		}
	}
}

// takeProcessors has all processors, for a workspace elsewhere, until the returned function is called.
func (e *Engine) takeProcessors(t *testing.T) (give func()) {
	t.Helper()
	var taken []*turn
	elsewhere := &space{}
	for range e.turns.processors {
		at, err := e.turns.enter(t.Context(), elsewhere)
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, at)
	}
	return func() {
		for _, at := range taken {
			e.turns.leave(at)
		}
	}
}

func (e *Engine) waitingTurns() int {
	e.turns.line.Lock()
	defer e.turns.line.Unlock()
	return len(e.turns.line.Waiting())
}

// TestLanes_LongQuestionsWait for a turn and for each other, and nothing else waits for them: neither a quick question,
// nor a document by its id, nor a neighbour's. Those that wait for a connection have none, and leave no trace when
// their caller has gone.
func TestLanes_LongQuestionsWait(t *testing.T) { inBoth(t, testLongQuestionsWait) }

func testLongQuestionsWait(t *testing.T, shared bool) {
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
	for i := range long + more { // each another question, so that none is known to be long
		asking.Go(func() {
			if err := ws.asked(ctx, t, fmt.Sprint("long ", i), many); !errors.Is(err, context.Canceled) {
				t.Errorf("a question whose caller has gone: %v", err)
			}
		})
	}
	waitFor(t, "some have a connection and the others wait for one", func() bool {
		return e.waitingTurns() == long && ws.space.waiting.Load() == int64(more)
	})
	waitFor(t, "no reader is taken", func() bool { return len(db.reading) == 0 && len(ws.space.asking) == 0 })
	for what, ask := range map[string]func() error{
		"a quick question": func() error { return ws.asked(t.Context(), t, "quick", few) },
		"a document by its id": func() error {
			_, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: onField("id", driver.Eq, "x"), Limit: 1})
			return err
		},
		"a neighbour's quick question": func() error { return neighbour.asked(t.Context(), t, "quick", few) },
	} {
		if err := ask(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	asking.Go(func() {
		if err := neighbour.asked(t.Context(), t, "long", many); err != nil {
			t.Errorf("a neighbour's long question: %v", err)
		}
	})
	waitFor(t, "the neighbour's question has a connection", func() bool { return e.waitingTurns() == long+1 })
	end()
	waitFor(t, "those whose callers have gone left no trace", func() bool {
		return e.waitingTurns() == 1 && ws.space.waiting.Load() == 0 && len(ws.space.long) == 0
	})
	give()
	asking.Wait()
	if len(db.lanes.long) != 0 || len(e.turns.running) != 0 || len(db.reading) != 0 {
		t.Errorf("%d connections, %d processors, %d readers are taken", len(db.lanes.long), len(e.turns.running), len(db.reading))
	}
	if err := ws.asked(t.Context(), t, "long 1", many); err != nil {
		t.Errorf("with the others gone: %v", err)
	}
}

// TestLanes_PartsOfOneWorkspace: parties that have parts of one workspace wait for each other no more than neighbours
// in a shared file, and what is long for one is not for the other. Together with what it has besides, a party is one.
func TestLanes_PartsOfOneWorkspace(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	c := people()
	control, own := openWorkspace(t, e, "control", c), openWorkspace(t, e, "org-1", c)
	part := func(party string) *workspace { return control.Part(party).(*workspace) }
	ws, neighbour := part("org-1"), part("org-2")
	if part("org-1").space != ws.space || ws.space.party == neighbour.space.party || ws.space.party == control.space.party {
		t.Fatal("parties are not told from each other")
	}
	fill(t, ws, c, 3)
	if docs, err := neighbour.Find(t.Context(), driver.Query{Collection: c, Limit: 5}); err != nil || len(docs) != 3 {
		t.Fatalf("%d documents of the same workspace, %v", len(docs), err)
	}
	if err := ws.asked(t.Context(), t, "long", many); err != nil {
		t.Fatal(err)
	}
	if db := ws.file.db; !db.lanes.isLong(question{ws.space.party, "long"}, time.Now()) || db.lanes.isLong(question{neighbour.space.party, "long"}, time.Now()) {
		t.Error("what was long for one is not, or is for the other")
	}
	give := e.takeProcessors(t)
	ctx, end := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	long := cap(ws.space.long)
	for range long + maxWaiting {
		asking.Go(func() { _ = ws.asked(ctx, t, "long", many) })
	}
	waitFor(t, "no more of the party may wait", func() bool { return e.waitingTurns() == long && ws.space.waiting.Load() == maxWaiting })
	if err := ws.asked(t.Context(), t, "long", many); !errors.Is(err, driver.ErrSlow) {
		t.Errorf("one more: %v", err)
	}
	if err := neighbour.asked(t.Context(), t, "long", few); err != nil {
		t.Errorf("the other's quick question: %v", err)
	}
	asking.Go(func() {
		if err := neighbour.asked(t.Context(), t, "long", many); err != nil {
			t.Errorf("the other's long question: %v", err)
		}
	})
	waitFor(t, "the other's question has a connection", func() bool { return e.waitingTurns() == long+1 })
	end()
	give()
	asking.Wait()
	var contention contention
	for range 4 * contentionTurns {
		contention.note(ws.space)
		contention.note(own.space)
	}
	if contention.present() {
		t.Error("a party and its part are a contention")
	}
}

// TestLanes_KeepsAReader: a workspace's quick questions never have all readers, and a document known by a unique index
// takes the last.
func TestLanes_KeepsAReader(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{Shared: true})
	c := people()
	names := neighbours(2)
	ws, neighbour := openWorkspace(t, e, names[0], c), openWorkspace(t, e, names[1], c)
	fill(t, ws, c, 3)
	for range e.opts.Readers - 1 {
		ws.space.asking <- struct{}{}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := into(ended, ws.space.asking); !errors.Is(err, context.Canceled) {
		t.Errorf("more than its share: %v", err)
	}
	if err := neighbour.asked(t.Context(), t, "quick", few); err != nil {
		t.Errorf("a neighbour: %v", err)
	}
	known := driver.Query{Collection: c, Where: onField("email", driver.Eq, "p0000001@example.org"), Limit: 1}
	if found, err := ws.Find(t.Context(), known); err != nil || len(found) != 1 {
		t.Errorf("who is known by a name that nobody else has: %d, %v", len(found), err)
	}
	brief, over := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer over()
	of := driver.Query{Collection: c, Where: onField("city", driver.Eq, "City 1"), Limit: 1}
	if _, err := ws.Find(brief, of); !errors.Is(err, driver.ErrSlow) {
		t.Errorf("one of many that an index finds: %v", err)
	}
}

// TestLanes_OneProcessor: a question that never ends keeps nobody from the only processor, neither in its file nor in
// another.
func TestLanes_OneProcessor(t *testing.T) { inBoth(t, testOneProcessor) }

func testOneProcessor(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared})
	e.turns.processors = 1
	names := neighbours(2)
	loud, neighbour, away := openWorkspace(t, e, names[0], people()), openWorkspace(t, e, names[1], people()), openWorkspace(t, e, "w1", people())
	if shared && away.file == loud.file {
		t.Fatal("w1 lies in the same file")
	}
	ctx, end := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for i := range 3 {
		asking.Go(func() {
			if err := loud.asked(ctx, t, fmt.Sprint("endless ", i), endless); !errors.Is(err, context.Canceled) {
				t.Errorf("a question whose caller has gone: %v", err)
			}
		})
	}
	waitFor(t, "they ask", func() bool { return e.waitingTurns() > 0 })
	for _, ws := range []*workspace{neighbour, away} {
		for range 3 {
			if err := ws.asked(t.Context(), t, "long", many); err != nil {
				t.Errorf("a neighbour: %v", err)
			}
		}
	}
	end()
	asking.Wait()
}

// TestLanes_JudgedByWork: and not by time, which a busy machine makes long, nor for ever.
func TestLanes_JudgedByWork(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	ws := openWorkspace(t, e, "acme", people())
	at := time.Now()
	e.turns.now = func() time.Time { return at }
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	isLong := func(name string, later time.Duration) bool {
		return db.lanes.isLong(question{ws.space.id, name}, time.Now().Add(later))
	}
	if err := ws.asked(t.Context(), t, "work", many); err != nil || !isLong("work", 0) {
		t.Errorf("much work in no time is not taken for long: %v", err)
	}
	if isLong("work", longFor) {
		t.Error("it is long for ever")
	}
	e.turns.now = func() time.Time { at = at.Add(time.Hour); return at }
	if err := ws.asked(t.Context(), t, "held up", few); err != nil || isLong("held up", 0) {
		t.Errorf("a small question that was held up is taken for long: %v", err)
	}
	if err := ws.asked(t.Context(), t, "large documents", 5*few); err != nil || !isLong("large documents", 0) {
		t.Errorf("few steps that all take long are not taken for long: %v", err)
	}
	if err := ws.asked(t.Context(), t, "work", few); err != nil || isLong("work", 0) {
		t.Errorf("what was quick this time is taken for long: %v", err)
	}
	v := visit{ctx: t.Context(), db: db, space: ws.space, question: question{ws.space.id, "failed"}}
	db.lanes.did(v.question, quickSteps, time.Now())
	fault := errors.New("it failed")
	if err := v.answer(func(*reader) error { return fault }); !errors.Is(err, fault) || !isLong("failed", 0) {
		t.Errorf("a question that ended early is taken for quick: %v", err)
	}
	give := e.takeProcessors(t)
	defer give()
	brief, over := context.WithTimeout(t.Context(), 10*time.Second)
	defer over()
	if err := ws.asked(brief, t, "held up", few); err != nil {
		t.Errorf("a small question while all processors are taken: %v", err)
	}
}

// TestLanes_Searched: what instrFold reads counts as work, since it is one step however long the text is.
func TestLanes_Searched(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	ws := openWorkspace(t, e, "acme", people())
	db, err := ws.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ws.file.release()
	steps := func(length int) int64 {
		v := visit{ctx: t.Context(), db: db, space: ws.space, question: question{0, "search"}}
		const search = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT count(*) FROM n WHERE " + instrFold + "(?1 || i, 'x')"
		if err := v.answer(func(r *reader) error { return r.conn.rows(search, []any{string(make([]byte, length))}, nil) }); err != nil {
			t.Fatal(err)
		}
		return v.steps
	}
	if short, long := steps(0), steps(textPerStep*100); long < short+90*1000 {
		t.Errorf("%d steps over short texts, %d over long ones", short, long)
	}
}

// TestLanes_LineIsBounded: one more long question than may wait is refused at once.
func TestLanes_LineIsBounded(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	ws := openWorkspace(t, e, "acme", people())
	for range cap(ws.space.long) {
		ws.space.long <- struct{}{}
	}
	ws.space.waiting.Store(maxWaiting)
	if err := ws.asked(t.Context(), t, "long", many); !errors.Is(err, driver.ErrSlow) || ws.space.waiting.Load() != maxWaiting {
		t.Errorf("%v, %d wait", err, ws.space.waiting.Load())
	}
}

// TestLanes_ConnectionsAreBounded: of a file, and of all files.
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
			if err := ws.asked(ended, t, "given up", many); !errors.Is(err, context.Canceled) {
				t.Errorf("one more, whose caller has gone: %v", err)
			}
		})
		asking.Go(func() {
			if err := ws.asked(t.Context(), t, "long", many); err != nil {
				t.Errorf("one more: %v", err)
			}
		})
		waitFor(t, "both wait", func() bool { return ws.space.waiting.Load() == 2 })
		end()
		waitFor(t, "one has gone", func() bool { return ws.space.waiting.Load() == 1 })
		for range cap(lane) {
			<-lane
		}
		asking.Wait()
	}
	if len(ws.space.long)+len(db.lanes.long)+len(e.long) != 0 {
		t.Error("places are lost")
	}
}

// TestLanes_RowsAreGivenOnce: a question that has given rows when it turns out to be long goes on where it was.
func TestLanes_RowsAreGivenOnce(t *testing.T) {
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
		v := visit{ctx: t.Context(), db: db, space: ws.space, question: question{0, "rows"}}
		err := v.answer(func(r *reader) error {
			return r.conn.rows("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) SELECT i FROM n", []any{int64(rows)},
				func(*sqlite.Stmt) error { n++; return nil })
		})
		if err != nil || n != rows {
			t.Errorf("%d of %d rows, %v", n, rows, err)
		}
	})
	waitFor(t, "it waits", func() bool { return ws.space.waiting.Load() == 1 })
	<-ws.space.long
	asking.Wait()
}

// TestContention_IsOfSeveral: one workspace that has a turn with another now and then is no contention.
func TestContention_IsOfSeveral(t *testing.T) {
	t.Parallel()
	var c contention
	var one, other space
	for range 100 {
		c.note(&one)
	}
	if c.present() {
		t.Error("one workspace is a contention")
	}
	for range 4 * contentionTurns {
		c.note(&one)
		c.note(&other)
		c.at.Add(-int64(contentionSpan)) // they come seldom
	}
	if c.present() {
		t.Error("two that ask now and then are a contention")
	}
	for range 2 * contentionTurns {
		c.note(&one)
		c.note(&other)
	}
	if !c.present() {
		t.Error("two that ask at once are none")
	}
	c.seen.Add(-int64(contentionSpan))
	if c.present() {
		t.Error("they are for ever")
	}
}
