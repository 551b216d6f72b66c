package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"zombiezen.com/go/sqlite"

	"tenantry/backends/driver"
)

// checkpointState is how far the log has been checkpointed into the file.
type checkpointState struct {
	commits  atomic.Uint64 // database.commits whose pages are in the file, or neverCheckpointed
	knownAt  atomic.Int64  // when that was last known, Unix nanoseconds
	lastSeen uint64        // database.commits at the last call of checkpointIdle
}

// neverCheckpointed is the initial state: the log may stem from a process that was killed.
const neverCheckpointed = math.MaxUint64

func (s *checkpointState) record(commits uint64) {
	s.commits.Store(commits)
	s.knownAt.Store(time.Now().UnixNano())
}

// checkpointIdle checkpoints the log, so that little recent data is in the log alone. If nothing was written since the
// last call, it truncates the log too. It is called periodically, so it does not wait for readers or writers.
func (db *database) checkpointIdle() {
	s, commits := &db.checkpoints, db.commits.Load()
	mode := "PASSIVE"
	if commits == s.lastSeen {
		mode = "TRUNCATE"
	}
	s.lastSeen = commits
	if mode == "TRUNCATE" {
		if emptied, logged := db.restLog(context.Background(), time.Second, db.tryWriter); logged {
			if emptied {
				s.record(commits)
			}
			return
		}
	}
	if mode == "TRUNCATE" || commits != s.commits.Load() {
		mark, held := db.heldLog()
		moved, filed, err := db.checkpoint(mode)
		if err == nil && !moved && mark > 0 && filed >= int64(mark) { // all but what was written since the last cut
			s.knownAt.Store(held.UnixNano())
		}
		if err != nil || !moved { // Lag shows it, and the next write reports an error
			return
		}
	}
	s.record(commits)
}

// checkpoint checkpoints the log over a connection of its own. It reports whether that was complete, and how many frames
// of the log are in the file. It does not truncate the log of a file that is followed: restLog does.
func (db *database) checkpoint(mode string) (complete bool, filed int64, err error) {
	if info, err := os.Stat(db.path + "-wal"); err != nil || info.Size() == 0 {
		return true, 0, nil //nolint:nilerr // there is no log
	}
	c, err := db.connect(readerShares)
	if err != nil {
		return false, 0, err
	}
	c.raw.SetBusyTimeout(0)
	do := func() {
		err = c.each("PRAGMA wal_checkpoint("+mode+")", nil, func(row *sqlite.Stmt) {
			filed = row.ColumnInt64(2)
			complete = row.ColumnInt64(1) == row.ColumnInt64(2) && !row.ColumnBool(0)
		})
	}
	if mode == "TRUNCATE" {
		db.whileNotFollowed(do)
	} else {
		do()
	}
	if e := c.close(); err == nil {
		err = e
	}
	return complete, filed, err
}

// checkpointIdle calls database.checkpointIdle if the database is open. It does not count as a use of the file.
func (f *file) checkpointIdle() {
	if !f.retain() {
		return
	}
	defer f.unref()
	f.db.checkpointIdle()
}

// truncatePause is the pause between two attempts to truncate a log that is being read.
const truncatePause = 5 * time.Millisecond

// Checkpoint implements driver.Checkpointer. It truncates the logs of the workspace's own file and of its shared file.
func (e *Engine) Checkpoint(ctx context.Context, workspace string) error {
	ctx, cancel := e.limit(ctx)
	defer cancel()
	return errors.Join(e.checkpointFile(ctx, e.ownPath(workspace)), e.checkpointFile(ctx, e.sharedPath(workspace)))
}

func (e *Engine) checkpointFile(ctx context.Context, path string) error {
	doing := "truncate the log of " + path
	defer e.sideConns.enter(path)()
	for {
		if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 {
			return nil //nolint:nilerr // there is no log
		}
		if err := e.restFile(ctx, path); err != nil {
			return wrapError(ctx, doing, err)
		}
		done, _, err := (&database{engine: e, path: path}).checkpoint("TRUNCATE")
		if done || err != nil && !broken(err) {
			return wrapError(ctx, doing, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: another program, such as a backup, is reading it: %w", driver.ErrUnavailable, doing, ctx.Err())
		case <-time.After(truncatePause):
		}
	}
}

// restFile ends what keeps the log of a file from being truncated, and empties it if it is followed. Error: that of the
// context.
func (e *Engine) restFile(ctx context.Context, path string) error {
	f, err := e.file(strings.TrimSuffix(filepath.Base(path), ".db"))
	if err != nil {
		return err
	}
	if !f.retain() {
		if err := f.lock(ctx); err != nil { // so that it is not opened meanwhile
			return err
		}
		defer f.unlock()
		if !f.retain() {
			(&database{engine: e, path: path}).closeLog()
			return nil
		}
	}
	defer f.unref()
	f.db.restLog(ctx, time.Second, func() func() { return f.db.awaitWriter(ctx) })
	f.db.mu.Lock()
	defer f.db.mu.Unlock()
	f.db.endSnapshots(0)
	return nil
}

// Lag implements driver.Checkpointer.
func (e *Engine) Lag() (bytes int64, age time.Duration) {
	now := time.Now()
	for _, f := range e.opened() {
		if !f.retain() {
			continue
		}
		if info, err := os.Stat(f.path + "-wal"); err == nil {
			bytes += info.Size()
		}
		if s := &f.db.checkpoints; f.db.commits.Load() != s.commits.Load() {
			age = max(age, now.Sub(time.Unix(0, s.knownAt.Load())))
		}
		f.unref()
	}
	return bytes, age
}

// checkpointRows is the number of written rows after which the log is checkpointed in the background.
const checkpointRows = 4_000

// checkpointAhead checkpoints the log on a connection of its own while other calls write. Otherwise the writer would do
// it when the log reaches 8,000 pages, as part of a commit for which callers wait. The caller holds the writer.
func (db *database) checkpointAhead(rows int) {
	if db.rowsSinceCheckpoint += rows; db.rowsSinceCheckpoint < db.engine.opts.checkpointRows || db.checkpointing.Swap(true) {
		return
	}
	db.rowsSinceCheckpoint = 0
	db.background.Go(func() {
		defer db.checkpointing.Store(false)
		c, err := db.connect(readerShares)
		if err == nil { // otherwise the writer does it later
			_ = c.each("PRAGMA wal_checkpoint(PASSIVE)", nil, func(*sqlite.Stmt) {})
			_ = c.close()
		}
		db.recycleLog()
	})
}

// truncateLog truncates a long log in the background. That is possible only while no reader uses the log, which under
// load may never happen by itself. So it holds back new readers for a moment until the running ones have finished, and
// gives up and tries again later if one of them takes long. Writes are not held back by that wait, because their
// deadlines may be short. The caller holds the writer.
func (db *database) truncateLog() {
	most := db.engine.opts.maxLog
	log, err := os.Stat(db.path + "-wal")
	if err != nil || log.Size() <= most {
		return
	}
	if log.Size() <= db.lastLogSize+most/4 && time.Since(db.lastTruncation) < truncateInterval {
		return
	}
	if db.truncating.Swap(true) {
		return
	}
	db.lastLogSize, db.lastTruncation = log.Size(), time.Now()
	db.background.Go(func() {
		defer db.truncating.Store(false)
		if _, logged := db.restLog(context.Background(), truncateWait, db.holdAll); logged {
			return
		}
		db.whileNotFollowed(func() {
			release := db.holdAll()
			if release == nil {
				return
			}
			defer release()
			db.mu.Lock()
			db.endSnapshots(0)
			db.mu.Unlock()
			if db.writer == nil {
				return
			}
			// The next write reports an error.
			_ = db.writer.each("PRAGMA wal_checkpoint(TRUNCATE)", nil, func(row *sqlite.Stmt) {
				if busy := row.ColumnBool(0); !busy { // it is busy if another program, such as a backup, reads the log
					db.lastLogSize = 0
				}
			})
		})
	})
}

// holdAll holds back new readers and writes, and returns a function that ends that. It returns nil if the running ones
// take longer than truncateWait.
func (db *database) holdAll() (release func()) {
	ctx, cancel := context.WithTimeout(context.Background(), truncateWait)
	defer cancel()
	var held []func()
	release = func() {
		for _, end := range slices.Backward(held) {
			end()
		}
	}
	for _, lane := range []chan struct{}{db.readerSlots, db.lanes.long} {
		for range cap(lane) {
			select {
			case lane <- struct{}{}:
				held = append(held, func() { <-lane })
			case <-ctx.Done():
				release()
				return nil
			}
		}
	}
	writer := db.awaitWriter(ctx)
	if writer == nil {
		release()
		return nil
	}
	held = append(held, writer)
	return release
}

// awaitWriter takes the writer and returns a function that releases it, or nil if ctx ends before.
func (db *database) awaitWriter(ctx context.Context) (release func()) {
	select {
	case db.writerLock <- struct{}{}:
		return db.releaseWriter
	case <-ctx.Done():
		return nil
	}
}

// tryWriter is awaitWriter without waiting.
func (db *database) tryWriter() (release func()) {
	select {
	case db.writerLock <- struct{}{}:
		return db.releaseWriter
	default:
		return nil
	}
}
