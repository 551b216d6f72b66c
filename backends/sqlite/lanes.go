package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/cache"
)

// The work of a query is counted in steps of SQLite's virtual machine, which take 20 to 60 ns each. Time is no measure,
// because on a busy machine even the smallest query takes long.
const (
	// tick is the number of steps after which the progress of a query is examined.
	tick = 512
	// rowSteps is the number of steps that a result row counts, textPerStep the number of bytes that are searched in the
	// time of one step.
	rowSteps    = 100
	textPerStep = 32
	// quickSteps is the work, 1 to 3 ms, that a query may do without a turn on a processor.
	quickSteps = 50_000
	// A tick that takes slowTick or more has read large documents or was preempted. It counts slowSteps, few enough that
	// a small query, which is preempted a few times at most, remains quick.
	slowTick  = time.Millisecond
	slowSteps = quickSteps / 16
)

const (
	// maxKnownLong bounds the queries of a database that are remembered as long, longMemory how long one is remembered
	// since it last ran.
	maxKnownLong = 1024
	longMemory   = time.Minute
	// maxWaitingLong bounds the long queries of a workspace that wait for a connection.
	maxWaitingLong = 64
	// longPerReader is the number of connections for long queries of a file, for each reader.
	longPerReader = 4
	// defaultLong is the default of Options.Long.
	defaultLong = 64
	// There is contention if calls have changed from one workspace to another contentionTurns times within
	// contentionSpan, and it lasts for that span. A single active workspace alternates with the control workspace, but
	// less often.
	contentionTurns = 8
	contentionSpan  = time.Second
)

// lanes distribute the connections of a database among queries.
//
// A quick query takes one of the readers; a workspace never has all of them. A query that was long the last time, or
// turns out to be long, has an extra connection and proceeds in turns (see scheduler). A workspace has at most half as
// many of these as there are readers, a file longPerReader times the readers, and all files together Options.Long. A
// look-up by id or another unique index waits in no lane, so that host and key look-ups stay fast under heavy queries.
type lanes struct {
	long chan struct{} // a semaphore of long queries that have a connection

	recentlyLong cache.Few[queryKey, time.Time] // queries that were long the last time, and when that was
}

// queryKey identifies the statement of a party.
type queryKey struct {
	party int64
	sql   string
}

// indexBuild takes the place of the statement in the queryKey of queries that build an index.
const indexBuild = "index"

// errTooManyLong is returned if maxWaitingLong queries of the workspace wait already.
var errTooManyLong = fmt.Errorf("%w: %d long queries of the workspace are waiting already", driver.ErrSlow, maxWaitingLong)

// errBecameLong ends a query that turned out to be long while no connection for long queries is free. The query
// releases its reader, and starts over once there is a connection.
var errBecameLong = errors.New("the query is long")

// newLane returns a semaphore of size n, at least 1. It is no fairqueue.Queue: each workspace has lanes of its own,
// which need no turns, and every quick query takes one. A channel costs 67 ns, a queue 99.
func newLane(n int) chan struct{} { return make(chan struct{}, max(1, n)) }

// queryRun is the execution of one query in the lanes. One goroutine uses it at a time.
type queryRun struct {
	ctx    context.Context
	db     *database
	space  *space
	key    queryKey
	exempt bool // it waits in no lane as long as it is quick

	reader    *reader // nil before and after the execution
	inQuick   bool    // it holds space.quick
	inLong    bool    // it holds longLanes
	turn      *turn   // nil if it has no processor
	steps     int64
	delivered bool          // a row of the result was delivered
	began     time.Time     // when it got its reader; zero before
	lastTick  time.Time     // when the last tick ended
	waited    time.Duration // total wait for turns
	err       error         // why step ended the statement
}

// execute calls do with a reader whose snapshot has every acknowledged write, and again if the query becomes long
// before it has delivered a row. Statements that do runs on the connection count as the work of the query. Errors: the
// context's own, errTooManyLong, and those of do.
func (q *queryRun) execute(do func(*reader) error) error {
	long := !q.exempt && q.db.lanes.isLong(q.key, time.Now())
	for {
		err := q.attempt(long, do)
		if !errors.Is(err, errBecameLong) {
			return err
		}
		long = true
	}
}

// attempt is one attempt of execute, which starts in the long lane or, unless the query is exempt, in the quick one.
func (q *queryRun) attempt(long bool, do func(*reader) error) (err error) {
	defer q.release()
	q.began, q.steps, q.waited, q.err = time.Time{}, 0, 0, nil
	switch {
	case long:
		if err = q.waitForLong(); err == nil {
			err = q.takeProcessor()
		}
	case !q.exempt:
		if err = enter(q.ctx, q.space.quick); err == nil {
			q.inQuick = true
		}
	}
	if err != nil {
		return err
	}
	err = q.db.withConn(q.ctx, !q.inLong, func(r *reader) error {
		q.began = q.db.engine.scheduler.now()
		q.lastTick = q.began
		q.reader, r.conn.run = r, q
		defer func() { q.reader, r.conn.run = nil, nil }()
		return do(r)
	})
	if err == nil || q.steps >= quickSteps { // a failed query that did less may be long nevertheless
		q.db.lanes.record(q.key, q.steps, time.Now())
	}
	if q.err != nil {
		return q.err
	}
	return err
}

// release releases everything that the query holds.
func (q *queryRun) release() {
	if q.turn != nil {
		q.db.engine.scheduler.release(q.turn)
		q.turn = nil
	}
	if q.inLong {
		leaveAll(q.longLanes())
		q.inLong = false
	}
	if q.inQuick {
		<-q.space.quick
		q.inQuick = false
	}
}

// longLanes returns the semaphores of a long query: those of its workspace, its file and the engine. They are acquired
// in this order, so that only a few queries of each workspace wait for the latter ones.
func (q *queryRun) longLanes() []chan struct{} {
	return []chan struct{}{q.space.long, q.db.lanes.long, q.db.engine.long}
}

// waitForLong acquires the semaphores of a long query. It waits if necessary.
func (q *queryRun) waitForLong() error {
	if q.tryLong() {
		return nil
	}
	defer q.space.waitingLong.Add(-1)
	if q.space.waitingLong.Add(1) > maxWaitingLong {
		return errTooManyLong
	}
	places := q.longLanes()
	for i, lane := range places {
		if err := enter(q.ctx, lane); err != nil {
			leaveAll(places[:i])
			return err
		}
	}
	q.inLong = true
	return nil
}

// tryLong acquires the semaphores of a long query and returns true, if all are free.
func (q *queryRun) tryLong() bool {
	places := q.longLanes()
	for i, lane := range places {
		if !tryEnter(lane) {
			leaveAll(places[:i])
			return false
		}
	}
	q.inLong = true
	return true
}

// step is called after each tick of the statement, with additional steps to count. It reports whether the statement
// must end, for the reason in q.err.
func (q *queryRun) step(more int64) (end bool) {
	now := q.db.engine.scheduler.now()
	if q.steps += tick + more; now.Sub(q.lastTick) >= slowTick {
		q.steps += slowSteps
	}
	q.lastTick = now
	if q.steps < quickSteps && !q.inLong {
		return false
	}
	if !q.inLong {
		q.err = q.moveToLong()
	}
	if q.err == nil {
		q.err = q.takeProcessor()
	}
	q.lastTick = q.db.engine.scheduler.now()
	return q.err != nil
}

// moveToLong moves the query from the quick to the long lane. Error: errBecameLong if the query should start over.
func (q *queryRun) moveToLong() error {
	if !q.tryLong() {
		if !q.delivered {
			return errBecameLong
		}
		if err := q.waitForLong(); err != nil {
			return err
		}
	}
	if q.inQuick {
		<-q.space.quick
		q.inQuick = false
	}
	q.db.releaseSlot(q.reader)
	return nil
}

// takeProcessor waits for a turn on a processor. If the query has one, it queues for the next when its slice is over.
func (q *queryRun) takeProcessor() (err error) {
	turns := &q.db.engine.scheduler
	now := turns.now()
	switch {
	case q.turn == nil:
		q.turn, err = turns.acquire(q.ctx, q.space)
	case now.Sub(q.turn.since) < slice:
		return nil
	default:
		q.db.engine.contention.note(q.space)
		runtime.Gosched() // lets other requests run; Go's own preemption would come five times as late
		q.turn, err = turns.renew(q.ctx, q.turn)
	}
	if err != nil {
		q.turn = nil
		return err
	}
	q.waited += q.turn.since.Sub(now)
	return nil
}

// countRow is called for every row of the result.
func (q *queryRun) countRow() {
	q.steps += rowSteps
	q.delivered = true
}

// contention detects whether several workspaces are active. The zero value has seen none.
type contention struct {
	last  atomic.Pointer[space]
	turns atomic.Int64 // changes from one workspace to another
	at    atomic.Int64 // when turns last reached a multiple of contentionTurns, Unix nanoseconds
	seen  atomic.Int64 // when it last did so within contentionSpan
}

// note records a call of a workspace.
func (c *contention) note(s *space) {
	last := c.last.Load()
	if last == s || last != nil && s.name != "" && last.name == s.name { // a part has the name of its party's workspace
		return
	}
	c.last.Store(s)
	if c.turns.Add(1)%contentionTurns != 0 {
		return
	}
	if now := time.Now().UnixNano(); now-c.at.Swap(now) < int64(contentionSpan) {
		c.seen.Store(now)
	}
}

// present reports whether there is contention now.
func (c *contention) present() bool {
	return time.Now().UnixNano()-c.seen.Load() < int64(contentionSpan)
}

// tryEnter acquires the semaphore if it is free.
func tryEnter(lane chan struct{}) bool {
	select {
	case lane <- struct{}{}:
		return true
	default:
		return false
	}
}

// leaveAll releases the semaphores.
func leaveAll(lanes []chan struct{}) {
	for _, lane := range lanes {
		<-lane
	}
}

// enter acquires the semaphore. Error: the context's own.
func enter(ctx context.Context, lane chan struct{}) error {
	if tryEnter(lane) {
		return nil
	}
	select {
	case lane <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isLong reports whether the query was long the last time, and that was within longMemory.
func (l *lanes) isLong(q queryKey, now time.Time) bool {
	at, known := l.recentlyLong.Get(q)
	return known && now.Sub(at) < longMemory
}

// record remembers or forgets the query as long, according to the steps that it took.
func (l *lanes) record(q queryKey, steps int64, now time.Time) {
	if steps >= quickSteps {
		l.recentlyLong.Put(q, now)
	} else if _, known := l.recentlyLong.Get(q); known {
		l.recentlyLong.Delete(q)
	}
}

// duration returns how long the query has run, without its waits for turns.
func (q *queryRun) duration() time.Duration {
	return q.db.engine.scheduler.now().Sub(q.began) - q.waited
}
