package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"
)

const (
	// snapshotAge bounds how long a reader keeps its snapshot, and so how long it
	// can keep the log from being reused.
	snapshotAge = 10 * time.Millisecond
	// lockTimeout is how long a write waits for another process, a backup for example.
	lockTimeout = 5 * time.Second

	connectionFlags = sqlite.OpenReadWrite | sqlite.OpenCreate
	readerBusy      = "PRAGMA busy_timeout = 2000"
)

// database is an open file: one writer and some readers.
type database struct {
	engine *Engine
	path   string
	// commits counts the writes that have been committed. A snapshot taken before the latest is stale.
	commits atomic.Uint64

	// statistics counts how often the planner's statistics were renewed.
	statistics atomic.Uint64

	writing    chan struct{} // held by the writer
	writer     *conn         // nil after a failure, until the next write
	unmeasured int           // documents written since the statistics were looked at

	reading chan struct{} // one for each reader in use
	mu      sync.Mutex
	idle    []*reader
	sweeper *time.Timer
	armed   bool
	closed  bool
}

// reader is a connection that may hold a snapshot between two uses.
type reader struct {
	conn    *conn
	holding bool
	began   time.Time
	commits uint64
	// statistics tells which ones the connection has read.
	statistics uint64
}

// openDatabase opens the file, making it when missing. It leaves files alone that are
// not this program's or are newer.
func openDatabase(ctx context.Context, e *Engine, path string) (*database, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkFile(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	db := &database{engine: e, path: path, writing: make(chan struct{}, 1), reading: make(chan struct{}, e.opts.Readers)}
	if db.writer, err = db.openWriter(); err != nil {
		return nil, err
	}
	return db, nil
}

func (db *database) openWriter() (*conn, error) {
	pragmas := []string{
		"PRAGMA busy_timeout = 2000", "PRAGMA journal_mode = WAL", "PRAGMA busy_timeout = 0", "PRAGMA synchronous = FULL", "PRAGMA temp_store = MEMORY",
		"PRAGMA cache_size = -16384", "PRAGMA wal_autocheckpoint = 8000", "PRAGMA journal_size_limit = 67108864",
	}
	if db.engine.opts.maxPages != nil {
		pragmas = append(pragmas, fmt.Sprintf("PRAGMA max_page_count = %d", db.engine.opts.maxPages()))
	}
	return openConn(db.path, connectionFlags, pragmas...)
}

func (db *database) close() error {
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
	return errors.Join(errs...)
}

// reader returns a reader whose next statement sees every acknowledged write. putReader must follow.
func (db *database) reader(ctx context.Context) (*reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case db.reading <- struct{}{}:
	default:
		select {
		case db.reading <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r, err := db.takeReader()
	if err == nil {
		if err = r.refresh(db); err != nil {
			_ = r.conn.close()
		}
	}
	if err != nil {
		<-db.reading
		return nil, err
	}
	return r, nil
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
	c, err := openConn(db.path, connectionFlags, readerBusy, "PRAGMA query_only = ON", "PRAGMA temp_store = MEMORY", "PRAGMA cache_size = -4096")
	if err != nil {
		return nil, err
	}
	return &reader{conn: c, statistics: statistics}, nil
}

// putReader gives the reader back; err is what its use ended with.
func (db *database) putReader(r *reader, err error) {
	defer func() { <-db.reading }()
	if r.holding && (err != nil || time.Since(r.began) >= snapshotAge) {
		err = errors.Join(err, r.end())
	}
	if err != nil && (transient(err) || r.holding) {
		_ = r.conn.close()
		return
	}
	db.mu.Lock()
	defer db.mu.Unlock()
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
	if db.closed {
		return
	}
	kept := db.idle[:0]
	again := false
	for _, r := range db.idle {
		if r.holding && time.Since(r.began) >= snapshotAge {
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
	if again {
		db.arm()
	}
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
