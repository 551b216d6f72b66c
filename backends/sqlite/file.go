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

// shut is the count of users of a file whose database is closed.
const shut = -1 << 40

// file is a workspace's database file, which is opened when used and closed when others need the slot.
type file struct {
	engine *Engine
	name   string
	path   string
	refs   atomic.Int64 // calls that use db; below zero: closed
	used   atomic.Int64 // time of the last use, Unix nanoseconds
	// turn is held by whoever opens, migrates, closes or removes.
	turn     chan struct{}
	db       *database
	prepared *schema // what the file is to hold; nil before the first opening
	owner    string  // whose it was then
	removed  bool
	fields   fields
	alone    space                     // of the workspace that has the file to itself
	parts    cache.Weak[string, space] // of that workspace, by party; see Part
	parties  atomic.Int64              // how many were told apart
	cleared  atomic.Bool               // see clearLater
	late     atomic.Bool               // it is to be prepared by who has the time
	examined time.Time                 // when it was last found whole; guarded by the engine's lock
}

func newFile(e *Engine, name string) *file {
	f := &file{engine: e, name: name, path: e.own(name), turn: make(chan struct{}, 1), alone: space{name: name}}
	f.fields.tell = func(some bool) { e.hold(f, some) }
	f.alone.open(e)
	f.refs.Store(shut)
	return f
}

func (f *file) lastUsed() time.Time { return time.Unix(0, f.used.Load()) }

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

func (f *file) release() {
	f.used.Store(time.Now().UnixNano())
	f.leave()
}

// leave is release by those whose use does not count.
func (f *file) leave() {
	if f.refs.Add(-1) == 0 && f.engine.waiters.Load() > 0 {
		select {
		case f.engine.freed <- struct{}{}:
		default:
		}
	}
}

func (f *file) lock(ctx context.Context) error {
	select {
	case f.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *file) unlock() { <-f.turn }

// acquire returns the open database; release must follow.
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

// acquireLocked opens the database, if it is not open, for a file that is to hold the schema.
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
	if f.prepared != nil { // it was there before
		err = missing(f.path)
	}
	if err == nil {
		db, err = openDatabase(ctx, f.engine, f.path, o, s)
	}
	if err == nil {
		if err = f.fields.load(ctx, db); err != nil {
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

// publish makes db the file's open database with one user, unless the engine has been closed.
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

// prepare brings the file up to date with the schema, and makes it its owner's. Where that takes longer than the caller
// has, it is done all the same: who comes next would have to begin anew.
func (f *file) prepare(ctx context.Context, o *driver.Opening, s *schema) error {
	if err := f.lock(ctx); err != nil {
		return err
	}
	err := f.prepareLocked(ctx, o, s)
	f.unlock()
	if errors.Is(err, driver.ErrSlow) && !f.late.Swap(true) {
		again := *o
		select {
		case f.engine.jobs <- func(ctx context.Context) {
			_ = f.prepare(ctx, &again, s) // what fails is told to who comes next
			f.late.Store(false)
		}:
		default:
			f.late.Store(false)
		}
	}
	return err
}

func (f *file) prepareLocked(ctx context.Context, o *driver.Opening, s *schema) error {
	want := f.prepared.with(s)
	wasOpen := f.refs.Load() >= 0
	db, err := f.acquireLocked(ctx, o, want)
	if err != nil {
		return failed(ctx, "open the database", err)
	}
	defer f.release()
	if wasOpen && (want != f.prepared || o.Owner != f.owner || o.New) {
		if err := db.migrate(ctx, o, want); err != nil {
			return failed(ctx, "prepare the database", err)
		}
	}
	f.prepared, f.owner = want, o.Owner
	return nil
}

// closeIdle closes the database if no call uses it, and reports whether it is closed.
func (f *file) closeIdle() (bool, error) {
	select {
	case f.turn <- struct{}{}:
		defer f.unlock()
		return f.closeLocked()
	default:
		return false, nil
	}
}

func (f *file) closeLocked() (bool, error) {
	if f.refs.Load() < 0 {
		return true, nil
	}
	if !f.refs.CompareAndSwap(0, shut) {
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
		return failed(ctx, "whose "+f.path+" is cannot be told, so it is left; move it away and repeat", err)
	}
	if _, err := (&driver.Opening{Workspace: f.name, Owner: owner}).Admit(there, f.path, nil); err != nil {
		return err
	}
	// The log goes first: a database without it is older but whole, a log without its database is neither.
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Remove(f.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
	}
	if err := unmark(f.path); err != nil {
		return err
	}
	f.removed = true
	f.engine.files.Delete(f.name, f)
	f.fields.change(func(all map[fieldKey]*fieldIndex) { clear(all) })
	return nil
}
