package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// dropTimeout is how long drop waits for running calls before it leaves the database open.
const dropTimeout = time.Second

// Place implements driver.Examiner. It returns the path that a new workspace would have if the workspace is in no file.
func (e *Engine) Place(name string) string {
	if _, err := os.Stat(e.ownPath(name)); err == nil {
		return e.ownPath(name)
	}
	if e.spaces.Get(name) == nil && (!e.opts.Shared || e.files.Get(name) != nil) {
		ctx, cancel := context.WithTimeout(context.Background(), e.opts.QueryTimeout)
		defer cancel()
		if _, found, _ := e.entry(ctx, name); !found {
			return e.ownPath(name)
		}
	}
	return e.sharedPath(name)
}

// Missing implements driver.Examiner. It returns a *driver.DamagedError if the workspace has no file, or an empty one,
// and is in no shared file, so that a workspace that was lost, or is on another machine, is not taken for an empty one.
func (e *Engine) Missing(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), e.opts.QueryTimeout)
	defer cancel()
	err := missing(e.ownPath(name))
	if err == nil {
		return nil
	}
	gone := missing(e.sharedPath(name))
	if gone == nil {
		if _, found, lookupErr := e.entry(ctx, name); found || lookupErr != nil {
			return nil // opening the workspace reports an error
		}
	}
	switch {
	case e.Place(name) != e.sharedPath(name):
		return err
	case gone != nil:
		return gone // the organizations in it are all missing, and only old ones had files of their own
	default:
		return &driver.DamagedError{Reason: fmt.Sprintf("there is no file %s, and the organization is not in the shared file %s; "+
			"put back the file that it was in, or check whether another machine has it", e.ownPath(name), e.sharedPath(name))}
	}
}

// missing returns a *driver.DamagedError if the file does not exist or is empty.
func missing(path string) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return &driver.DamagedError{
			Reason: fmt.Sprintf("there is no file %s; put it back, or check whether another machine has it", path),
		}
	case err == nil && info.Size() == 0:
		return &driver.DamagedError{Reason: fmt.Sprintf("the file %s is empty; put it back from a backup", path)}
	}
	return nil // opening the file reports other errors
}

// Size implements driver.Sizer.
func (e *Engine) Size(ctx context.Context, name string) (bytes int64, err error) {
	for _, file := range []string{e.ownPath(name), e.ownPath(name) + "-wal"} {
		if info, err := os.Stat(file); err == nil {
			bytes += info.Size()
		}
	}
	if bytes > 0 {
		return bytes, nil
	}
	ctx, cancel := e.limit(ctx)
	defer cancel()
	err = e.readShared(ctx, sharedName(name), func(c *conn) error {
		defer c.interruptAt(ctx)()
		there, found, err := entryOf(c, name)
		if err != nil || !found {
			return err
		}
		tables, err := c.tables("c:*")
		for _, table := range tables {
			if err == nil {
				var n int64
				n, err = c.number("SELECT total("+sizeExpr+") FROM "+quote(table)+" WHERE ws = ?1", there.id)
				bytes += n
			}
		}
		return err
	})
	return bytes, wrapError(ctx, "measure "+name, err)
}

// Examine implements driver.Examiner. It checks the integrity of the whole database, including all indexes, over a
// connection of its own, and does not change the file. Only shared files are subject to anew: they are examined at most
// once in examinationAge otherwise.
func (e *Engine) Examine(ctx context.Context, path string, anew bool) error {
	if e.closed.Load() {
		return errClosed
	}
	name := strings.TrimSuffix(filepath.Base(path), ".db")
	err, f := missing(path), e.files.Get(name)
	if f != nil {
		f.dropReplaced() // so that a file that was put back is examined
	}
	e.mu.Lock()
	recently := !anew && f != nil && isShared(f.name) && time.Since(f.examined) < examinationAge
	e.mu.Unlock()
	switch {
	case err != nil:
		if _, unmarked := os.Stat(path + markSuffix); f == nil && errors.Is(unmarked, fs.ErrNotExist) && !isShared(name) {
			return nil // it was removed with its workspace
		}
	case recently:
		return nil
	default:
		if err = e.check(ctx, path); err == nil {
			err = unmark(path)
		}
	}
	switch {
	case f == nil:
	case err == nil:
		e.mu.Lock()
		f.examined = time.Now()
		e.mu.Unlock()
	case errors.As(err, new(*driver.DamagedError)):
		f.drop()
	}
	return err
}

// check runs SQLite's integrity check. It must not open the file other than through SQLite, because closing it again
// would release the locks of this process's connections.
func (e *Engine) check(ctx context.Context, path string) error {
	defer e.sideConns.enter(path)()
	doing := "examine " + path
	c, err := (&database{engine: e, path: path}).connect(readerShares, readerPragmas)
	if err != nil {
		return wrapError(ctx, doing, err)
	}
	fault := ""
	err = c.runUntil(ctx, func() error {
		return c.each("PRAGMA integrity_check(1)", nil, func(row *sqlite.Stmt) { fault = row.ColumnText(0) })
	})
	err = wrapError(ctx, doing, errors.Join(err, c.close()))
	if err == nil && fault != "ok" {
		return damaged(doing, errors.New(fault))
	}
	return err
}

// damaged returns the error for a file that SQLite reports as damaged.
func damaged(doing string, err error) error {
	what := err.Error()
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultNotADB {
		what = "the file is not a SQLite database"
	}
	return &driver.DamagedError{Reason: fmt.Sprintf("%s: %s; put it back from a backup", doing, what), Err: err}
}

// replaced reports whether the open file was removed from its path, or replaced by another.
func (db *database) replaced() bool {
	now, err := os.Stat(db.path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(db.file, now)
}

// checkInPlace returns a *driver.DamagedError if the open file is not at its path any more, because writes to it would
// be lost.
func (db *database) checkInPlace() error {
	if !db.replaced() {
		return nil
	}
	return &driver.DamagedError{
		Reason: fmt.Sprintf("the file %s was removed or replaced while it was open; put it back", db.path),
	}
}

// drop closes the database, so that the next call opens the file again. It waits up to dropTimeout for running calls.
func (f *file) drop() {
	for end := time.Now().Add(dropTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if done, _ := f.closeIdle(); done {
			return
		}
	}
}

// dropReplaced closes the database if its file was removed or replaced. It does not count as a use of the file.
func (f *file) dropReplaced() {
	select {
	case f.mutex <- struct{}{}:
	default:
		return // it is being opened or closed
	}
	replaced := f.db != nil && f.db.replaced()
	f.unlock()
	if replaced {
		f.drop()
	}
}
