package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/cache"
)

// closedRefs is the value of file.refs while the database is closed.
const closedRefs = -1 << 40

// file is a database file. Its database is opened on use, and closed when it is idle or when another file needs its
// slot.
type file struct {
	engine *Engine
	name   string
	path   string
	refs   atomic.Int64 // number of calls that use db; negative: closed
	used   atomic.Int64 // time of the last use, Unix nanoseconds
	// mutex is held to open, migrate, close or remove the file. It guards the fields down to removed; db may also be read
	// by a caller that has retained it.
	mutex     chan struct{}
	db        *database
	prepared  *schema // what the file was last migrated to; nil before the first opening
	owner     string  // of the file at that time
	removed   bool
	indexes   fieldIndexes
	alone     space                     // the workspace of a file that is not shared
	parts     cache.Weak[string, space] // the parts of that workspace, by party; see Part
	parties   atomic.Int64              // the last number given to a part
	cleared   atomic.Bool               // see clearLater
	preparing atomic.Bool               // a background job is going to prepare it
	examined  time.Time                 // when it was last found intact; guarded by the engine's lock
}

func newFile(e *Engine, name string) *file {
	f := &file{engine: e, name: name, path: e.ownPath(name), mutex: make(chan struct{}, 1), alone: space{name: name}}
	f.indexes.onChange = func(some bool) { e.trackIndexed(f, some) }
	f.alone.initLanes(e)
	f.refs.Store(closedRefs)
	return f
}

func (f *file) lastUsed() time.Time { return time.Unix(0, f.used.Load()) }

// retain counts the caller as a user of db, if the database is open. release or unref must follow.
func (f *file) retain() bool {
	for {
		n := f.refs.Load()
		if n < 0 {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release ends a use of db.
func (f *file) release() {
	f.used.Store(time.Now().UnixNano())
	f.unref()
}

// unref ends a use of db by maintenance, which does not keep the database from being closed as idle.
func (f *file) unref() {
	if f.refs.Add(-1) == 0 && f.engine.waiters.Load() > 0 {
		select {
		case f.engine.freed <- struct{}{}:
		default:
		}
	}
}

func (f *file) lock(ctx context.Context) error {
	select {
	case f.mutex <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *file) unlock() { <-f.mutex }

// acquire returns the database, which it opens if necessary. release or unref must follow.
func (f *file) acquire(ctx context.Context) (*database, error) {
	if f.retain() {
		return f.opened()
	}
	if err := f.lock(ctx); err != nil {
		return nil, err
	}
	defer f.unlock()
	return f.acquireLocked(ctx, &driver.Opening{Workspace: f.name, Owner: f.owner}, f.prepared)
}

// opened returns db to a caller that has retained it, unless the engine is closing.
func (f *file) opened() (*database, error) {
	if f.engine.closed.Load() {
		f.release()
		return nil, errClosed
	}
	return f.db, nil
}

// acquireLocked returns the database, which it opens and migrates to the schema if it is closed. f.mutex is held.
func (f *file) acquireLocked(ctx context.Context, o *driver.Opening, s *schema) (*database, error) {
	if f.retain() {
		return f.opened()
	}
	if f.removed {
		return nil, errRemoved
	}
	if err := f.engine.reserve(ctx); err != nil {
		return nil, err
	}
	var db *database
	var err error
	if f.prepared != nil { // it existed before, so it must not be created again
		err = missing(f.path)
	}
	if err == nil {
		db, err = openDatabase(ctx, f.engine, f.path, o, s)
	}
	if err == nil {
		if err = f.indexes.load(ctx, db); err != nil {
			err = errors.Join(err, db.close())
		}
	}
	if err != nil {
		<-f.engine.slots
		return nil, err
	}
	if !f.publish(db) {
		<-f.engine.slots
		return nil, errors.Join(errClosed, db.close())
	}
	return db, nil
}

// publish makes db the file's open database with one user. It returns false if the engine has been closed.
func (f *file) publish(db *database) bool {
	f.engine.mu.Lock()
	defer f.engine.mu.Unlock()
	if f.engine.closed.Load() {
		return false
	}
	f.db = db
	f.engine.open[f] = struct{}{}
	f.refs.Store(1)
	return true
}

// prepare migrates the file to the schema and claims it for the owner. If the caller's time is too short, a background
// job completes the migration, because the next caller would have to start over.
func (f *file) prepare(ctx context.Context, o *driver.Opening, s *schema) error {
	if err := f.lock(ctx); err != nil {
		return err
	}
	err := f.prepareLocked(ctx, o, s)
	f.unlock()
	if errors.Is(err, driver.ErrSlow) && !f.preparing.Swap(true) {
		again := *o
		select {
		case f.engine.jobs <- func(ctx context.Context) {
			_ = f.prepare(ctx, &again, s) // the next opening reports an error
			f.preparing.Store(false)
		}:
		default:
			f.preparing.Store(false)
		}
	}
	return err
}

func (f *file) prepareLocked(ctx context.Context, o *driver.Opening, s *schema) error {
	want := f.prepared.merge(s)
	wasOpen := f.refs.Load() >= 0
	db, err := f.acquireLocked(ctx, o, want)
	if err != nil {
		return wrapError(ctx, "open the database", err)
	}
	defer f.release()
	if wasOpen && (want != f.prepared || o.Owner != f.owner || o.New) {
		if err := db.migrate(ctx, o, want); err != nil {
			return wrapError(ctx, "prepare the database", err)
		}
	}
	f.prepared, f.owner = want, o.Owner
	return nil
}

// closeIdle closes the database if no call uses it, and reports whether it is closed. It does not wait.
func (f *file) closeIdle() (bool, error) {
	select {
	case f.mutex <- struct{}{}:
		defer f.unlock()
		return f.closeLocked()
	default:
		return false, nil
	}
}

// closeLocked is closeIdle for a caller that holds f.mutex.
func (f *file) closeLocked() (bool, error) {
	if f.refs.Load() < 0 {
		return true, nil
	}
	if !f.refs.CompareAndSwap(0, closedRefs) {
		return false, nil
	}
	f.engine.mu.Lock()
	delete(f.engine.open, f)
	f.engine.mu.Unlock()
	err := f.db.close()
	f.db = nil
	<-f.engine.slots
	if err != nil {
		return true, fmt.Errorf("close %s: %w", f.path, err)
	}
	return true, nil
}

// remove waits until no call uses the file, and deletes it if it is the owner's.
func (f *file) remove(ctx context.Context, owner string) error {
	if err := f.lock(ctx); err != nil {
		return err
	}
	defer f.unlock()
	if f.removed {
		return errRemoved
	}
	for {
		done, err := f.closeLocked()
		if err != nil {
			return err
		}
		if done {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	there, err := f.engine.ownerOf(f.path)
	if err != nil {
		return wrapError(ctx, "the owner of "+f.path+" cannot be read, so it was not removed; move it away and retry", err)
	}
	if _, err := (&driver.Opening{Workspace: f.name, Owner: owner}).Admit(there, f.path, nil); err != nil {
		return err
	}
	// The log is deleted first: a database without its log is older but consistent, a log without its database is useless.
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Remove(f.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
	}
	if l := f.engine.pages.Load(); l != nil {
		l.gone(f.name)
	}
	if err := unmark(f.path); err != nil {
		return err
	}
	f.removed = true
	f.engine.files.Delete(f.name, f)
	f.indexes.update(func(all map[fieldKey]*fieldIndex) { clear(all) })
	return nil
}
