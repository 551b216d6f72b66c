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

	"zombiezen.com/go/sqlite"

	"tenantry/backends/driver"
	"tenantry/internal/background"
)

const (
	// snapshotAge bounds how long an idle reader keeps its snapshot. Until it ends, the log cannot be reused.
	snapshotAge = 10 * time.Millisecond
	// lockTimeout is how long a write waits for a lock of another process, such as a backup.
	lockTimeout = 5 * time.Second
	// maxLog is the size of the log, in bytes, above which readers are held back to truncate it; see truncateLog.
	// truncateWait bounds how long an attempt holds them back. The next attempt is made after truncateInterval, or
	// earlier if the log has grown by a quarter of maxLog.
	maxLog           = 64 << 20
	truncateWait     = 200 * time.Millisecond
	truncateInterval = time.Second

	// Readers are opened for writing too, because they may have to recover the log after a crash.
	connectionFlags = sqlite.OpenReadWrite
)

// readerPragmas set up a reader. The journal mode is stored in the file. Sorting and grouping spill to a temporary
// file, because in memory they could take as much as all texts that a query reads.
const readerPragmas = "PRAGMA query_only = ON; PRAGMA temp_store = FILE"

// database is an open file with one writer and several readers. Each connection is opened on first use.
type database struct {
	engine *Engine
	path   string
	shared bool        // by several workspaces
	file   os.FileInfo // of the file when it was opened
	// commits counts committed writes. A snapshot that began before the latest commit is stale.
	commits atomic.Uint64

	// statistics counts the updates of the planner's statistics.
	statistics atomic.Uint64

	queue jobQueue // of writes

	writerLock          chan struct{} // held to use the writer; guards the fields down to rowsSinceCheckpoint
	writer              *conn         // nil before the first write, and after a failure
	unanalyzed          int           // documents written since the statistics were last updated
	lastLogSize         int64         // size of the log at the last attempt to truncate it; 0 after a success
	lastTruncation      time.Time     // of that attempt
	rowsSinceCheckpoint int           // rows written since the last background checkpoint began

	truncating    atomic.Bool
	checkpointing atomic.Bool
	background    sync.WaitGroup // truncateLog and checkpointAhead
	checkpoints   checkpointState

	recent recentCache
	counts countCache
	lanes  lanes

	readerSlots chan struct{} // a semaphore of readers in use, without those of long queries
	mu          sync.Mutex    // guards the fields below
	idle        []*reader
	sweeper     *time.Timer
	armed       bool // sweeper is going to run
	closed      bool
}

// reader is a connection that may keep its snapshot between two uses.
type reader struct {
	conn       *conn
	hasSlot    bool // it holds one of database.readerSlots
	inSnapshot bool
	snapshotAt time.Time
	commits    uint64 // database.commits before the snapshot began
	statistics uint64 // database.statistics before the connection was opened
}

// openDatabase opens the file, which it creates if missing, and migrates it to the schema. Files of another program, a
// newer version or another owner are left unchanged. Errors: driver.ErrNewer, driver.ErrForeign, *driver.DamagedError.
func openDatabase(ctx context.Context, e *Engine, path string, o *driver.Opening, s *schema) (*database, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	logged, err := e.checkFile(path)
	if err != nil {
		return nil, err
	}
	db := &database{
		engine:      e,
		path:        path,
		shared:      s.shared,
		writerLock:  make(chan struct{}, 1),
		readerSlots: make(chan struct{}, e.opts.Readers),
	}
	db.lanes.long = newLane(longPerReader * e.opts.Readers)
	db.lanes.recentlyLong.Size, db.recent.docs.Size = maxKnownLong, maxRecent
	db.checkpoints.record(neverCheckpointed)
	ready := false
	if logged {
		ready, err = db.isPrepared(ctx, o, s)
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

// isPrepared reports whether the file belongs to the owner and matches the schema. It opens the reader that the next
// query uses.
func (db *database) isPrepared(ctx context.Context, o *driver.Opening, s *schema) (bool, error) {
	ready := false
	err := db.withReader(ctx, func(r *reader) (err error) {
		ready, err = s.preparedIn(r.conn, o)
		return err
	})
	return ready, err
}

// create creates an empty file, unless the file exists. Connections never create it: otherwise the next write would
// replace a file that was lost while in use by an empty one.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // opening and closing it could release locks: see sideConns
	}
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return f.Close()
}

func (db *database) openWriter() (*conn, error) {
	// secure_delete overwrites purged data, which would otherwise remain in free pages.
	pragmas := "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA secure_delete = ON;" +
		" PRAGMA wal_autocheckpoint = 8000; PRAGMA journal_size_limit = " + strconv.FormatInt(db.engine.opts.maxLog, 10)
	if db.engine.opts.maxPages != nil {
		pragmas += fmt.Sprintf("; PRAGMA max_page_count = %d", db.engine.opts.maxPages())
	}
	c, err := db.connect(writerShares, pragmas)
	if err == nil {
		c.raw.SetBusyTimeout(0) // begin waits instead, because its wait can be interrupted
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
		errs = append(errs, r.endSnapshot(), r.conn.close())
	}
	// The last connection to close checkpoints the log and deletes it.
	if db.writer != nil {
		db.updateStatistics()
	}
	db.closeLog()
	if db.writer != nil {
		errs = append(errs, db.writer.close())
	}
	// Idle spaces keep a pointer to the database, so its caches are emptied.
	db.recent.docs.Clear()
	db.counts.changed(nil)
	db.lanes.recentlyLong.Clear()
	return errors.Join(errs...)
}

// withReader calls do with a reader whose next statement sees every acknowledged write. A panic of do is returned as an
// error.
func (db *database) withReader(ctx context.Context, do func(*reader) error) error {
	return db.withConn(ctx, true, do)
}

// withConn is withReader. Unless slot is set, it uses an extra connection that takes none of the reader slots.
func (db *database) withConn(ctx context.Context, slot bool, do func(*reader) error) error {
	take := db.reader
	if !slot {
		take = db.extraReader
	}
	r, err := take(ctx)
	if err != nil {
		return err
	}
	err = background.Try(func() error { return do(r) })
	db.putReader(r, err)
	return err
}

// reader waits for a reader slot and returns a reader whose next statement sees every acknowledged write. putReader
// must follow.
func (db *database) reader(ctx context.Context) (*reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := enter(ctx, db.readerSlots); err != nil {
		return nil, err
	}
	r, err := db.extraReader(ctx)
	if err != nil {
		<-db.readerSlots
		return nil, err
	}
	r.hasSlot = true
	return r, nil
}

// extraReader is reader without a reader slot, for long queries, whose number is bounded elsewhere.
func (db *database) extraReader(ctx context.Context) (*reader, error) {
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

// releaseSlot releases the reader's slot, which makes it an extra connection.
func (db *database) releaseSlot(r *reader) {
	if r.hasSlot {
		r.hasSlot = false
		<-db.readerSlots
	}
}

// takeReader returns an idle reader that knows the current statistics, or a new one.
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
		if err := errors.Join(r.endSnapshot(), r.conn.close()); err != nil {
			return nil, err
		}
	}
	c, err := db.connect(readerShares, readerPragmas)
	if err != nil {
		return nil, err
	}
	if err := c.watch(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return &reader{conn: c, statistics: statistics}, nil
}

// putReader returns the reader; err is the error of its use.
func (db *database) putReader(r *reader, err error) {
	if r.hasSlot {
		r.hasSlot = false // before another goroutine can take the reader
		defer func() { <-db.readerSlots }()
	}
	if r.inSnapshot && (err != nil || time.Since(r.snapshotAt) >= snapshotAge) {
		err = errors.Join(err, r.endSnapshot())
	}
	if err != nil && (broken(err) || r.inSnapshot) {
		_ = r.conn.close()
		return
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if r.conn.fit() != nil || len(db.idle) >= cap(db.readerSlots) {
		_ = r.conn.close()
		return
	}
	db.idle = append(db.idle, r)
	if r.inSnapshot && !db.armed {
		db.arm()
	}
}

// arm schedules the next sweep. db.mu is held.
func (db *database) arm() {
	db.armed = true
	if db.sweeper == nil {
		db.sweeper = time.AfterFunc(snapshotAge, db.sweep)
		return
	}
	db.sweeper.Reset(snapshotAge)
}

// sweep ends the expired snapshots of idle readers, and empties the cache of recent documents.
func (db *database) sweep() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.armed = false
	db.recent.docs.Clear()
	if db.closed {
		return
	}
	if db.endSnapshots(snapshotAge) {
		db.arm()
	}
}

// endSnapshots ends the snapshots of idle readers that have at least that age, and reports whether others remain. db.mu
// is held.
func (db *database) endSnapshots(age time.Duration) (remain bool) {
	kept := db.idle[:0]
	for _, r := range db.idle {
		if r.inSnapshot && time.Since(r.snapshotAt) >= age {
			if r.endSnapshot() != nil {
				_ = r.conn.close()
				continue
			}
		}
		remain = remain || r.inSnapshot
		kept = append(kept, r)
	}
	clear(db.idle[len(kept):])
	db.idle = kept
	return remain
}

// refresh begins a snapshot, unless nothing has been committed since the present one. It reads the number of commits
// before it begins: after a commit in between, the next use begins another snapshot.
func (r *reader) refresh(db *database) error {
	if db.engine.opts.noSnapshots {
		return nil
	}
	now := time.Now()
	commits := db.commits.Load()
	if r.inSnapshot {
		if r.commits == commits && now.Sub(r.snapshotAt) < snapshotAge {
			return nil
		}
		if err := r.endSnapshot(); err != nil {
			return err
		}
	}
	if err := r.conn.exec("BEGIN"); err != nil {
		return err
	}
	r.inSnapshot, r.snapshotAt, r.commits = true, now, commits
	return nil
}

// endSnapshot ends the snapshot, if there is one.
func (r *reader) endSnapshot() error {
	if !r.inSnapshot {
		return nil
	}
	if !r.conn.raw.AutocommitEnabled() {
		if err := r.conn.exec("COMMIT"); err != nil {
			return err
		}
	}
	r.inSnapshot = false
	return nil
}

// connect opens a connection with that many shares of the cache.
func (db *database) connect(shares int64, pragmas ...string) (*conn, error) {
	c, err := openConn(db.path, connectionFlags, pragmas...)
	if err != nil {
		return nil, err
	}
	c.cache, c.shares = &db.engine.cache, shares
	if c.cache.count(shares) {
		db.engine.fit()
	}
	if err := c.fit(); err != nil {
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// releaseWriter sets the cache size of the writer and releases it. Afterwards it checks shareSize again: if it changed
// in between, fit may have found the writer in use and relied on this call.
func (db *database) releaseWriter() {
	for {
		known := db.engine.cache.shareSize.Load()
		db.fitWriter()
		<-db.writerLock
		if db.engine.cache.shareSize.Load() == known {
			return
		}
		select {
		case db.writerLock <- struct{}{}:
		default:
			return
		}
	}
}
