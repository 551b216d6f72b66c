package sqlite

import (
	"context"
	"errors"
	"time"

	"zombiezen.com/go/sqlite"
)

// transact calls do in a transaction of the workspace's file. Error: errRemoved if the workspace was removed.
func (w *workspace) transact(
	ctx context.Context, doing string, of load, touched map[partition]bool, do func(context.Context, *conn) error,
) error {
	wait, cancel := w.engine.limit(ctx)
	defer cancel()
	db, err := w.acquire(wait)
	if err != nil {
		return wrapError(wait, doing, err)
	}
	defer w.file.release()
	err = db.transact(ctx, wait, of, touched, func(c *conn) error {
		if err := w.checkPresent(c); err != nil {
			return err
		}
		return do(ctx, c)
	})
	if ctx.Err() == nil {
		return wrapError(wait, doing, err)
	}
	return wrapError(ctx, doing, err)
}

// begin begins a transaction and returns the writer.
func (db *database) begin(ctx context.Context) (c *conn, err error) {
	if err := errors.Join(ctx.Err(), db.checkInPlace()); err != nil {
		return nil, err
	}
	if db.writer == nil {
		if db.writer, err = db.openWriter(); err != nil {
			return nil, err
		}
	}
	db.followBeforeWrite()
	if err := begin(ctx, db.writer); err != nil {
		db.rollback(err)
		return nil, err
	}
	return db.writer, nil
}

// begin begins a transaction. It waits for locks of other processes, such as a backup, until ctx ends and for at most
// lockTimeout.
func begin(ctx context.Context, c *conn) error {
	clear(c.present)
	clear(c.tally)
	deadline := time.Now().Add(lockTimeout)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := c.exec("BEGIN IMMEDIATE")
		if err == nil || sqlite.ErrCode(err).ToPrimary() != sqlite.ResultBusy || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// commit commits the writer's transaction. It first ends the snapshots of idle readers: these become stale anyway, and
// while they last the log cannot be checkpointed completely, so that it grows and every commit tries again.
func (db *database) commit(c *conn) error {
	db.mu.Lock()
	db.endSnapshots(0)
	db.mu.Unlock()
	if err := c.storeTally(db.shared); err != nil {
		return err
	}
	if l := db.engine.pages.Load(); l != nil {
		l.pass()
	}
	defer db.noteCommit() // also after an error: the commit may have reached the log
	return c.exec("COMMIT")
}

// commitFailed ends a transaction whose commit failed. The commit may have reached the log nevertheless, so readers
// must begin new snapshots and all counts are forgotten.
func (db *database) commitFailed(cause error) {
	db.rollback(cause)
	db.commits.Add(1)
	db.counts.changed(nil)
}

// rollback rolls the transaction back. It closes the writer if it cannot be used again after the cause.
func (db *database) rollback(cause error) {
	var err error
	if !db.writer.raw.AutocommitEnabled() {
		err = db.writer.exec("ROLLBACK")
	}
	if err != nil || broken(cause) {
		_ = db.writer.close()
		db.writer = nil
	}
}
