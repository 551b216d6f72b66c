package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/background"

	"zombiezen.com/go/sqlite"
)

const (
	// snapshotAge bounds how long a reader keeps its snapshot, and so how long it
	// can keep the log from being reused.
	snapshotAge = 10 * time.Millisecond
	// lockTimeout is how long a write waits for another process, a backup for example.
	lockTimeout = 5 * time.Second
	// maxLog is how long the log may get, in bytes, before readers wait for it to begin anew, logPatience how long they
	// do at a time, and logAgain how long they do not after that, unless it has grown by much.
	maxLog      = 64 << 20
	logPatience = 200 * time.Millisecond
	logAgain    = time.Second

	// A reader may have to recover the log after a crash, so it must be able to write.
	connectionFlags = sqlite.OpenReadWrite
)

// readerSetUp leaves out what the file itself says: that it has a log. What is sorted or grouped and does not fit the
// connection's share of the cache goes to a file without a name, in the folder that SQLite takes for such: in memory it
// would take as much as all texts that a question reads.
const readerSetUp = "PRAGMA query_only = ON; PRAGMA temp_store = FILE"

// database is an open file: one writer and some readers, each opened when first needed.
type database struct {
	engine *Engine
	path   string
	shared bool        // by several workspaces
	file   os.FileInfo // of the file that is open
	// commits counts the writes that have been committed. A snapshot taken before the latest is stale.
	commits atomic.Uint64

	// statistics counts how often the planner's statistics were renewed.
	statistics atomic.Uint64

	line       line
	writing    chan struct{} // held by the writer
	writer     *conn         // nil before the first write, and after a failure
	unmeasured int           // documents written since the statistics were looked at
	long       int64         // bytes of the log when it was to be shortened last
	tried      time.Time     // when that was
	shortening atomic.Bool
	unmoved    int // rows written since the log was last moved into the file beside the writer
	moving     atomic.Bool
	background sync.WaitGroup // who shortens or moves it

	settling settling

	recent recent
	counts counts
	lanes  lanes

	reading chan struct{} // one for each reader in use but those of long questions
	mu      sync.Mutex
	idle    []*reader
	sweeper *time.Timer
	armed   bool
	closed  bool
}

// reader is a connection that may hold a snapshot between two uses.
type reader struct {
	conn    *conn
	counted bool // it has one of the places of reading
	holding bool
	began   time.Time
	commits uint64
	// statistics tells which ones the connection has read.
	statistics uint64
}

// openDatabase opens the file and brings it up to date with the schema, making it when missing.
// It leaves files alone that are not this program's, are newer or are somebody else's.
func openDatabase(ctx context.Context, e *Engine, path string, o *driver.Opening, s *schema) (*database, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	logged, err := e.checkFile(path)
	if err != nil {
		return nil, err
	}
	db := &database{engine: e, path: path, shared: s.shared, writing: make(chan struct{}, 1), reading: make(chan struct{}, e.opts.Readers)}
	db.lanes.long = lane(longPerReader * e.opts.Readers)
	db.lanes.known.Size, db.recent.docs.Size = maxLong, maxRecent
	db.settling.note(unsettled)
	ready := false
	if logged {
		ready, err = db.holds(ctx, o, s)
	} else {
		err = create(path)
	}
	if err == nil {
		db.file, err = os.Stat(path)
	}
	if err == nil && !ready {
		err = db.migrate(ctx, o, s)
	}
	if err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

// holds reports whether the file is the owner's and has been prepared for the schema. The reader it opens is
// the one that the next question uses.
func (db *database) holds(ctx context.Context, o *driver.Opening, s *schema) (bool, error) {
	ready := false
	err := db.ask(ctx, func(r *reader) (err error) {
		ready, err = s.isIn(r.conn, o)
		return err
	})
	return ready, err
}

// create makes the file, empty, unless it is there. Connections never do: a file that is
// lost while it is in use is not to be made anew by the next write.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // to open it could end locks: see aside
	}
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return f.Close()
}

func (db *database) openWriter() (*conn, error) {
	// What is purged must not lie in pages that nothing uses.
	pragmas := "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA secure_delete = ON;" +
		" PRAGMA wal_autocheckpoint = 8000; PRAGMA journal_size_limit = " + strconv.FormatInt(db.engine.opts.maxLog, 10)
	if db.engine.opts.maxPages != nil {
		pragmas += fmt.Sprintf("; PRAGMA max_page_count = %d", db.engine.opts.maxPages())
	}
	c, err := db.connect(writerParts, pragmas)
	if err == nil {
		c.raw.SetBusyTimeout(0) // begin waits, and can be interrupted
	}
	return c, err
}

func (db *database) close() error {
	db.background.Wait()
	db.mu.Lock()
	db.closed = true
	if db.sweeper != nil {
		db.sweeper.Stop()
	}
	idle := db.idle
	db.idle = nil
	db.mu.Unlock()
	var errs []error
	for _, r := range idle {
		errs = append(errs, r.end(), r.conn.close())
	}
	// The last connection to close moves the log into the file and deletes it.
	if db.writer != nil {
		db.measure()
		errs = append(errs, db.writer.close())
	}
	// Organizations that are not asked for any more keep the database that their file had.
	db.recent.docs.Clear()
	db.counts.changed(nil)
	db.lanes.known.Clear()
	return errors.Join(errs...)
}

// ask calls do with a reader whose next statement sees every acknowledged write. A panic in it is an error.
func (db *database) ask(ctx context.Context, do func(*reader) error) error {
	return db.askBy(ctx, true, do)
}

// askBy is ask by one of the readers, where counted is set, or else by a connection beside them.
func (db *database) askBy(ctx context.Context, counted bool, do func(*reader) error) error {
	take := db.reader
	if !counted {
		take = db.spare
	}
	r, err := take(ctx)
	if err != nil {
		return err
	}
	err = background.Try(func() error { return do(r) })
	db.putReader(r, err)
	return err
}

// reader returns a reader whose next statement sees every acknowledged write. putReader must follow.
func (db *database) reader(ctx context.Context) (*reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := into(ctx, db.reading); err != nil {
		return nil, err
	}
	r, err := db.spare(ctx)
	if err != nil {
		<-db.reading
		return nil, err
	}
	r.counted = true
	return r, nil
}

// spare is reader for a long question, which has its place elsewhere.
func (db *database) spare(ctx context.Context) (*reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r, err := db.takeReader()
	if err != nil {
		return nil, err
	}
	if err := r.refresh(db); err != nil {
		_ = r.conn.close()
		return nil, err
	}
	return r, nil
}

// uncount gives the reader's place to others. It is no longer one of the readers then, but a connection beside them.
func (db *database) uncount(r *reader) {
	if r.counted {
		r.counted = false
		<-db.reading
	}
}

func (db *database) takeReader() (*reader, error) {
	statistics := db.statistics.Load()
	for {
		db.mu.Lock()
		n := len(db.idle)
		if n == 0 {
			db.mu.Unlock()
			break
		}
		r := db.idle[n-1]
		db.idle = db.idle[:n-1]
		db.mu.Unlock()
		if r.statistics == statistics {
			return r, nil
		}
		if err := errors.Join(r.end(), r.conn.close()); err != nil {
			return nil, err
		}
	}
	c, err := db.connect(readerParts, readerSetUp)
	if err != nil {
		return nil, err
	}
	if err := c.watch(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return &reader{conn: c, statistics: statistics}, nil
}

// putReader gives the reader back; err is what its use ended with.
func (db *database) putReader(r *reader, err error) {
	if r.counted {
		r.counted = false // before others can have it
		defer func() { <-db.reading }()
	}
	if r.holding && (err != nil || time.Since(r.began) >= snapshotAge) {
		err = errors.Join(err, r.end())
	}
	if err != nil && (broken(err) || r.holding) {
		_ = r.conn.close()
		return
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if r.conn.fit() != nil || len(db.idle) >= cap(db.reading) {
		_ = r.conn.close()
		return
	}
	db.idle = append(db.idle, r)
	if r.holding && !db.armed {
		db.arm()
	}
}

func (db *database) arm() {
	db.armed = true
	if db.sweeper == nil {
		db.sweeper = time.AfterFunc(snapshotAge, db.sweep)
		return
	}
	db.sweeper.Reset(snapshotAge)
}

// sweep ends the snapshots of readers that lie idle.
func (db *database) sweep() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.armed = false
	db.recent.docs.Clear()
	if db.closed {
		return
	}
	if db.endIdle(snapshotAge) {
		db.arm()
	}
}

// endIdle ends the snapshots of that age of readers that lie idle, and reports whether some remain. db.mu is held.
func (db *database) endIdle(age time.Duration) (again bool) {
	kept := db.idle[:0]
	for _, r := range db.idle {
		if r.holding && time.Since(r.began) >= age {
			if r.end() != nil {
				_ = r.conn.close()
				continue
			}
		}
		again = again || r.holding
		kept = append(kept, r)
	}
	clear(db.idle[len(kept):])
	db.idle = kept
	return again
}

// commit ends the writer's transaction. Idle readers would begin anew after it anyway; with the snapshots they hold the
// log could not be written back to the file whole, and so neither begin anew nor be left alone by the next commits.
func (db *database) commit(c *conn) error {
	db.mu.Lock()
	db.endIdle(0)
	db.mu.Unlock()
	if err := c.storeTally(db.shared); err != nil {
		return err
	}
	return c.exec("COMMIT")
}

// moveRows is how many rows are written until what the log has is moved into the file beside the writer.
const moveRows = 4_000

// moveAhead has the log moved into the file by a connection of its own, while others write: what the writer leaves to
// the end of the log's 8,000 pages, and does in the transaction of whoever is then at work, others wait for. The writer
// is held.
func (db *database) moveAhead(rows int) {
	if db.unmoved += rows; db.unmoved < moveRows || db.moving.Swap(true) {
		return
	}
	db.unmoved = 0
	db.background.Go(func() {
		defer db.moving.Store(false)
		c, err := db.connect(readerParts)
		if err == nil { // else the writer does it
			_ = c.each("PRAGMA wal_checkpoint(PASSIVE)", nil, func(*sqlite.Stmt) {})
			_ = c.close()
		}
	})
}

// shorten has a long log begin anew, which it does only where no reader is at work in it: among many there may never be
// such a moment. Those who would begin wait a moment for those who are at it, again and again, since one of these may
// take long. No write waits for that, whose time may be short. The writer is held.
func (db *database) shorten() {
	most := db.engine.opts.maxLog
	log, err := os.Stat(db.path + "-wal")
	if err != nil || log.Size() <= most || log.Size() <= db.long+most/4 && time.Since(db.tried) < logAgain || db.shortening.Swap(true) {
		return
	}
	db.long, db.tried = log.Size(), time.Now()
	db.background.Go(func() {
		defer db.shortening.Store(false)
		patience := time.NewTimer(logPatience)
		defer patience.Stop()
		for _, lane := range []chan struct{}{db.reading, db.lanes.long} {
			for range cap(lane) {
				select {
				case lane <- struct{}{}:
					defer func() { <-lane }()
				case <-patience.C:
					return
				}
			}
		}
		select {
		case db.writing <- struct{}{}:
			defer db.leaveWriter()
		case <-patience.C:
			return
		}
		db.mu.Lock()
		db.endIdle(0)
		db.mu.Unlock()
		if db.writer == nil {
			return
		}
		_ = db.writer.each("PRAGMA wal_checkpoint(TRUNCATE)", nil, func(row *sqlite.Stmt) { // what fails is told to who writes next
			if busy := row.ColumnBool(0); !busy { // by another program, a backup for example
				db.long = 0
			}
		})
	})
}

// refresh begins a snapshot, or keeps the one held while nothing has been committed since.
// The count is taken before the snapshot: a commit in between makes the next use begin anew.
func (r *reader) refresh(db *database) error {
	if db.engine.opts.noSnapshots {
		return nil
	}
	now := time.Now()
	commits := db.commits.Load()
	if r.holding {
		if r.commits == commits && now.Sub(r.began) < snapshotAge {
			return nil
		}
		if err := r.end(); err != nil {
			return err
		}
	}
	if err := r.conn.exec("BEGIN"); err != nil {
		return err
	}
	r.holding, r.began, r.commits = true, now, commits
	return nil
}

func (r *reader) end() error {
	if !r.holding {
		return nil
	}
	if !r.conn.raw.AutocommitEnabled() {
		if err := r.conn.exec("COMMIT"); err != nil {
			return err
		}
	}
	r.holding = false
	return nil
}
