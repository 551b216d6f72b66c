// Package sqlite keeps workspaces in SQLite database files: each in one of its own, or many in a few.
//
// A file has one writer, whose transactions are immediate and synced before they
// are acknowledged, and a few readers, which see every acknowledged write.
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
	// oldestSQLite has the fix for WAL resets that could lose committed transactions.
	oldestSQLite = 3_051_003

	defaultMaxOpen      = 128
	defaultReaders      = 4
	defaultCache        = 256
	defaultQueryTimeout = 10 * time.Second
	closeTimeout        = 10 * time.Second
	idleTimeout         = 2 * time.Minute
	idleInterval        = 15 * time.Second
)

// Version is that of the SQLite that is linked in.
const Version = sqlite.Version

// Options configure an engine. The zero value of a number takes its default.
type Options struct {
	// Dir holds one <workspace>.db for each workspace, or _shared-<n>.db. It is made when missing.
	Dir string
	// Shared says that new workspaces share files, but for those that are opened apart. Those that are there
	// stay where they are, whatever it says.
	Shared bool
	// MaxOpen bounds the databases that are open at a time (128). Each has up to Readers+1 connections.
	MaxOpen int
	// Readers bounds the statements that read one file at a time (4).
	Readers int
	// Cache is how many MiB the pages of all files may take in memory (256), but for what the calls under way need
	// beyond it.
	Cache int
	// Long bounds the connections for long queries, beside the readers, of all files (64).
	Long int
	// QueryTimeout ends statements whose context has no earlier deadline (10 s).
	QueryTimeout time.Duration
	// Observe, when set, is called once for every distinct read statement, possibly concurrently.
	Observe func(Plan)

	// Knobs of this package's tests and benchmarks.
	maxPages     func() int
	maxLog       int64
	noSnapshots  bool
	eager        bool   // every field that is asked for gets an index at once
	admitting    func() // called between reading who is in a shared file and taking it for true
	idleInterval time.Duration
	idleTimeout  time.Duration
}

// Plan is a read statement and the lines of its EXPLAIN QUERY PLAN.
type Plan struct {
	SQL   string
	Lines []string
}

// Engine implements driver.Engine. Its methods are safe for concurrent use.
type Engine struct {
	opts       Options
	slots      chan struct{} // one for each open database
	freed      chan struct{} // wakes a caller that waits for a slot
	waiters    atomic.Int64
	closed     atomic.Bool
	cache      pageCache
	turns      turns         // of long questions
	long       chan struct{} // one for each long question that has a connection
	contention contention

	lock    *flock.Flock              // of the folder
	aside   aside                     // connections to files beside those of databases that are open
	spaces  cache.Weak[string, space] // of shared files, by workspace; each is held by those who have a handle on it
	files   cache.Weak[string, file]  // as are files, and by those that follow
	mu      sync.Mutex
	open    map[*file]struct{}
	indexed map[*file]struct{} // have indexes on fields, which are told of, and known, once the file was opened
	schemas []*schema          // those that workspaces were opened with
	removed int                // how many were taken out of shared files

	observed sync.Map
	stop     chan struct{}
	stopped  chan struct{}

	jobs    chan func(context.Context) // what can wait
	builds  chan func(context.Context) // what can wait for minutes: indexes, and what is left of them
	working sync.WaitGroup             // whoever does them, until cancel
	cancel  context.CancelFunc
}

// Open returns an engine on the folder, which is its own until Close: another engine, of
// this process or another, is refused. So is a linked SQLite that is too old.
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
		long: lane(cmp.Or(opts.Long, defaultLong)), open: map[*file]struct{}{}, indexed: map[*file]struct{}{},
		stop: make(chan struct{}), stopped: make(chan struct{}),
		jobs: make(chan func(context.Context), maxJobs), builds: make(chan func(context.Context), maxJobs),
	}
	e.turns = turns{processors: runtime.GOMAXPROCS(0), contended: e.contention.present, now: time.Now, pause: time.Sleep}
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

// Open returns the workspace after bringing its file up to date with the collections.
// A file of a newer version gives an error that wraps driver.ErrNewer, one of somebody else driver.ErrForeign.
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
	shared, err := e.shares(ctx, o)
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
	return &workspace{engine: e, file: f, space: at, schema: s}, failed(ctx, "open it in "+f.path, err)
}

// work does what can wait, one after the other, until the context ends.
func work(ctx context.Context, jobs <-chan func(context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case do := <-jobs:
			_ = background.Try(func() error { do(ctx); return nil }) // a fault of one keeps nobody from the others
		}
	}
}

// maxSchemas bounds the schemas that are kept. The program has two: the control workspace's
// and that of organizations.
const maxSchemas = 16

// schema returns the collections as tables. All workspaces opened with the same collections
// share them, so that one which lies idle costs little.
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

// Remove closes the workspace once its running calls have ended and deletes its file, or its documents in a
// file that it shares. Handles to it fail from then on, until the workspace is opened anew. The file of somebody
// else, or one that does not tell whose it is, is left.
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

// hold keeps the file, or no longer, for what is known of its indexes.
func (e *Engine) hold(f *file, indexed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if indexed {
		e.indexed[f] = struct{}{}
	} else {
		delete(e.indexed, f)
	}
}

// Kept returns of how many workspaces and files something is kept in memory.
func (e *Engine) Kept() int { return e.spaces.Len() + e.files.Len() }

// Atomic reports that a batch is one transaction.
func (e *Engine) Atomic() bool { return true }

// Check writes, syncs and deletes a small file in the folder.
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
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG), errors.Is(err, syscall.EROFS):
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

// Close waits up to ten seconds for running calls, moves what is in the logs into
// the databases and closes them. Calls that start later fail with driver.ErrUnavailable.
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
			return errors.Join(append(errs, e.lock.Unlock())...)
		}
		if time.Now().After(deadline) { // what is in use keeps the folder
			return errors.Join(append(errs, fmt.Errorf("%d workspaces are still in use", busy))...)
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

// closeIdle gives back the memory and descriptors of databases that nobody uses, or whose files
// have been taken away.
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
					f.dropAstray()
					f.settle()
					f.dropUnused(ctx, now.Add(-fieldUnused))
					f.noteUses(ctx)
					f.deleteDropped(now.Add(-fieldRest - e.opts.QueryTimeout))
					return nil
				})
			}
			_ = background.Try(func() error { e.fit(); return nil }) // once others are closed, those that lie idle have more
		}
	}
}

// reserve takes a slot for one more open database, closing the one whose last use
// is longest ago when there is none, and waiting when all are in use.
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
		select { // first, for another is closed where one of the others is ready too
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

func (e *Engine) observe(c *conn, sql string) error {
	if e.opts.Observe == nil {
		return nil
	}
	if _, seen := e.observed.LoadOrStore(sql, true); seen {
		return nil
	}
	plan := Plan{SQL: sql}
	err := c.each("EXPLAIN QUERY PLAN "+sql, nil, func(row *sqlite.Stmt) { plan.Lines = append(plan.Lines, row.ColumnText(3)) })
	if err == nil {
		e.opts.Observe(plan)
	}
	return err
}
