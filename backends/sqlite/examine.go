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

// dropTimeout is how long the running calls of a database have before it is left open.
const dropTimeout = time.Second

// Place returns the file of the workspace.
func (e *Engine) Place(name string) string {
	if _, err := os.Stat(e.own(name)); err == nil {
		return e.own(name)
	}
	if e.spaces.Get(name) == nil && (!e.opts.Shared || e.files.Get(name) != nil) {
		ctx, cancel := context.WithTimeout(context.Background(), e.opts.QueryTimeout)
		defer cancel()
		if _, found, _ := e.entry(ctx, name); !found {
			return e.own(name)
		}
	}
	return e.shared(name)
}

// Missing returns a *driver.DamagedError where the workspace has no file, or an empty one, and is in no shared
// one, so that one that was lost, or is on another machine, is not taken for an empty one.
func (e *Engine) Missing(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), e.opts.QueryTimeout)
	defer cancel()
	err := missing(e.own(name))
	if err == nil {
		return nil
	}
	if missing(e.shared(name)) == nil {
		if _, found, failed := e.entry(ctx, name); found || failed != nil {
			return nil // or it is told by who opens it
		}
	}
	if e.Place(name) == e.shared(name) {
		return &driver.DamagedError{Reason: fmt.Sprintf("there is no file %s, and none of several organizations, %s, that has it; put back which of them it was in, or see whether another machine has it", e.own(name), e.shared(name))}
	}
	return err
}

func missing(path string) error {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return &driver.DamagedError{Reason: fmt.Sprintf("there is no file %s; put it back, or see whether another machine has it", path)}
	case err == nil && info.Size() == 0:
		return &driver.DamagedError{Reason: fmt.Sprintf("the file %s is empty; put it back from a backup", path)}
	}
	return nil // anything else is told by who opens it
}

// Size returns how large the files of the workspace are, in bytes, or the documents it has in one that it shares.
func (e *Engine) Size(ctx context.Context, name string) (bytes int64, err error) {
	for _, file := range []string{e.own(name), e.own(name) + "-wal"} {
		if info, err := os.Stat(file); err == nil {
			bytes += info.Size()
		}
	}
	if bytes > 0 {
		return bytes, nil
	}
	ctx, cancel := e.limit(ctx)
	defer cancel()
	err = e.look(ctx, sharedName(name), func(c *conn) error {
		defer c.arm(ctx)()
		there, found, err := entryOf(c, name)
		if err != nil || !found {
			return err
		}
		tables, err := c.tables("c:*")
		for _, table := range tables {
			if err == nil {
				var n int64
				n, err = c.number("SELECT total("+sizeOf+") FROM "+quote(table)+" WHERE ws = ?1", there.id)
				bytes += n
			}
		}
		return err
	})
	return bytes, failed(ctx, "measure "+name, err)
}

// Examine reads the whole database over a connection of its own and checks that it is whole, with all indexes. It
// changes nothing of it. A file of several organizations that was found whole lately is read again only anew.
func (e *Engine) Examine(ctx context.Context, path string, anew bool) error {
	if e.closed.Load() {
		return errClosed
	}
	name := strings.TrimSuffix(filepath.Base(path), ".db")
	err, f := missing(path), e.files.Get(name)
	if f != nil {
		f.dropAstray() // what was put back is looked at, and not what it replaces
	}
	e.mu.Lock()
	lately := !anew && f != nil && isShared(f.name) && time.Since(f.examined) < examinedFor
	e.mu.Unlock()
	switch {
	case err != nil:
		if _, unmarked := os.Stat(path + markSuffix); f == nil && errors.Is(unmarked, fs.ErrNotExist) && !isShared(name) {
			return nil // it was removed with its workspace
		}
	case lately:
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

// check must not open the file by itself: closing it again would end the locks that the
// connections of this process hold.
func (e *Engine) check(ctx context.Context, path string) error {
	defer e.aside.enter(path)()
	doing := "examine " + path
	c, err := (&database{engine: e, path: path}).connect(readerParts, readerSetUp)
	if err != nil {
		return failed(ctx, doing, err)
	}
	fault := ""
	err = c.until(ctx, func() error {
		return c.each("PRAGMA integrity_check(1)", nil, func(row *sqlite.Stmt) { fault = row.ColumnText(0) })
	})
	err = failed(ctx, doing, errors.Join(err, c.close()))
	if err == nil && fault != "ok" {
		return damaged(doing, errors.New(fault))
	}
	return err
}

// damaged returns the error for a file that SQLite cannot make sense of.
func damaged(doing string, err error) error {
	return fmt.Errorf("%s: %w", doing, &driver.DamagedError{Reason: fmt.Sprintf("%s: %v; put it back from a backup", doing, err), Err: err})
}

// astray reports whether the file that is open is not, or no longer, the one at its path.
func (db *database) astray() bool {
	now, err := os.Stat(db.path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(db.file, now)
}

// moved refuses to write to a file that nobody would find again.
func (db *database) moved() error {
	if !db.astray() {
		return nil
	}
	return &driver.DamagedError{Reason: fmt.Sprintf("the file %s was removed or replaced while it was open; put it back", db.path)}
}

// drop closes the database, so that the next call looks at the file anew.
func (f *file) drop() {
	for end := time.Now().Add(dropTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if done, _ := f.closeIdle(); done {
			return
		}
	}
}

// dropAstray closes the database if its file is not where it was. To look is no use of it.
func (f *file) dropAstray() {
	select {
	case f.turn <- struct{}{}:
	default:
		return // somebody opens or closes it
	}
	astray := f.db != nil && f.db.astray()
	f.unlock()
	if astray {
		f.drop()
	}
}
