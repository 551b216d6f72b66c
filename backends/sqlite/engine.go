// Package sqlite is an engine that stores workspaces in SQLite database files: one file for each workspace, or a few
// files that many workspaces share.
//
// A file has one writer connection, whose transactions are synced to disk before they are acknowledged, and a few
// reader connections, which see every acknowledged write.
package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/background"
	"tenantry/internal/cache"

	"github.com/gofrs/flock"
	"zombiezen.com/go/sqlite"
)

const (
	// oldestSQLite is the first version with the fix for WAL resets that could lose committed transactions.
	oldestSQLite = 3_051_003

	defaultMaxOpen      = 128
	defaultReaders      = 4
	defaultCache        = 256
	defaultQueryTimeout = 10 * time.Second
	closeTimeout        = 10 * time.Second
	idleTimeout         = 2 * time.Minute
	idleInterval        = 15 * time.Second
)

// Version is the version of the linked SQLite library.
const Version = sqlite.Version

// Options configure an engine. Zero numbers select the defaults given in parentheses.
type Options struct {
	// Dir is the folder of the database files, named <workspace>.db or _shared-<n>.db. It is created if missing.
	Dir string
	// Shared makes new workspaces share files, unless they are opened with driver.Opening.Apart. Existing workspaces
	// stay in their files.
	Shared bool
	// MaxOpen bounds the number of open databases (128). Each has up to Readers+1 connections, plus those for long
	// queries.
	MaxOpen int
	// Readers bounds the reader connections of a file, without those of long queries (4).
	Readers int
	// Cache bounds the memory for the pages of all files, in MiB (256). Running calls may need more.
	Cache int
	// Long bounds the additional connections for long queries, over all files (64).
	Long int
	// QueryTimeout ends statements whose context has no earlier deadline (10 s).
	QueryTimeout time.Duration
	// Observe, if set, is called once for every distinct read statement, possibly concurrently.
	Observe func(Plan)

	// Settings for tests and benchmarks of this package.
	maxPages       func() int
	maxLog         int64
	maxUnshipped   int64
	pageInterval   time.Duration // between two cuts
	recycled       uint32        // frames
	checkpointRows int
	noSnapshots    bool
	eager          bool   // index each custom field on its first query
	admitting      func() // called after a workspace's entry in a shared file was read and before it is used
	idleInterval   time.Duration
	idleTimeout    time.Duration
}

// Plan is a read statement and the lines of its EXPLAIN QUERY PLAN.
type Plan struct {
	SQL   string
	Lines []string
}

// The abilities of the engine.
var (
	_ driver.Archiver     = (*Engine)(nil)
	_ driver.Atomic       = (*Engine)(nil)
	_ driver.Checkpointer = (*Engine)(nil)
	_ driver.Examiner     = (*Engine)(nil)
	_ driver.Finder       = (*Engine)(nil)
	_ driver.Indexer      = (*Engine)(nil)
	_ driver.Keeper       = (*Engine)(nil)
	_ driver.PageLogger   = (*Engine)(nil)
	_ driver.Sizer        = (*Engine)(nil)
	_ driver.Upgrader     = (*Engine)(nil)
	_ driver.Explainer    = (*workspace)(nil)
	_ driver.Meter        = (*workspace)(nil)
	_ driver.Counting     = (*workspace)(nil)
	_ driver.Parted       = (*workspace)(nil)
)

// Engine implements driver.Engine. Its methods are safe for concurrent use.
type Engine struct {
	opts       Options
	slots      chan struct{} // a semaphore of MaxOpen open databases
	freed      chan struct{} // wakes a caller that waits for a slot
	waiters    atomic.Int64
	closed     atomic.Bool
	cache      pageCache
	scheduler  scheduler     // of long queries
	long       chan struct{} // a semaphore of long queries that have a connection
	contention contention

	lock      *flock.Flock              // on the folder
	sideConns sideConns                 // connections that do not belong to an open database
	spaces    cache.Weak[string, space] // workspaces in shared files, by name; kept alive by their handles
	files     cache.Weak[string, file]  // by name; kept alive by handles and by the maps below
	mu        sync.Mutex                // guards the fields below, space.owner and file.examined
	open      map[*file]struct{}        // files whose database is open
	indexed   map[*file]struct{}        // files with known indexes on custom fields; Indexes reports them
	schemas   []*schema                 // of opened workspaces, for sharing
	removals  int                       // number of workspaces removed from shared files

	pages atomic.Pointer[pageLog] // nil: changes are not logged

	observed sync.Map // statements passed to Observe
	stop     chan struct{}
	stopped  chan struct{}

	jobs    chan func(context.Context) // background work
	builds  chan func(context.Context) // background work that takes minutes, such as building and deleting indexes
	working sync.WaitGroup             // the goroutines that run jobs and builds until cancel
	cancel  context.CancelFunc
}

// Open returns an engine on the folder, and locks the folder until Close. It returns an error if another engine, in
// this or another process, uses the folder, or if the linked SQLite is too old.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkVersion(sqlite.VersionNumber); err != nil {
		return nil, err
	}
	if opts.Dir == "" {
		return nil, errors.New("the embedded store needs a folder")
	}
	setDefault(&opts.MaxOpen, defaultMaxOpen)
	setDefault(&opts.Readers, defaultReaders)
	setDefault(&opts.Cache, defaultCache)
	setDefault(&opts.QueryTimeout, defaultQueryTimeout)
	setDefault(&opts.maxLog, maxLog)
	setDefault(&opts.maxUnshipped, maxUnshipped)
	setDefault(&opts.checkpointRows, checkpointRows)
	setDefault(&opts.pageInterval, pageLogInterval)
	opts.recycled = cmp.Or(opts.recycled, recycledFrames)
	setDefault(&opts.idleInterval, idleInterval)
	setDefault(&opts.idleTimeout, idleTimeout)
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the embedded store: %w", err)
	}
	lock, err := lockFolder(opts.Dir)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		opts: opts, lock: lock, slots: make(chan struct{}, opts.MaxOpen), freed: make(chan struct{}, 1),
		long: newLane(cmp.Or(opts.Long, defaultLong)), open: map[*file]struct{}{}, indexed: map[*file]struct{}{},
		stop: make(chan struct{}), stopped: make(chan struct{}),
		jobs: make(chan func(context.Context), maxJobs), builds: make(chan func(context.Context), maxJobs),
	}
	e.scheduler = scheduler{
		processors: runtime.GOMAXPROCS(0),
		contended:  e.contention.present,
		now:        time.Now,
		pause:      time.Sleep,
	}
	e.cache.pages = int64(opts.Cache) << 10 / pageKiB

	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	e.cancel = cancel
	for _, jobs := range []chan func(context.Context){e.jobs, e.builds} {
		e.working.Go(func() { work(working, jobs) })
	}
	go e.closeIdle(working)
	return e, nil
}

func setDefault[T int | int64 | time.Duration](v *T, to T) {
	if *v <= 0 {
		*v = to
	}
}

func checkVersion(linked int) error {
	if linked < oldestSQLite {
		return fmt.Errorf("SQLite %d.%d.%d can lose committed data; build with %d.%d.%d or newer",
			linked/1e6, linked/1000%1000, linked%1000, oldestSQLite/1_000_000, oldestSQLite/1000%1000, oldestSQLite%1000)
	}
	return nil
}

// Open returns the workspace after it has migrated its file to the collections. Errors: driver.ErrNewer if a newer
// version wrote the file, driver.ErrForeign if it belongs to another owner.
func (e *Engine) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	name := o.Workspace
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	for {
		w, err := e.openOnce(ctx, &o)
		if errors.Is(err, errRemoved) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("workspace %s: %w", name, err)
		}
		return w, nil
	}
}

func (e *Engine) openOnce(ctx context.Context, o *driver.Opening) (*workspace, error) {
	shared, err := e.inSharedFile(ctx, o)
	if err != nil {
		return nil, err
	}
	s, err := e.schema(o.Collections, shared)
	if err != nil {
		return nil, err
	}
	name := o.Workspace
	if shared {
		name = sharedName(name)
	}
	f, err := e.file(name)
	if err != nil {
		return nil, err
	}
	if !shared {
		return &workspace{engine: e, file: f, space: &f.alone, schema: s}, f.prepare(ctx, o, s)
	}
	if err := f.prepareShared(ctx, s); err != nil {
		return nil, err
	}
	e.clearLater(f)
	at, err := e.admit(ctx, f, o)
	return &workspace{engine: e, file: f, space: at, schema: s}, wrapError(ctx, "open it in "+f.path, err)
}

// work runs background jobs one after another until the context ends.
func work(ctx context.Context, jobs <-chan func(context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case do := <-jobs:
			_ = background.Try(func() error { do(ctx); return nil }) // a panic in one job must not stop the others
		}
	}
}

// maxSchemas bounds the shared schemas. The program has two: that of the control workspace and that of organizations.
const maxSchemas = 16

// schema returns the tables of the collections. Workspaces opened with the same collections share one schema, so that
// an idle workspace takes little memory.
func (e *Engine) schema(collections []*driver.Collection, shared bool) (*schema, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.schemas {
		if s.shared == shared && slices.Equal(s.collections, collections) {
			return s, nil
		}
	}
	s, err := newSchema(collections, shared)
	if err == nil && len(e.schemas) < maxSchemas {
		e.schemas = append(e.schemas, s)
	}
	return s, err
}

func (e *Engine) file(name string) (*file, error) {
	if e.closed.Load() {
		return nil, errClosed
	}
	return e.files.GetOrPut(name, func() *file { return newFile(e, name) }), nil
}

// Remove waits for running calls of the workspace and deletes its file, or its documents in a shared file. Existing
// handles fail afterwards; the workspace can be opened again. A file that belongs to another owner, or whose owner
// cannot be read, is left unchanged.
func (e *Engine) Remove(ctx context.Context, name, owner string) error {
	if err := e.removeShared(ctx, name, owner); err != nil {
		return fmt.Errorf("remove workspace %s: %w", name, err)
	}
	f, err := e.file(name)
	if err != nil {
		return err
	}
	if err := f.remove(ctx, owner); err != nil && !errors.Is(err, errRemoved) {
		return fmt.Errorf("remove workspace %s: %w", name, err)
	}
	return nil
}

// trackIndexed keeps the file in memory while it has known indexes on custom fields.
func (e *Engine) trackIndexed(f *file, indexed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if indexed {
		e.indexed[f] = struct{}{}
	} else {
		delete(e.indexed, f)
	}
}

// Kept returns the number of workspaces and files that have state in memory.
func (e *Engine) Kept() int { return e.spaces.Len() + e.files.Len() }

// Atomic returns true, because each batch is one transaction.
func (e *Engine) Atomic() bool { return true }

// Check writes, syncs and deletes a small file in the folder. Errors: driver.ErrUnavailable, with driver.ErrReadOnly if
// the disk is full or read-only.
func (e *Engine) Check(ctx context.Context) error {
	if e.closed.Load() {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := probe(e.opts.Dir)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT),
		errors.Is(err, syscall.EFBIG), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrReadOnly, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

func probe(dir string) (err error) {
	f, err := os.CreateTemp(dir, ".check-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(filepath.Clean(f.Name()))) }()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		return err
	}
	return f.Sync()
}

// Close waits up to ten seconds for running calls, checkpoints the logs into the databases and closes these. Later
// calls fail with driver.ErrUnavailable. If calls are still running, the folder stays locked.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed.Swap(true) {
		e.mu.Unlock()
		return nil
	}
	e.mu.Unlock()
	e.cancel()
	e.working.Wait()
	close(e.stop)
	<-e.stopped
	pages := e.pages.Load()
	if pages != nil {
		close(pages.stop)
		<-pages.stopped
	}
	var errs []error
	for deadline := time.Now().Add(closeTimeout); ; time.Sleep(2 * time.Millisecond) {
		busy := 0
		for _, f := range e.opened() {
			if done, err := f.closeIdle(); err != nil {
				errs = append(errs, err)
			} else if !done {
				busy++
			}
		}
		if busy == 0 {
			if pages != nil {
				errs = append(errs, pages.close())
			}
			return errors.Join(append(errs, e.lock.Unlock())...)
		}
		if time.Now().After(deadline) { // running calls still write to the folder, so it stays locked
			return errors.Join(append(errs, fmt.Errorf("%d database files are still in use", busy))...)
		}
	}
}

func (e *Engine) opened() []*file {
	e.mu.Lock()
	defer e.mu.Unlock()
	files := make([]*file, 0, len(e.open))
	for f := range e.open {
		files = append(files, f)
	}
	return files
}

// closeIdle periodically closes databases that are unused or whose files were removed, and maintains the others.
func (e *Engine) closeIdle(ctx context.Context) {
	defer close(e.stopped)
	tick := time.NewTicker(e.opts.idleInterval)
	defer tick.Stop()
	for {
		select {
		case <-e.stop:
			return
		case now := <-tick.C:
			for _, f := range e.opened() {
				if now.Sub(f.lastUsed()) > e.opts.idleTimeout {
					_, _ = f.closeIdle()
					continue
				}
				_ = background.Try(func() error {
					f.dropReplaced()
					f.checkpointIdle()
					f.dropUnused(ctx, now.Add(-unusedAfter))
					f.noteUses(ctx)
					f.deleteDropped(now.Add(-dropGrace - e.opts.QueryTimeout))
					return nil
				})
			}
			_ = background.Try(func() error { e.fit(); return nil }) // idle connections get the shares of closed ones
		}
	}
}

// reserve takes a slot for one more open database. If none is free, it closes the least recently used database, and
// waits if all are in use.
func (e *Engine) reserve(ctx context.Context) error {
	select {
	case e.slots <- struct{}{}:
		return nil
	default:
	}
	e.waiters.Add(1)
	defer e.waiters.Add(-1)
	backstop := time.NewTicker(20 * time.Millisecond)
	defer backstop.Stop()
	for {
		e.evict()
		select { // on its own, because the select below picks any ready case, which could evict another database in vain
		case e.slots <- struct{}{}:
			return nil
		default:
		}
		select {
		case e.slots <- struct{}{}:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("all %d databases are in use: %w", e.opts.MaxOpen, ctx.Err())
		case <-e.freed:
		case <-backstop.C:
		}
	}
}

// evict closes the least recently used database that has no running call.
func (e *Engine) evict() {
	var oldest *file
	for _, f := range e.opened() {
		if f.refs.Load() == 0 && (oldest == nil || f.used.Load() < oldest.used.Load()) {
			oldest = f
		}
	}
	if oldest != nil {
		_, _ = oldest.closeIdle()
	}
}

// limit gives ctx the engine's deadline unless it has an earlier one.
func (e *Engine) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if d, ok := ctx.Deadline(); ok && time.Until(d) <= e.opts.QueryTimeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, e.opts.QueryTimeout)
}

// observe passes the plan of a statement to Options.Observe when it is first seen.
func (e *Engine) observe(c *conn, sql string) error {
	if e.opts.Observe == nil {
		return nil
	}
	if _, seen := e.observed.LoadOrStore(sql, true); seen {
		return nil
	}
	plan := Plan{SQL: sql}
	err := c.each("EXPLAIN QUERY PLAN "+sql, nil, func(row *sqlite.Stmt) {
		plan.Lines = append(plan.Lines, row.ColumnText(3))
	})
	if err == nil {
		e.opts.Observe(plan)
	}
	return err
}
