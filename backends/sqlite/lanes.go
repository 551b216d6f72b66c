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

// The work of a question is counted in steps of SQLite's virtual machine, 20 to 60 ns each. Time would not do, because
// on a busy machine the smallest question takes long.
const (
	// tick is how many steps lie between two looks at a question under way.
	tick = 512
	// rowSteps is what a row of the answer counts, textPerStep the bytes that are searched in the time of one step.
	rowSteps    = 100
	textPerStep = 32
	// quickSteps is what a question may do without a turn of the processors, some 1 to 3 ms.
	quickSteps = 50_000
	// A tick of slowTick or more reads large documents, or was held up by others. It counts slowSteps, so that a small
	// question, which is held up a few times at most, stays quick.
	slowTick  = time.Millisecond
	slowSteps = quickSteps / 16
)

const (
	// maxLong bounds the kinds of questions of a database that are known to be long, longFor how long one is taken for
	// that without being seen again.
	maxLong = 1024
	longFor = time.Minute
	// maxWaiting bounds the long questions of a workspace that wait for a connection.
	maxWaiting = 64
	// longPerReader is how many connections a file may have for long questions, for each reader.
	longPerReader = 4
	// defaultLong is Options.Long where it is not given.
	defaultLong = 64
	// contentionTurns within contentionSpan, and for as long after them, several workspaces ask for something. One by
	// itself has turns with the control workspace, but few.
	contentionTurns = 8
	contentionSpan  = time.Second
)

// lanes share the connections of a database among questions. One that is quick takes one of the readers, of which a
// workspace never has all. One that was long the last time, or has turned out to be, has a connection beside them and
// goes on in turns, see turns; a workspace has at most half as many of these as there are readers, the file
// longPerReader times the readers, and all files Options.Long. A document that is looked up by its id or another unique
// index waits for neither, so that host and key look-ups stay fast.
type lanes struct {
	long chan struct{} // one for each long question that has a connection

	known cache.Few[question, time.Time] // were long the last time, and when that was
}

// question tells one kind of question of a party from another.
type question struct {
	party int64
	sql   string
}

// inRuns stands for the statement by which an index is made.
const inRuns = "index"

// errManyLong is the answer to one more long question than may wait.
var errManyLong = fmt.Errorf("%w: %d long questions of the workspace wait already", driver.ErrSlow, maxWaiting)

// errLengthy ends a question that turned out to be long while there is no connection for it. It begins anew when there
// is one, and holds no reader until then.
var errLengthy = errors.New("the question is long")

// lane returns room for n at a time, and for one at least. It is no fairqueue.Queue: each workspace has lanes of its own,
// which need no turns, every quick question takes one, and a channel costs 67 ns where a queue costs 99.
func lane(n int) chan struct{} { return make(chan struct{}, max(1, n)) }

// visit is one question's stay in the lanes. One goroutine uses it at a time.
type visit struct {
	ctx      context.Context
	db       *database
	space    *space
	question question
	brief    bool // it waits in no lane as long as it is quick

	reader *reader // that answers it, nil before and after
	asking bool    // it has one of the places of its workspace's quick questions
	long   bool    // it has a place among the long ones
	turn   *turn   // it has a processor
	steps  int64
	rows   bool          // some of the answer was given
	began  time.Time     // when its reader was there
	looked time.Time     // when the last tick ended
	waited time.Duration // for its turns
	err    error         // by which it was ended
}

// answer asks the question, of a reader whose snapshot holds every acknowledged write, and calls do with it. What do
// runs on the connection counts as the question's work. Error: the context's own, errManyLong, and those of do.
func (v *visit) answer(do func(*reader) error) error {
	long := !v.brief && v.db.lanes.isLong(v.question, time.Now())
	for {
		err := v.try(long, do)
		if !errors.Is(err, errLengthy) {
			return err
		}
		long = true
	}
}

func (v *visit) try(long bool, do func(*reader) error) (err error) {
	defer v.leave()
	v.began, v.steps, v.waited, v.err = time.Time{}, 0, 0, nil
	switch {
	case long:
		if err = v.lengthen(); err == nil {
			err = v.next()
		}
	case !v.brief:
		if err = into(v.ctx, v.space.asking); err == nil {
			v.asking = true
		}
	}
	if err != nil {
		return err
	}
	err = v.db.askBy(v.ctx, !v.long, func(r *reader) error {
		v.began = v.db.engine.turns.now()
		v.looked = v.began
		v.reader, r.conn.visit = r, v
		defer func() { v.reader, r.conn.visit = nil, nil }()
		return do(r)
	})
	if err == nil || v.steps >= quickSteps { // one that ended early may be long
		v.db.lanes.did(v.question, v.steps, time.Now())
	}
	if v.err != nil {
		return v.err
	}
	return err
}

// leave gives back what the question holds.
func (v *visit) leave() {
	if v.turn != nil {
		v.db.engine.turns.leave(v.turn)
		v.turn = nil
	}
	if v.long {
		leaves(v.places())
		v.long = false
	}
	if v.asking {
		<-v.space.asking
		v.asking = false
	}
}

// places are those of a long question: of its workspace, its file and all files. Who waits for the second or the third
// has those before, and is one of few.
func (v *visit) places() []chan struct{} {
	return []chan struct{}{v.space.long, v.db.lanes.long, v.db.engine.long}
}

// lengthen waits for a connection among the long questions.
func (v *visit) lengthen() error {
	if v.lengthenNow() {
		return nil
	}
	defer v.space.waiting.Add(-1)
	if v.space.waiting.Add(1) > maxWaiting {
		return errManyLong
	}
	places := v.places()
	for i, lane := range places {
		if err := into(v.ctx, lane); err != nil {
			leaves(places[:i])
			return err
		}
	}
	v.long = true
	return nil
}

// lengthenNow reports whether there is a connection among the long questions, which it takes.
func (v *visit) lengthenNow() bool {
	places := v.places()
	for i, lane := range places {
		if !enters(lane) {
			leaves(places[:i])
			return false
		}
	}
	v.long = true
	return true
}

// step is called after each tick of the question's statement, and reports whether that is to end; v.err then says why.
func (v *visit) step(more int64) (end bool) {
	now := v.db.engine.turns.now()
	if v.steps += tick + more; now.Sub(v.looked) >= slowTick {
		v.steps += slowSteps
	}
	v.looked = now
	if v.steps < quickSteps && !v.long {
		return false
	}
	if !v.long {
		v.err = v.leaveQuick()
	}
	if v.err == nil {
		v.err = v.next()
	}
	v.looked = v.db.engine.turns.now()
	return v.err != nil
}

// leaveQuick moves the question from the quick ones to the long ones.
func (v *visit) leaveQuick() error {
	if !v.lengthenNow() {
		if !v.rows {
			return errLengthy
		}
		if err := v.lengthen(); err != nil {
			return err
		}
	}
	if v.asking {
		<-v.space.asking
		v.asking = false
	}
	v.db.uncount(v.reader)
	return nil
}

// next gets a processor, or asks for it again once a slice of time is over.
func (v *visit) next() (err error) {
	turns := &v.db.engine.turns
	now := turns.now()
	switch {
	case v.turn == nil:
		v.turn, err = turns.enter(v.ctx, v.space)
	case now.Sub(v.turn.since) < slice:
		return nil
	default:
		v.db.engine.contention.note(v.space)
		runtime.Gosched() // other requests of this process, which would wait five times as long for Go to preempt
		v.turn, err = turns.renew(v.ctx, v.turn)
	}
	if err != nil {
		v.turn = nil
		return err
	}
	v.waited += v.turn.since.Sub(now)
	return nil
}

// row is called for every row of the answer.
func (v *visit) row() {
	v.steps += rowSteps
	v.rows = true
}

// contention tells whether several workspaces ask for something at the moment. The zero value knows of none.
type contention struct {
	last  atomic.Pointer[space]
	turns atomic.Int64
	at    atomic.Int64 // when the last contentionTurns were over, Unix nanoseconds
	seen  atomic.Int64 // and when the last of those that came within contentionSpan were
}

// note says that a workspace asks for something, or writes.
func (c *contention) note(s *space) {
	last := c.last.Load()
	if last == s || last != nil && s.name != "" && last.name == s.name { // who has a part of another workspace is one with that
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

func (c *contention) present() bool {
	return time.Now().UnixNano()-c.seen.Load() < int64(contentionSpan)
}

// enters takes a place if there is one.
func enters(lane chan struct{}) bool {
	select {
	case lane <- struct{}{}:
		return true
	default:
		return false
	}
}

func leaves(lanes []chan struct{}) {
	for _, lane := range lanes {
		<-lane
	}
}

func into(ctx context.Context, lane chan struct{}) error {
	if enters(lane) {
		return nil
	}
	select {
	case lane <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isLong reports whether the question was long the last time, unless that is long ago.
func (l *lanes) isLong(q question, now time.Time) bool {
	at, known := l.known.Get(q)
	return known && now.Sub(at) < longFor
}

// did notes how many steps a question did.
func (l *lanes) did(q question, steps int64, now time.Time) {
	if steps >= quickSteps {
		l.known.Put(q, now)
	} else if _, known := l.known.Get(q); known {
		l.known.Delete(q)
	}
}

// took returns how long the answer has taken, without the waits for turns.
func (v *visit) took() time.Duration { return v.db.engine.turns.now().Sub(v.began) - v.waited }
