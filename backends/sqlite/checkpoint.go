package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"

	"zombiezen.com/go/sqlite"
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
	if mode == "TRUNCATE" || commits != s.commits.Load() {
		if moved, err := db.checkpoint(mode); err != nil || !moved { // Lag shows it, and the next write reports an error
			return
		}
	}
	s.record(commits)
}

// checkpoint checkpoints the log over a connection of its own, and reports whether it was complete.
func (db *database) checkpoint(mode string) (complete bool, err error) {
	if info, err := os.Stat(db.path + "-wal"); err != nil || info.Size() == 0 {
		return true, nil //nolint:nilerr // there is no log
	}
	c, err := db.connect(readerShares)
	if err != nil {
		return false, err
	}
	c.raw.SetBusyTimeout(0)
	err = c.each("PRAGMA wal_checkpoint("+mode+")", nil, func(row *sqlite.Stmt) {
		complete = row.ColumnInt64(1) == row.ColumnInt64(2) && !row.ColumnBool(0)
	})
	if e := c.close(); err == nil {
		err = e
	}
	return complete, err
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
		for _, f := range e.opened() {
			if f.path == path && f.retain() {
				f.db.mu.Lock()
				f.db.endSnapshots(0)
				f.db.mu.Unlock()
				f.unref()
			}
		}
		done, err := (&database{engine: e, path: path}).checkpoint("TRUNCATE")
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
