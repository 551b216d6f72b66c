package sqlite

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"tenantry/backends/store/driver"
)

// TestLanes_SlowQuestionsWaitForEachOther: and nothing else waits for them, neither a quick question, nor a document
// by its id, nor a neighbour's. One that got quick again is taken for quick.
func TestLanes_SlowQuestionsWaitForEachOther(t *testing.T) { inBoth(t, testLanes) }

func testLanes(t *testing.T, shared bool) {
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
	ask := func(ws *workspace, wait time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		_, err := ws.Find(ctx, driver.Query{Collection: c, Where: onField("city", driver.Contains, "x"), Limit: 9})
		return err
	}
	s, err := ws.compileQuery(ws.tables["people"], driver.Query{Where: onField("city", driver.Contains, "x"), Limit: 9}, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := question{ws.space.id, shortened(s.sql.String())}
	db.lanes.took(q, slowQuestion)
	var leaves []func()
	e.crowd.seen.Store(time.Now().Add(time.Hour).UnixNano())
	for range min(cap(db.lanes.slow), cap(db.lanes.processors)) {
		leave, err := db.lanes.enter(t.Context(), ws.space, q)
		if err != nil {
			t.Fatal(err)
		}
		r, err := db.reader(t.Context()) // as if it were at work
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, func() { db.putReader(r, nil); leave() })
	}
	if err := ask(ws, 20*time.Millisecond); !errors.Is(err, driver.ErrSlow) {
		t.Errorf("one more slow question: %v", err)
	}
	if err := ask(neighbour, time.Minute); err != nil {
		t.Errorf("the same question of a neighbour, where it was never slow: %v", err)
	}
	if _, err := ws.Count(t.Context(), c, onField("country", driver.Eq, "DE")); err != nil {
		t.Errorf("a quick question: %v", err)
	}
	if _, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: onField("id", driver.Eq, "x"), Limit: 1}); err != nil {
		t.Errorf("a document by its id: %v", err)
	}
	for _, leave := range leaves {
		leave()
	}
	taken := func() bool {
		db.lanes.mu.RLock()
		defer db.lanes.mu.RUnlock()
		return db.lanes.known[q]
	}
	for until := time.Now().Add(time.Minute); taken(); { // the machine may be slow, the question is not
		if err := ask(ws, time.Minute); err != nil || time.Now().After(until) {
			t.Fatalf("with the others gone: %v", err)
		}
	}

	// One workspace leaves a reader to the others.
	for i := range e.opts.Readers - 1 {
		if _, err := db.lanes.enter(t.Context(), ws.space, question{ws.space.id, string(rune('a' + i))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask(ws, 20*time.Millisecond); !errors.Is(err, driver.ErrSlow) {
		t.Errorf("more than its share: %v", err)
	}
	if err := ask(neighbour, time.Minute); err != nil {
		t.Errorf("a neighbour: %v", err)
	}
	known := driver.Query{Collection: c, Where: onField("email", driver.Eq, "p0000001@example.org"), Limit: 1}
	if found, err := ws.Find(t.Context(), known); err != nil || len(found) != 1 {
		t.Errorf("who is known by a name that nobody else has: %d, %v", len(found), err)
	}
	brief, over := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer over()
	if _, err := ws.Find(brief, driver.Query{Collection: c, Where: onField("city", driver.Eq, "City 1"), Limit: 1}); !errors.Is(err, driver.ErrSlow) {
		t.Errorf("one of many that an index finds: %v", err)
	}

	// Its slow questions, which wait for each other, keep no neighbour's from the readers that are left.
	db.lanes.took(q, slowQuestion)
	ctx, end := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer end()
	for range cap(db.lanes.slow) {
		waiting.Go(func() {
			if _, err := db.lanes.enter(ctx, ws.space, q); !errors.Is(err, context.Canceled) {
				t.Errorf("one that waits: %v", err)
			}
		})
	}
	of := question{neighbour.space.id, "slow"}
	nearby, err := neighbour.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer neighbour.file.release()
	nearby.lanes.took(of, slowQuestion)
	for range 50 {
		time.Sleep(time.Millisecond) // until they wait; a slow machine finds less
		brief, cancel := context.WithTimeout(t.Context(), time.Minute)
		leave, err := nearby.lanes.enter(brief, neighbour.space, of)
		cancel()
		if err != nil {
			t.Fatalf("a neighbour's slow question: %v", err)
		}
		leave()
	}
	// Those of all databases leave a processor to the rest, while there is one.
	for range cap(e.processors) {
		e.processors <- struct{}{}
	}
	e.crowd.seen.Store(0)
	if leave, err := nearby.lanes.enter(t.Context(), neighbour.space, of); err != nil {
		t.Errorf("a slow question while nobody else asks: %v", err)
	} else {
		leave()
	}
	e.crowd.seen.Store(time.Now().Add(time.Hour).UnixNano())
	slow, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := nearby.lanes.enter(slow, neighbour.space, of); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow question while others have the processors: %v", err)
	}
	if leave, err := nearby.lanes.enter(t.Context(), neighbour.space, question{neighbour.space.id, "quick"}); err != nil {
		t.Errorf("a quick one: %v", err)
	} else {
		leave()
	}
}

// TestCrowd_IsOfSeveral: one workspace that has a turn with another now and then is no crowd.
func TestCrowd_IsOfSeveral(t *testing.T) {
	t.Parallel()
	var c crowd
	var one, other space
	for range 100 {
		c.note(&one)
	}
	if c.there() {
		t.Error("one workspace is a crowd")
	}
	for range 4 * crowdTurns {
		c.note(&one)
		c.note(&other)
		c.at.Add(-int64(crowdFor)) // they come seldom
	}
	if c.there() {
		t.Error("two that ask now and then are a crowd")
	}
	for range 2 * crowdTurns {
		c.note(&one)
		c.note(&other)
	}
	if !c.there() {
		t.Error("two that ask at once are none")
	}
	c.seen.Add(-int64(crowdFor))
	if c.there() {
		t.Error("they are for ever")
	}
}

// TestLanes_SlowStaysSo until it is quick, not until it took a little less.
func TestLanes_SlowStaysSo(t *testing.T) {
	t.Parallel()
	var l lanes
	q := question{1, "q"}
	for _, one := range []struct {
		took time.Duration
		slow bool
	}{{stillSlow, false}, {slowQuestion, true}, {slowQuestion - 1, true}, {stillSlow, true}, {stillSlow - 1, false}, {slowQuestion - 1, false}} {
		if l.took(q, one.took); l.known[q] != one.slow {
			t.Errorf("after %v: %v", one.took, l.known[q])
		}
	}
}
