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

	"zombiezen.com/go/sqlite"

	"tenantry/backends/driver"
)

// In a shared file each workspace has a number, with which the key of every document and every index begins. A number
// is never reused, so that documents left behind by a removed workspace cannot appear in another.
const (
	// sharedFiles is the number of shared files. It must not change, because the hash of a workspace's name, modulo this
	// number, selects its file.
	sharedFiles = 8
	// sharedPrefix begins the names of shared files. No workspace has such a name: see driver.CheckName.
	sharedPrefix = "_shared-"
	// sharedOwner is the owner of a shared file. Those of its workspaces are in the table workspaces.
	sharedOwner = "@shared"
	// removedPrefix begins the name of a workspace whose documents are being deleted.
	removedPrefix = "removed:"
	// clearBatchSize is the number of rows of a removed workspace that are deleted in one transaction. It is small
	// because other writes to the file wait meanwhile.
	clearBatchSize = 500
	// examinationAge is how long the examination of a shared file remains valid. An examination is requested for each of
	// the workspaces in the file.
	examinationAge = 10 * time.Minute
)

// space is the state of a workspace that all handles on it share.
type space struct {
	name    string
	id      int64  // the number of the workspace in a shared file; 0 in a file of its own
	party   int64  // identifies the workspace, or the party of a part, in queues
	owner   string // guarded by the engine's lock
	removed atomic.Bool
	// quick is a semaphore of running quick queries, long one of long queries that have a connection; waitingLong counts
	// the long queries that wait for one. See lanes.
	quick       chan struct{}
	long        chan struct{}
	waitingLong atomic.Int64
	usage       usage
	// counted says that the documents have been counted, countPending that a background job is going to; see tally. The
	// caller that counts holds counting.
	counted, countPending atomic.Bool
	counting              chan struct{}
	// verified is the open database in which the workspace was found. After a file was closed, another may have been put
	// in its place.
	verified atomic.Pointer[database]
}

// initLanes creates the semaphores.
func (s *space) initLanes(e *Engine) {
	s.quick, s.long, s.counting = newLane(e.opts.Readers-1), newLane(e.opts.Readers/2), make(chan struct{}, 1)
}

// auxiliaryTables returns the statements that create the tables of a file besides those of its collections.
func (s *schema) auxiliaryTables() string {
	if s.shared {
		return " CREATE TABLE IF NOT EXISTS workspaces (name TEXT NOT NULL PRIMARY KEY, ws INTEGER NOT NULL UNIQUE," +
			" owner TEXT NOT NULL) WITHOUT ROWID;" +
			" CREATE TABLE IF NOT EXISTS counters (ws INTEGER NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL," +
			" PRIMARY KEY (ws, name)) WITHOUT ROWID"
	}
	return " CREATE TABLE IF NOT EXISTS counters (name TEXT NOT NULL PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
}

// sharedName returns the name of the shared file for a workspace.
func sharedName(workspace string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(workspace))
	return sharedPrefix + strconv.Itoa(int(h.Sum32()%sharedFiles))
}

// ownPath returns the path of the workspace's own file, which may not exist.
func (e *Engine) ownPath(name string) string { return filepath.Join(e.opts.Dir, name+".db") }

// sharedPath returns the path of the shared file for the workspace, which may not exist.
func (e *Engine) sharedPath(name string) string { return e.ownPath(sharedName(name)) }

// inSharedFile reports whether the workspace is in a shared file or, if it is new, will be. Error: *driver.DamagedError
// if the workspace is in two files.
func (e *Engine) inSharedFile(ctx context.Context, o *driver.Opening) (bool, error) {
	info, err := os.Stat(e.ownPath(o.Workspace))
	own := err == nil && info.Size() > 0
	_, found, err := e.entry(ctx, o.Workspace)
	switch {
	case err != nil:
		return false, err
	case own && found:
		return false, &driver.DamagedError{Reason: fmt.Sprintf("workspace %s is both in %s and in %s; "+
			"restore files that belong together, or move the first one away",
			o.Workspace, e.ownPath(o.Workspace), e.sharedPath(o.Workspace))}
	case own || found:
		return found, nil
	}
	return e.opts.Shared && !o.Apart, nil
}

// entry is the row of a workspace in the table workspaces of a shared file.
type entry struct {
	id    int64
	owner string
}

func entryOf(c *conn, name string) (there entry, found bool, err error) {
	err = c.each("SELECT ws, owner FROM workspaces WHERE name = ?1", []any{name}, func(row *sqlite.Stmt) {
		there, found = entry{row.ColumnInt64(0), row.ColumnText(1)}, true
	})
	return there, found, err
}

// entry returns the entry of the workspace in its shared file, if there is one.
func (e *Engine) entry(ctx context.Context, name string) (there entry, found bool, err error) {
	err = e.readShared(ctx, sharedName(name), func(c *conn) error {
		there, found, err = entryOf(c, name)
		return err
	})
	return there, found, wrapError(ctx, "look up "+name+" in "+e.sharedPath(name), err)
}

// entry calls entryOf with a reader.
func (db *database) entry(ctx context.Context, name string) (there entry, found bool, err error) {
	err = db.withReader(ctx, func(r *reader) (err error) {
		there, found, err = entryOf(r.conn, name)
		return err
	})
	return there, found, err
}

// readShared calls do with a connection to the shared file of that name. It does nothing if the file does not exist, is
// empty, or is not a shared file. It does not change the file.
func (e *Engine) readShared(ctx context.Context, name string, do func(*conn) error) error {
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
		return db.withReader(ctx, func(r *reader) error { return do(r.conn) })
	}
	path := e.ownPath(name)
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return ctx.Err()
	}
	return e.inspect(path, func(c *conn, stored map[string]string) error {
		if stored[ownerRow] != sharedOwner {
			return nil // it is being created, or belongs to another owner, which opening it reports
		}
		return do(c)
	})
}

// admit returns the state of a workspace in a prepared shared file, and claims the workspace for the owner.
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

// admitTo makes one attempt at admit. It returns nil if a workspace was removed meanwhile, because it may have been
// this one.
func (e *Engine) admitTo(ctx context.Context, f *file, db *database, o *driver.Opening) (*space, error) {
	e.mu.Lock()
	removals := e.removals
	e.mu.Unlock()
	there, found, err := db.entry(ctx, o.Workspace)
	if err == nil && (!found || there.owner != o.Owner || o.New && o.Owner == "") {
		err = db.transact(ctx, ctx, load{documents: 1, rows: 1}, map[partition]bool{}, func(c *conn) (err error) {
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
	if e.removals != removals {
		return nil, nil
	}
	s := e.spaces.Get(o.Workspace)
	if s == nil || s.id != there.id {
		s = &space{name: o.Workspace, id: there.id, party: there.id}
		s.initLanes(e)
		e.spaces.Put(o.Workspace, s)
	}
	s.owner = o.Owner
	s.verified.Store(db)
	return s, nil
}

// claim stores the entry of the workspace with its owner, if the opening is admitted, and returns it.
func (f *file) claim(c *conn, o *driver.Opening) (entry, error) {
	there, found, err := entryOf(c, o.Workspace)
	if err != nil {
		return there, err
	}
	claim, err := o.Admit(there.owner, f.path, func() (bool, error) {
		if !found {
			return false, nil // it will get a new number, under which there is nothing
		}
		tables, err := c.tables("c:*")
		found := int64(0)
		for _, table := range tables {
			if err != nil || found > 0 {
				break
			}
			found, err = c.number("SELECT 1 FROM "+quote(table)+" WHERE ws = ?1 LIMIT 1", there.id)
		}
		return found > 0, err
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

// tables returns the names of the tables that match a GLOB pattern.
func (c *conn) tables(pattern string) ([]string, error) {
	return c.texts("SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB ?1 ORDER BY name", pattern)
}

// prepareShared migrates a shared file to the schema.
func (f *file) prepareShared(ctx context.Context, s *schema) error {
	return f.prepare(ctx, &driver.Opening{Workspace: f.name, Owner: sharedOwner}, s)
}

// removeShared removes the workspace from its shared file, and then deletes its documents and those of workspaces whose
// earlier removal was not completed.
func (e *Engine) removeShared(ctx context.Context, name, owner string) error {
	found := false
	if err := e.readShared(ctx, sharedName(name), func(c *conn) (err error) {
		if _, found, err = entryOf(c, name); !found && err == nil {
			found, err = c.hasRemoved()
		}
		return err
	}); err != nil {
		return wrapError(ctx, "the owner of "+name+" in "+e.sharedPath(name)+" cannot be read, so it was not removed", err)
	}
	if !found {
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
	before, id := e.spaces.Get(name), int64(0)
	if err := db.transact(ctx, ctx, load{}, nil, func(c *conn) (err error) {
		id, err = f.markRemoved(c, name, owner)
		return err
	}); err != nil {
		return wrapError(ctx, "remove "+name+" from "+f.path, err)
	}
	e.mu.Lock()
	e.removals++
	if s := e.spaces.Get(name); s != nil && (s == before || s.id == id) { // else it was created again meanwhile
		e.spaces.Delete(name, s)
		s.removed.Store(true)
	}
	if before != nil {
		before.removed.Store(true)
	}
	e.mu.Unlock()
	return wrapError(ctx, "delete the documents of "+name+" in "+f.path, db.clearRemoved(ctx))
}

// markRemoved renames the workspace, so that it is not found any more, and returns its number.
func (f *file) markRemoved(c *conn, name, owner string) (int64, error) {
	there, found, err := entryOf(c, name)
	if err != nil || !found {
		return 0, err
	}
	if _, err := (&driver.Opening{Workspace: name, Owner: owner}).Admit(there.owner, f.path, nil); err != nil {
		return 0, err
	}
	renamed := removedPrefix + strconv.FormatInt(there.id, 10)
	if err := c.exec("UPDATE workspaces SET name = ?2 WHERE name = ?1", name, renamed); err != nil {
		return 0, err
	}
	f.indexes.update(func(all map[fieldKey]*fieldIndex) {
		for key := range all {
			if key.ws == there.id {
				delete(all, key)
			}
		}
	})
	return there.id, nil
}

// hasRemoved reports whether the file has a removed workspace whose documents are not all deleted.
func (c *conn) hasRemoved() (bool, error) {
	found, err := c.number("SELECT 1 FROM workspaces WHERE name GLOB ?1 LIMIT 1", removedPrefix+"*")
	return found > 0, err
}

// clearRemoved deletes the rows of removed workspaces in a shared file, in small batches.
func (db *database) clearRemoved(ctx context.Context) error {
	for {
		done, err := false, error(nil)
		err = db.transact(ctx, ctx, load{documents: clearBatchSize, rows: maxGroupRows}, map[partition]bool{}, func(c *conn) error {
			done, err = c.clearBatch()
			return err
		})
		if err != nil || done {
			return err
		}
	}
}

// clearBatch deletes one batch of rows of a removed workspace, and reports whether no removed workspace is left.
func (c *conn) clearBatch() (done bool, err error) {
	var name string
	var ws int64
	first := "SELECT name, ws FROM workspaces WHERE name GLOB ?1 LIMIT 1"
	if err := c.each(first, []any{removedPrefix + "*"}, func(row *sqlite.Stmt) {
		name, ws = row.ColumnText(0), row.ColumnInt64(1)
	}); err != nil || name == "" {
		return true, err
	}
	for _, of := range []struct{ tables, key string }{
		{"e:*", "number, v, id"}, {"fields", "tbl, number"}, {"c:*", "id"}, {"s:*", "value, id"}, {"counters", "name"},
	} {
		tables, err := c.tables(of.tables)
		if err != nil {
			return false, err
		}
		for _, table := range tables {
			if err := c.exec("DELETE FROM "+quote(table)+" WHERE ws = ?1 AND ("+of.key+") IN (SELECT "+of.key+
				" FROM "+quote(table)+" WHERE ws = ?1 LIMIT ?2)", ws, int64(clearBatchSize)); err != nil {
				return false, err
			}
			if c.raw.Changes() == clearBatchSize {
				return false, nil
			}
		}
	}
	return false, c.exec("DELETE FROM workspaces WHERE name = ?1", name)
}

// clearLater completes the removal of workspaces in a shared file in the background. It does so once in the life of the
// file's state, unless that fails.
func (e *Engine) clearLater(f *file) {
	if f.cleared.Swap(true) {
		return
	}
	select {
	case e.jobs <- func(ctx context.Context) {
		found := false
		err := e.readShared(ctx, f.name, func(c *conn) (err error) {
			found, err = c.hasRemoved()
			return err
		})
		if err == nil && !found {
			return
		}
		db, err := f.acquire(ctx)
		if err == nil {
			err = db.clearRemoved(ctx)
			f.release()
		}
		f.cleared.Store(err == nil)
	}:
	default:
		f.cleared.Store(false)
	}
}

// sharedResidents appends the names of the workspaces in shared files.
func (e *Engine) sharedResidents(ctx context.Context, names []string) ([]string, error) {
	for i := range sharedFiles {
		file := sharedPrefix + strconv.Itoa(i)
		if err := e.readShared(ctx, file, func(c *conn) error {
			return c.each("SELECT name FROM workspaces", nil, func(row *sqlite.Stmt) {
				if name := row.ColumnText(0); driver.CheckName(name) == nil && !slices.Contains(names, name) {
					names = append(names, name)
				}
			})
		}); err != nil {
			return nil, wrapError(ctx, "list the workspaces in "+e.ownPath(file), err)
		}
	}
	return names, nil
}

// isShared reports whether a file of that name is a shared file.
func isShared(name string) bool { return strings.HasPrefix(name, sharedPrefix) }
