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

// settling notes how far the log has been moved into the file.
type settling struct {
	commits atomic.Uint64 // whose pages are in the file; before the first look none
	at      atomic.Int64  // when that was known last, Unix nanoseconds
	seen    uint64        // commits at the last look
}

// unsettled is what a database begins with: its log may be of a process that was killed.
const unsettled = math.MaxUint64

func (s *settling) note(commits uint64) {
	s.commits.Store(commits)
	s.at.Store(time.Now().UnixNano())
}

// settle moves what the log has into the file, so that little of a day's work is in the log alone: all of it, and the
// log is emptied, once nobody has written since the last look. It waits for nobody, and comes again.
func (db *database) settle() {
	s, commits := &db.settling, db.commits.Load()
	mode := "PASSIVE"
	if commits == s.seen {
		mode = "TRUNCATE"
	}
	s.seen = commits
	if mode == "TRUNCATE" || commits != s.commits.Load() {
		if moved, err := db.moveLog(mode); err != nil || !moved { // Lag tells, and who writes next
			return
		}
	}
	s.note(commits)
}

// moveLog has a connection of its own move the log into the file, and reports whether all of it was.
func (db *database) moveLog(mode string) (moved bool, err error) {
	if info, err := os.Stat(db.path + "-wal"); err != nil || info.Size() == 0 {
		return true, nil //nolint:nilerr // there is no log
	}
	c, err := db.connect(readerParts)
	if err != nil {
		return false, err
	}
	c.raw.SetBusyTimeout(0)
	err = c.each("PRAGMA wal_checkpoint("+mode+")", nil, func(row *sqlite.Stmt) {
		moved = row.ColumnInt64(1) == row.ColumnInt64(2) && !row.ColumnBool(0)
	})
	if e := c.close(); err == nil {
		err = e
	}
	return moved, err
}

// settle is the database's, where it is open. To look is no use of it.
func (f *file) settle() {
	if !f.retain() {
		return
	}
	defer f.leave()
	f.db.settle()
}

// settlePause lies between two tries to empty a log that somebody reads.
const settlePause = 5 * time.Millisecond

// Settle empties the logs of the workspace's own file and of the one that it would share.
func (e *Engine) Settle(ctx context.Context, workspace string) error {
	ctx, cancel := e.limit(ctx)
	defer cancel()
	return errors.Join(e.settleFile(ctx, e.own(workspace)), e.settleFile(ctx, e.shared(workspace)))
}

func (e *Engine) settleFile(ctx context.Context, path string) error {
	doing := "empty the log of " + path
	defer e.aside.enter(path)()
	for {
		if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 {
			return nil //nolint:nilerr // there is no log
		}
		for _, f := range e.opened() {
			if f.path == path && f.retain() {
				f.db.mu.Lock()
				f.db.endIdle(0)
				f.db.mu.Unlock()
				f.leave()
			}
		}
		done, err := (&database{engine: e, path: path}).moveLog("TRUNCATE")
		if done || err != nil && !broken(err) {
			return failed(ctx, doing, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s: another program reads it, a backup for example: %w", driver.ErrUnavailable, doing, ctx.Err())
		case <-time.After(settlePause):
		}
	}
}

// Lag returns how many bytes the logs of open files have, and for how long at most something has been in a log alone.
func (e *Engine) Lag() (bytes int64, age time.Duration) {
	now := time.Now()
	for _, f := range e.opened() {
		if !f.retain() {
			continue
		}
		if info, err := os.Stat(f.path + "-wal"); err == nil {
			bytes += info.Size()
		}
		if s := &f.db.settling; f.db.commits.Load() != s.commits.Load() {
			age = max(age, now.Sub(time.Unix(0, s.at.Load())))
		}
		f.leave()
	}
	return bytes, age
}
