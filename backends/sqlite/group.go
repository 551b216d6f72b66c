package sqlite

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"tenantry/internal/fairqueue"
)

const (
	// maxGroup bounds the number of jobs that share a transaction, and maxGroupRows their rows, because later jobs wait
	// for the whole transaction.
	maxGroup     = 128
	maxGroupRows = 2_500
	// A job of more than largeRows rows is large. Large jobs never share a transaction with small ones. They share one of
	// up to maxLargeRows rows, and only while no other job waits: see jobQueue.contended.
	largeRows    = 500
	maxLargeRows = 10_000
)

// load is the size of a job, and the workspace to whose account it goes.
type load struct {
	ws        int64 // space.party
	documents int
	rows      int // of tables and indexes, see driver.Write.Rows
}

// flow identifies the jobs that share turns in the queue. The small and the large jobs of a workspace are separate
// flows, so that the small ones do not wait because of the rows of the large ones.
type flow struct {
	ws    int64
	large bool
}

// job is work to be done in a transaction. do may be called more than once, each time after the changes of the call
// before have been rolled back, and must change nothing but the file.
type job struct {
	load
	ctx, wait  context.Context    //nolint:containedctx // the caller's, which waits for the job
	partitions map[partition]bool // what do may change; nil: anything
	do         func(*conn) error
	start      int64 // its start in fair queueing; see jobQueue

	err  error // the result; valid once done is closed
	done chan struct{}
}

// end sets the result of the job. It must be called once.
func (j *job) end(err error) {
	j.err = err
	close(j.done)
}

// large reports whether the job is too long for others to wait for it.
func (j *job) large() bool { return j.rows > largeRows || j.partitions == nil }

// priority orders jobs with the same start. Jobs that may change anything come first, because they are few and short;
// small jobs precede large ones.
func (j *job) priority() int {
	switch {
	case j.partitions == nil:
		return 0
	case !j.large():
		return 1
	}
	return 2
}

func (j *job) flow() flow { return flow{j.ws, j.large()} }

// cost is the job's cost in fair queueing, in rows.
func (j *job) cost() int64 { return int64(max(j.rows, 1)) }

// jobQueue holds the jobs that wait for the writer. It is fair between flows: the flow with fewer rows written is
// served first. The zero value is an empty queue. Safe for concurrent use.
//
// It is no fairqueue.Line, because there the owner calls the waiting. Here a waiting job that gets the writer takes
// others along, and ends their waits once they are on disk.
type jobQueue struct {
	mu    sync.Mutex
	jobs  []*job                // in order of arrival
	turns fairqueue.Turns[flow] // in rows
}

func (l *jobQueue) add(j *job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.start = l.turns.Start(j.flow(), j.cost())
	l.jobs = append(l.jobs, j)
}

// remove removes the job, and reports whether it was still in the queue.
func (l *jobQueue) remove(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := slices.Index(l.jobs, j)
	if n >= 0 {
		l.jobs = slices.Delete(l.jobs, n, n+1)
		l.turns.Cancel(j.flow(), j.cost())
	}
	return n >= 0
}

// take removes and returns the jobs for the next transaction: the first in turn, and others of its size that follow.
func (l *jobQueue) take() (jobs []*job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.firstIndex(nil)
	if n < 0 {
		return nil
	}
	head := l.jobs[n]
	most, flows := maxGroupRows, map[flow]bool{}
	for _, j := range l.jobs {
		flows[j.flow()] = true
	}
	if head.large() && !l.contended(head) {
		most = maxLargeRows
	}
	rows := 0
	for ; n >= 0 && len(jobs) < maxGroup; n = l.firstIndex(head) {
		j := l.jobs[n]
		if len(jobs) > 0 && rows+j.rows > most {
			break
		}
		rows += j.rows
		jobs = append(jobs, j)
		l.jobs = slices.Delete(l.jobs, n, n+1)
		if j.partitions == nil {
			break
		}
	}
	l.turns.Serve(head.start, int64(rows), len(flows))
	return jobs
}

// firstIndex returns the index of the next job in turn. If with is not nil, only jobs that may share its transaction
// are considered. It returns -1 if there is none. l.mu is held.
func (l *jobQueue) firstIndex(with *job) int {
	at := -1
	for n, j := range l.jobs {
		if with != nil && (j.large() != with.large() || j.partitions == nil) {
			continue
		}
		if at < 0 || cmp.Or(cmp.Compare(j.start, l.jobs[at].start), cmp.Compare(j.priority(), l.jobs[at].priority())) < 0 {
			at = n
		}
	}
	return at
}

// requeue puts jobs back at the head of the queue. Jobs whose wait has ended get its error, because their callers
// cannot remove jobs that were taken.
func (l *jobQueue) requeue(jobs []*job) {
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

// smallJobWaiting reports whether a job is waiting that should not wait for further large jobs of this one's workspace.
func (l *jobQueue) smallJobWaiting(j *job) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.contended(j)
}

// contended reports whether a small job, or a job of another workspace, is waiting. l.mu is held.
func (l *jobQueue) contended(than *job) bool {
	return slices.ContainsFunc(l.jobs, func(j *job) bool { return !j.large() || j.ws != than.ws })
}

// transact runs do in a transaction of the writer, and returns once it is on disk. After an error all changes of do are
// rolled back. The call waits for its turn until wait ends; do may then take as long as ctx allows.
//
// This is a group commit: concurrent jobs share a transaction, and with it one sync, but each has a result of its own.
// The caller that gets the writer runs the jobs of the others.
func (db *database) transact(ctx, wait context.Context, l load, touched map[partition]bool, do func(*conn) error) error {
	j := &job{ctx: ctx, wait: wait, load: l, partitions: touched, do: do, done: make(chan struct{})}
	db.queue.add(j)
	ended := wait.Done()
	for {
		select {
		case <-j.done:
			return j.err
		case db.writerLock <- struct{}{}:
			if wait.Err() != nil && db.queue.remove(j) {
				db.releaseWriter()
				return wait.Err()
			}
			db.runJobs()
		case <-ended:
			if db.queue.remove(j) {
				return wait.Err()
			}
			ended = nil // the job is running and may be committed, so its result must be awaited
		}
	}
}

// runJobs runs the next jobs in turn, ends each with its result, and releases the writer.
func (db *database) runJobs() {
	jobs := db.queue.take()
	rows := 0
	for _, j := range jobs {
		rows += j.rows
	}
	defer func() {
		if len(jobs) > 0 && db.writer != nil { // after a panic the state of the writer is unknown
			_ = db.writer.close()
			db.writer = nil
		}
		for _, j := range jobs { // after a panic none of them is known to be committed
			j.end(errAborted)
		}
		db.checkpointAhead(rows)
		db.truncateLog()
		db.releaseWriter()
	}()
	jobs = slices.DeleteFunc(jobs, func(j *job) bool {
		err := j.ctx.Err()
		if err != nil {
			j.end(err)
		}
		return err != nil
	})
	done := 0
	for _, guarded := range []bool{false, true} {
		if done == 0 && len(jobs) > 1 {
			done = db.runGrouped(jobs, guarded)
		}
	}
	jobs = jobs[done:]
	for more := done == 0; more && len(jobs) > 0; { // each in a transaction of its own
		j := jobs[0]
		err := db.runAlone(j)
		jobs = jobs[1:]
		j.end(err)
		more = !j.large() || !db.queue.smallJobWaiting(j)
	}
	rest := jobs
	jobs = nil // for the deferred function
	db.queue.requeue(rest)
}

// run runs the job until its context ends. A panic becomes an error of this job, because the caller that holds the
// writer runs the jobs of others.
func (j *job) run(c *conn) error {
	if err := j.ctx.Err(); err != nil {
		return err
	}
	err := c.runUntil(j.ctx, func() error { return j.do(c) })
	// The end of the context does not interrupt the transaction from here on, so that a commit is complete or absent.
	if err == nil {
		err = j.ctx.Err()
	}
	return err
}

// runAlone runs one job in a transaction of its own.
func (db *database) runAlone(j *job) error {
	c, err := db.begin(j.ctx)
	if err != nil {
		return err
	}
	if err = j.run(c); err != nil {
		db.rollback(err)
		return err
	}
	if err = db.commit(c); err != nil {
		db.commitFailed(err)
		return err
	}
	db.committed(j)
	return nil
}

// runGrouped runs the jobs in one transaction, and returns the number of jobs that it has ended. It runs only the first
// of large jobs if others wait meanwhile.
//
// If a job ends the transaction, for example because of a full disk, runGrouped rolls everything back and returns 0:
// the jobs have to be run in another way. If guarded is set, each job has a savepoint, to which it is rolled back if it
// fails. Otherwise a failed job that had changed something ends the transaction: few jobs fail so, and savepoints slow
// down all.
func (db *database) runGrouped(jobs []*job, guarded bool) (done int) {
	c, err := db.begin(jobs[0].ctx)
	if err != nil {
		if jobs[0].ctx.Err() != nil { // its context has just ended, which is no failure of the others
			jobs = jobs[:1]
		}
		for _, j := range jobs { // each of them would have failed in the same way on its own
			j.end(err)
		}
		return len(jobs)
	}
	for i, j := range jobs {
		if err = c.runInGroup(j, guarded); err != nil {
			break
		}
		if j.large() && db.queue.smallJobWaiting(j) {
			jobs = jobs[:i+1]
			break
		}
	}
	if err != nil {
		db.rollback(err)
		return 0
	}
	if err = db.commit(c); err != nil {
		db.commitFailed(err)
	}
	for _, j := range jobs {
		switch {
		case err != nil && (j.err == nil || j.ctx.Err() == nil):
			// The commit may have reached the log, so the jobs are not run again. A job that failed may have done so
			// because of the changes of another, which are not committed: it gets this error too.
			j.err = err
		case j.err == nil:
			db.committed(j)
		}
	}
	for _, j := range jobs {
		j.end(j.err)
	}
	return len(jobs)
}

// runInGroup runs one job of a group and sets its result. It returns an error if the job failed and its changes cannot
// be rolled back without those of the others.
func (c *conn) runInGroup(j *job, guarded bool) error {
	if guarded {
		if err := c.exec("SAVEPOINT job"); err != nil {
			return err
		}
	}
	before, tally := c.writes, c.tally.snapshot(guarded)
	j.err = j.run(c)
	switch {
	case j.err == nil:
	case c.raw.AutocommitEnabled(), broken(j.err), !guarded && c.writes > before:
		return j.err // for example an interrupted statement or a full disk, which end the whole transaction
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

// committed updates the caches and statistics after the commit of a job.
func (db *database) committed(j *job) {
	db.commits.Add(1)
	db.counts.changed(j.partitions) // after the line above, so that no reader with the former state can begin any more
	db.countWrites(j.documents)
}
