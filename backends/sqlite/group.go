package sqlite

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"tenantry/internal/fairqueue"
)

const (
	// maxGroup bounds the jobs that share a transaction, and maxGroupRows their rows: whoever comes next waits no
	// longer for them than for a few of its own.
	maxGroup     = 128
	maxGroupRows = 2_500
	// largeRows is how many rows make a large job. Small jobs never share a transaction with those. Large jobs share
	// one up to maxLargeRows, and only until somebody else waits: see line.othersWait.
	largeRows    = 500
	maxLargeRows = 10_000
)

// load says whose a job is and how much it writes.
type load struct {
	ws        int64 // the workspace in a shared file, or the party of another; see space.party
	documents int
	rows      int // of tables and of indexes, see driver.Write.Rows
}

// flow is the jobs among which one workspace has its turns. Its small jobs do not wait for what its large ones have
// used up.
type flow struct {
	ws    int64
	large bool
}

// job is what somebody wants to be done in a transaction. It may be done more than once, if nothing of the time before
// remains.
type job struct {
	load
	ctx, wait context.Context //nolint:containedctx // of the caller, who waits
	touched   map[shelf]bool  // what it may change, all where it is nil
	do        func(*conn) error
	start     int64 // its place in the turns, see line

	err  error // its verdict, once done is closed
	done chan struct{}
}

// end gives the job its verdict, once.
func (j *job) end(err error) {
	j.err = err
	close(j.done)
}

// large reports whether others had better not wait for the job.
func (j *job) large() bool { return j.rows > largeRows || j.touched == nil }

// rank orders jobs that start at the same place: those that may change anything are few and short.
func (j *job) rank() int {
	switch {
	case j.touched == nil:
		return 0
	case !j.large():
		return 1
	}
	return 2
}

func (j *job) flow() flow { return flow{j.ws, j.large()} }

// cost is what the job takes of its workspace's turns, in rows.
func (j *job) cost() int64 { return int64(max(j.rows, 1)) }

// line is the jobs that wait for the writer, in turns by workspace: whoever had fewer rows written is served first. The
// zero value is ready.
//
// It is no fairqueue.Line, where somebody else calls those who wait: here one of them gets the writer, takes the jobs of
// several, and ends their waits when these are on disk.
type line struct {
	mu    sync.Mutex
	jobs  []*job                // in the order they came
	turns fairqueue.Turns[flow] // in rows
}

func (l *line) add(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.start = l.turns.Start(j.flow(), j.cost())
	l.jobs = append(l.jobs, j)
}

// leave reports whether the job was still waiting, and waits no more.
func (l *line) leave(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := slices.Index(l.jobs, j)
	if n >= 0 {
		l.jobs = slices.Delete(l.jobs, n, n+1)
		l.turns.Cancel(j.flow(), j.cost())
	}
	return n >= 0
}

// next takes the jobs that share the next transaction: the one whose turn it is, and others of its size in their order.
func (l *line) next() (jobs []*job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.first(nil)
	if n < 0 {
		return nil
	}
	head := l.jobs[n]
	most, flows := maxGroupRows, map[flow]bool{}
	for _, j := range l.jobs {
		flows[j.flow()] = true
	}
	if head.large() && !l.othersWait(head) {
		most = maxLargeRows
	}
	rows := 0
	for ; n >= 0 && len(jobs) < maxGroup; n = l.first(head) {
		j := l.jobs[n]
		if len(jobs) > 0 && rows+j.rows > most {
			break
		}
		rows += j.rows
		jobs = append(jobs, j)
		l.jobs = slices.Delete(l.jobs, n, n+1)
		if j.touched == nil {
			break
		}
	}
	l.turns.Serve(head.start, int64(rows), len(flows))
	return jobs
}

// first returns where the job is that starts first, of those that may share a transaction with another if that is
// given;
// -1 where there is none.
func (l *line) first(with *job) int {
	at := -1
	for n, j := range l.jobs {
		if with != nil && (j.large() != with.large() || j.touched == nil) {
			continue
		}
		if at < 0 || cmp.Or(cmp.Compare(j.start, l.jobs[at].start), cmp.Compare(j.rank(), l.jobs[at].rank())) < 0 {
			at = n
		}
	}
	return at
}

// back has jobs wait once more, before those of their flow that came later. Whoever has stopped waiting is told so:
// they no longer look by themselves.
func (l *line) back(jobs []*job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, j := range jobs {
		if err := j.wait.Err(); err != nil {
			j.end(err)
			continue
		}
		l.jobs = slices.Insert(l.jobs, n, j)
		n++
	}
}

// smallJobWaiting reports whether somebody waits who should not wait for more large jobs of the workspace than the one
// at work.
func (l *line) smallJobWaiting(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.othersWait(j)
}

// othersWait reports whether a small job waits, or one of another workspace. l.mu is held.
func (l *line) othersWait(than *job) bool {
	return slices.ContainsFunc(l.jobs, func(j *job) bool { return !j.large() || j.ws != than.ws })
}

// transact runs do in a transaction of the only writer, and returns once that is on disk. What others want at
// the same moment shares it, each with a verdict of its own, so that one sync serves all: whoever has the
// writer does the work of those who wait. After an error nothing of do remains. The turn is waited for until
// wait ends; a large batch may then take as long as ctx allows.
func (db *database) transact(ctx, wait context.Context, l load, touched map[shelf]bool, do func(*conn) error) error {
	j := &job{ctx: ctx, wait: wait, load: l, touched: touched, do: do, done: make(chan struct{})}
	db.line.add(j)
	ended := wait.Done()
	for {
		select {
		case <-j.done:
			return j.err
		case db.writing <- struct{}{}:
			if wait.Err() != nil && db.line.leave(j) {
				db.leaveWriter()
				return wait.Err()
			}
			db.serve()
		case <-ended:
			if db.line.leave(j) {
				return wait.Err()
			}
			ended = nil // somebody is at it, and may have stored it already
		}
	}
}

// serve does the jobs whose turn it is, gives each its verdict, and the writer back.
func (db *database) serve() {
	jobs := db.line.next()
	rows := 0
	for _, j := range jobs {
		rows += j.rows
	}
	defer func() {
		if len(jobs) > 0 && db.writer != nil { // a panic: what the writer is in the middle of, nobody knows
			_ = db.writer.close()
			db.writer = nil
		}
		for _, j := range jobs { // a panic is no success, of those before it neither
			j.end(errGivenUp)
		}
		db.moveAhead(rows)
		db.shorten()
		db.leaveWriter()
	}()
	jobs = slices.DeleteFunc(jobs, func(j *job) bool {
		gone := j.ctx.Err()
		if gone != nil {
			j.end(gone)
		}
		return gone != nil
	})
	done := 0
	for _, guarded := range []bool{false, true} {
		if done == 0 && len(jobs) > 1 {
			done = db.together(jobs, guarded)
		}
	}
	jobs = jobs[done:]
	for again := done == 0; again && len(jobs) > 0; { // each by itself
		j := jobs[0]
		err := db.alone(j)
		jobs = jobs[1:]
		j.end(err)
		again = !j.large() || !db.line.smallJobWaiting(j)
	}
	left := jobs
	jobs = nil
	db.line.back(left)
}

// begin returns the writer in a transaction that has just begun.
func (db *database) begin(ctx context.Context) (c *conn, err error) {
	if err := errors.Join(ctx.Err(), db.moved()); err != nil {
		return nil, err
	}
	if db.writer == nil {
		if db.writer, err = db.openWriter(); err != nil {
			return nil, err
		}
	}
	if err := begin(ctx, db.writer); err != nil {
		db.abandon(err)
		return nil, err
	}
	return db.writer, nil
}

// run does the job, until its context ends. A panic in it is its error alone: who has the writer does the jobs of
// others.
func (j *job) run(c *conn) error {
	if err := j.ctx.Err(); err != nil {
		return err
	}
	err := c.until(j.ctx, func() error { return j.do(c) })
	// From here on the transaction is not interrupted: a commit is either whole or not there.
	if err == nil {
		err = j.ctx.Err()
	}
	return err
}

// alone does one job in a transaction of its own.
func (db *database) alone(j *job) error {
	c, err := db.begin(j.ctx)
	if err != nil {
		return err
	}
	if err = j.run(c); err != nil {
		db.abandon(err)
		return err
	}
	if err = db.commit(c); err != nil {
		db.rollback(err)
		return err
	}
	db.committed(j)
	return nil
}

// together does the jobs in one transaction, or the first of them where these are large and others wait, and returns
// how many it has given their verdicts. Where that ended before it was to be committed, because of what one of them did
// or met, it returns 0: nothing remains of any, and each is to be done in another way. Unless they are guarded, that is
// so too where one failed that had changed something: few do, and to be ready to take each back costs all.
func (db *database) together(jobs []*job, guarded bool) (done int) {
	c, err := db.begin(jobs[0].ctx)
	if err != nil {
		if jobs[0].ctx.Err() != nil { // it has just gone, and that is nothing to the others
			jobs = jobs[:1]
		}
		for _, j := range jobs { // who tries again waits again, as all of them would by themselves
			j.end(err)
		}
		return len(jobs)
	}
	for i, j := range jobs {
		if err = c.guard(j, guarded); err != nil {
			break
		}
		if j.large() && db.line.smallJobWaiting(j) {
			jobs = jobs[:i+1]
			break
		}
	}
	if err != nil {
		db.abandon(err)
		return 0
	}
	if err = db.commit(c); err != nil {
		db.rollback(err)
	}
	for _, j := range jobs {
		switch {
		case err != nil && (j.err == nil || j.ctx.Err() == nil):
			j.err = err // it may have reached the log, so it is not tried again; and what another did may be why a job failed
		case j.err == nil:
			db.committed(j)
		}
	}
	for _, j := range jobs {
		j.end(j.err)
	}
	return len(jobs)
}

// guard does a job of several, of which nothing remains where it failed. An error says that this cannot be had.
func (c *conn) guard(j *job, guarded bool) error {
	if guarded {
		if err := c.exec("SAVEPOINT job"); err != nil {
			return err
		}
	}
	before, tally := c.wrote, c.tally.before(guarded)
	j.err = j.run(c)
	switch {
	case j.err == nil:
	case c.raw.AutocommitEnabled(), broken(j.err), !guarded && c.wrote > before:
		return j.err // an interrupted statement, or a full disk, has ended the whole transaction
	case guarded:
		if err := c.exec("ROLLBACK TO job"); err != nil {
			return err
		}
		c.tally = tally
	}
	if guarded {
		return c.exec("RELEASE job")
	}
	return nil
}

// committed notes what a job has changed.
func (db *database) committed(j *job) {
	db.commits.Add(1)
	db.counts.changed(j.touched) // once no reader begins with what was before
	db.wrote(j.documents)
}
