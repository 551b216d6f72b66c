package sqlite

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// Where workspaces share files, each has a number in its file, which leads the key of every document and every
// index. Numbers are given once: what was removed cannot come back under another's.
const (
	// sharedFiles is in how many files workspaces are spread. Another number would look for them elsewhere.
	sharedFiles = 8
	// sharedPrefix begins their names, and no workspace's: see driver.CheckName.
	sharedPrefix = "_shared-"
	// sharedOwner stands where a file of one workspace says whose it is.
	sharedOwner = "@shared"
	// removedPrefix begins the name of a workspace whose documents are being deleted.
	removedPrefix = "removed:"
	// clearBatch is how many documents of a removed workspace are deleted at a time, for others wait meanwhile.
	clearBatch = 500
	// examinedFor is how long a file that was read to its end counts as examined: it is asked for once for
	// each workspace in it.
	examinedFor = 10 * time.Minute
)

// space is a workspace within its file.
type space struct {
	name    string
	id      int64  // its number in a shared file; 0 in one of its own
	party   int64  // tells it from others where it waits for its turn
	owner   string // guarded by the engine's lock
	removed atomic.Bool
	// asking has one for each quick question that waits in a lane and is under way, long one for each long one that has
	// a connection: see lanes. Waiting is how many long ones have none yet.
	asking  chan struct{}
	long    chan struct{}
	waiting atomic.Int64
	usage   usage
	// counted says that what it holds has been counted once, countedLater that somebody is at it; see tally.
	counted, countedLater atomic.Bool
	counting              chan struct{}
	// held is the database that was found to hold it. A file that was closed may be another when it is opened again.
	held atomic.Pointer[database]
}

// open gives the space its lanes.
func (s *space) open(e *Engine) {
	s.asking, s.long, s.counting = lane(e.opts.Readers-1), lane(e.opts.Readers/2), make(chan struct{}, 1)
}

// others returns the statements that make what a file has beside its collections.
func (s *schema) others() string {
	if s.shared {
		return " CREATE TABLE IF NOT EXISTS workspaces (name TEXT NOT NULL PRIMARY KEY, ws INTEGER NOT NULL UNIQUE, owner TEXT NOT NULL) WITHOUT ROWID;" +
			" CREATE TABLE IF NOT EXISTS counters (ws INTEGER NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY (ws, name)) WITHOUT ROWID"
	}
	return " CREATE TABLE IF NOT EXISTS counters (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
}

// sharedName returns the name of the shared file that a workspace lies in.
func sharedName(workspace string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(workspace))
	return sharedPrefix + strconv.Itoa(int(h.Sum32()%sharedFiles))
}

// own and shared return the files that a workspace may lie in.
func (e *Engine) own(name string) string { return filepath.Join(e.opts.Dir, name+".db") }

func (e *Engine) shared(name string) string { return e.own(sharedName(name)) }

// shares reports whether the workspace lies in a shared file, or is to. Error: *driver.DamagedError where it
// lies in two.
func (e *Engine) shares(ctx context.Context, o *driver.Opening) (bool, error) {
	info, err := os.Stat(e.own(o.Workspace))
	own := err == nil && info.Size() > 0
	_, found, err := e.entry(ctx, o.Workspace)
	switch {
	case err != nil:
		return false, err
	case own && found:
		return false, &driver.DamagedError{Reason: fmt.Sprintf("workspace %s lies both in %s and in %s; put back what belongs together, or move the file away",
			o.Workspace, e.own(o.Workspace), e.shared(o.Workspace))}
	case own || found:
		return found, nil
	}
	return e.opts.Shared && !o.Apart, nil
}

// entry is what a shared file says of a workspace.
type entry struct {
	id    int64
	owner string
}

func entryOf(c *conn, name string) (found entry, is bool, err error) {
	err = c.each("SELECT ws, owner FROM workspaces WHERE name = ?1", []any{name}, func(row *sqlite.Stmt) {
		found, is = entry{row.ColumnInt64(0), row.ColumnText(1)}, true
	})
	return found, is, err
}

// entry returns what the shared file of the workspace says of it, if it does.
func (e *Engine) entry(ctx context.Context, name string) (found entry, is bool, err error) {
	err = e.look(ctx, sharedName(name), func(c *conn) error {
		found, is, err = entryOf(c, name)
		return err
	})
	return found, is, failed(ctx, "look for "+name+" in "+e.shared(name), err)
}

// entry is entryOf, asked of a reader.
func (db *database) entry(ctx context.Context, name string) (found entry, is bool, err error) {
	err = db.ask(ctx, func(r *reader) (err error) {
		found, is, err = entryOf(r.conn, name)
		return err
	})
	return found, is, err
}

// look calls do on a connection that reads the shared file of that name, unless there is none. It changes nothing.
func (e *Engine) look(ctx context.Context, name string, do func(*conn) error) error {
	f := e.files.Get(name)
	if e.closed.Load() {
		return errClosed
	}
	if f != nil && f.retain() {
		db, err := f.opened()
		if err != nil {
			return err
		}
		defer f.release()
		return db.ask(ctx, func(r *reader) error { return do(r.conn) })
	}
	path := e.own(name)
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return ctx.Err()
	}
	return e.reading(path, func(c *conn, stored map[string]string) error {
		if stored[ownerRow] != sharedOwner {
			return nil // it is being made, or another's, which is told by who opens it
		}
		return do(c)
	})
}

// admit returns the workspace of a shared file that has been prepared, and makes it the owner's.
func (e *Engine) admit(ctx context.Context, f *file, o *driver.Opening) (*space, error) {
	db, err := f.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer f.release()
	for {
		s, err := e.admitTo(ctx, f, db, o)
		if s != nil || err != nil {
			return s, err
		}
	}
}

// admitTo returns nil where one was removed meanwhile, and it may have been this one.
func (e *Engine) admitTo(ctx context.Context, f *file, db *database, o *driver.Opening) (*space, error) {
	e.mu.Lock()
	removed := e.removed
	e.mu.Unlock()
	there, found, err := db.entry(ctx, o.Workspace)
	if err == nil && (!found || there.owner != o.Owner || o.New && o.Owner == "") {
		err = db.transact(ctx, ctx, load{documents: 1, rows: 1}, map[shelf]bool{}, func(c *conn) (err error) {
			there, err = f.claim(c, o)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	if e.opts.admitting != nil {
		e.opts.admitting()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.removed != removed {
		return nil, nil
	}
	s := e.spaces.Get(o.Workspace)
	if s == nil || s.id != there.id {
		s = &space{name: o.Workspace, id: there.id, party: there.id}
		s.open(e)
		e.spaces.Put(o.Workspace, s)
	}
	s.owner = o.Owner
	s.held.Store(db)
	return s, nil
}

// claim writes down the workspace, and whose it is.
func (f *file) claim(c *conn, o *driver.Opening) (entry, error) {
	there, found, err := entryOf(c, o.Workspace)
	if err != nil {
		return there, err
	}
	claim, err := o.Admit(there.owner, f.path, func() (bool, error) {
		if !found {
			return false, nil // its number will be new
		}
		tables, err := c.tables("c:*")
		some := int64(0)
		for _, table := range tables {
			if err != nil || some > 0 {
				break
			}
			some, err = c.number("SELECT 1 FROM "+quote(table)+" WHERE ws = ?1 LIMIT 1", there.id)
		}
		return some > 0, err
	})
	switch {
	case err != nil:
	case !found:
		there = entry{owner: o.Owner}
		if there.id, err = c.counter(true, 0, "workspaces", 1, 0); err == nil {
			err = c.exec("INSERT INTO workspaces (name, ws, owner) VALUES (?1, ?2, ?3)", o.Workspace, there.id, o.Owner)
		}
	case claim:
		there.owner = o.Owner
		err = c.exec("UPDATE workspaces SET owner = ?2 WHERE name = ?1", o.Workspace, o.Owner)
	}
	return there, err
}

// tables returns the names of those that match.
func (c *conn) tables(like string) ([]string, error) {
	return c.words("SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB ?1 ORDER BY name", like)
}

// acquire returns the database that holds the workspace; release must follow.
func (w *workspace) acquire(ctx context.Context) (*database, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.engine.contention.note(w.space)
	db, err := w.file.acquire(ctx)
	if err != nil || w.space.id == 0 {
		return db, err
	}
	if w.space.removed.Load() {
		err = errRemoved
	} else if w.space.held.Load() != db {
		err = w.hold(ctx, db)
	}
	if err != nil {
		w.file.release()
		return nil, err
	}
	return db, nil
}

// hold sees whether a file that was opened again has the workspace under its number.
func (w *workspace) hold(ctx context.Context, db *database) error {
	there, found, err := db.entry(ctx, w.space.name)
	w.engine.mu.Lock()
	owner := w.space.owner
	w.engine.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !found || there.id != w.space.id:
		return &driver.DamagedError{Reason: fmt.Sprintf("the file %s was replaced by one that does not hold workspace %s as it was; put it back, or restart", db.path, w.space.name)}
	case there.owner != owner:
		return &driver.ForeignError{Workspace: w.space.name, Where: w.space.name + " in " + db.path, Owner: there.owner, Wanted: owner}
	}
	w.space.held.Store(db)
	return nil
}

// there sees in a transaction whether the workspace has not been removed: what it wrote then would be left behind.
func (w *workspace) there(c *conn) error {
	if !w.shared || c.there[w.space.id] {
		return nil
	}
	there, found, err := entryOf(c, w.space.name)
	if err == nil && (!found || there.id != w.space.id) {
		return errRemoved
	}
	if err == nil {
		c.there[w.space.id] = true // until the transaction ends: nobody is removed in one that others share
	}
	return err
}

// prepareShared brings a shared file up to date with the schema.
func (f *file) prepareShared(ctx context.Context, s *schema) error {
	return f.prepare(ctx, &driver.Opening{Workspace: f.name, Owner: sharedOwner}, s)
}

// removeShared takes the workspace out of its shared file, and then deletes what it held there, with what
// others before it left.
func (e *Engine) removeShared(ctx context.Context, name, owner string) error {
	some := false
	if err := e.look(ctx, sharedName(name), func(c *conn) (err error) {
		if _, some, err = entryOf(c, name); !some && err == nil {
			some, err = c.left()
		}
		return err
	}); err != nil {
		return failed(ctx, "whose "+name+" in "+e.shared(name)+" is cannot be told, so it is left", err)
	}
	if !some {
		return nil
	}
	f, err := e.file(sharedName(name))
	if err != nil {
		return err
	}
	if err := f.prepareShared(ctx, &schema{shared: true, tables: map[string]*table{}}); err != nil {
		return err
	}
	db, err := f.acquire(ctx)
	if err != nil {
		return err
	}
	defer f.release()
	before, gone := e.spaces.Get(name), int64(0)
	if err := db.transact(ctx, ctx, load{}, nil, func(c *conn) (err error) {
		gone, err = f.takeOut(c, name, owner)
		return err
	}); err != nil {
		return failed(ctx, "remove "+name+" from "+f.path, err)
	}
	e.mu.Lock()
	e.removed++
	if s := e.spaces.Get(name); s != nil && (s == before || s.id == gone) { // somebody may have made it anew
		e.spaces.Delete(name, s)
		s.removed.Store(true)
	}
	if before != nil {
		before.removed.Store(true)
	}
	e.mu.Unlock()
	return failed(ctx, "delete what is left of "+name+" in "+f.path, db.clear(ctx))
}

// takeOut gives the workspace a name that nobody asks for, and returns its number.
func (f *file) takeOut(c *conn, name, owner string) (int64, error) {
	there, found, err := entryOf(c, name)
	if err != nil || !found {
		return 0, err
	}
	if _, err := (&driver.Opening{Workspace: name, Owner: owner}).Admit(there.owner, f.path, nil); err != nil {
		return 0, err
	}
	if err := c.exec("UPDATE workspaces SET name = ?2 WHERE name = ?1", name, removedPrefix+strconv.FormatInt(there.id, 10)); err != nil {
		return 0, err
	}
	f.fields.change(func(all map[fieldKey]*fieldIndex) {
		for key := range all {
			if key.ws == there.id {
				delete(all, key)
			}
		}
	})
	return there.id, nil
}

// left reports whether the file has documents of a removed workspace.
func (c *conn) left() (bool, error) {
	some, err := c.number("SELECT 1 FROM workspaces WHERE name GLOB ?1 LIMIT 1", removedPrefix+"*")
	return some > 0, err
}

// clear deletes what removed workspaces held in a shared file, a few documents at a time.
func (db *database) clear(ctx context.Context) error {
	for {
		done, err := false, error(nil)
		err = db.transact(ctx, ctx, load{documents: clearBatch, rows: maxGroupRows}, map[shelf]bool{}, func(c *conn) error {
			done, err = c.clearSome()
			return err
		})
		if err != nil || done {
			return err
		}
	}
}

// clearSome reports whether nothing is left.
func (c *conn) clearSome() (done bool, err error) {
	var name string
	var ws int64
	if err := c.each("SELECT name, ws FROM workspaces WHERE name GLOB ?1 LIMIT 1", []any{removedPrefix + "*"}, func(row *sqlite.Stmt) {
		name, ws = row.ColumnText(0), row.ColumnInt64(1)
	}); err != nil || name == "" {
		return true, err
	}
	for _, of := range []struct{ tables, key string }{{"e:*", "number, v, id"}, {"fields", "tbl, number"}, {"c:*", "id"}, {"s:*", "value, id"}, {"counters", "name"}} {
		tables, err := c.tables(of.tables)
		if err != nil {
			return false, err
		}
		for _, table := range tables {
			if err := c.exec("DELETE FROM "+quote(table)+" WHERE ws = ?1 AND ("+of.key+") IN (SELECT "+of.key+" FROM "+quote(table)+" WHERE ws = ?1 LIMIT ?2)", ws, int64(clearBatch)); err != nil {
				return false, err
			}
			if c.raw.Changes() == clearBatch {
				return false, nil
			}
		}
	}
	return false, c.exec("DELETE FROM workspaces WHERE name = ?1", name)
}

// clearLater has what is left in a shared file deleted, once for each time that the program runs.
func (e *Engine) clearLater(f *file) {
	if f.cleared.Swap(true) {
		return
	}
	select {
	case e.jobs <- func(ctx context.Context) {
		some := false
		err := e.look(ctx, f.name, func(c *conn) (err error) {
			some, err = c.left()
			return err
		})
		if err == nil && !some {
			return
		}
		db, err := f.acquire(ctx)
		if err == nil {
			err = db.clear(ctx)
			f.release()
		}
		f.cleared.Store(err == nil)
	}:
	default:
		f.cleared.Store(false)
	}
}

// sharedResidents adds the workspaces of the shared files to the names.
func (e *Engine) sharedResidents(ctx context.Context, names []string) ([]string, error) {
	for i := range sharedFiles {
		file := sharedPrefix + strconv.Itoa(i)
		if err := e.look(ctx, file, func(c *conn) error {
			return c.each("SELECT name FROM workspaces", nil, func(row *sqlite.Stmt) {
				if name := row.ColumnText(0); driver.CheckName(name) == nil && !slices.Contains(names, name) {
					names = append(names, name)
				}
			})
		}); err != nil {
			return nil, failed(ctx, "read who lives in "+e.own(file), err)
		}
	}
	return names, nil
}

// isShared reports whether a file of that name holds several workspaces.
func isShared(name string) bool { return strings.HasPrefix(name, sharedPrefix) }
