package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"
	"tenantry/crypto/secret"
	"tenantry/internal/cache"
	"tenantry/internal/fairqueue"

	"github.com/sony/gobreaker/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// format is the format that this program reads and writes. A database with a higher format is left untouched.
	format = 2

	// Declared collections cannot have these names.
	metaCollection    = "_meta"
	counterCollection = "_counters"

	closeTimeout = 10 * time.Second
	// Removing a workspace may take removeFactor times QueryTimeout.
	removeFactor = 30
)

// Isolation says how workspaces are separated.
type Isolation int

// Shared keeps all workspaces in one database, PerDatabase each workspace in its own database, named
// <Database>_<workspace>.
const (
	Shared Isolation = iota
	PerDatabase
)

// Options configure an engine. The zero value of a number takes its default.
type Options struct {
	// URI is a MongoDB connection string. Its options for write concern, read preference, retries and timeouts are
	// overridden.
	URI secret.String
	// Database is the name of the database, or the prefix of the names of databases.
	Database  string
	Isolation Isolation
	// MaxPool bounds the connections to each server (default 64).
	MaxPool int
	// QueryTimeout bounds calls whose context has no earlier deadline (default 10 s). It applies to each command of a
	// batch separately.
	QueryTimeout time.Duration
	// ServerSelectionTimeout bounds the wait for a suitable server (default and maximum 2 s).
	ServerSelectionTimeout time.Duration
	// Monitor, when set, receives the events of every command.
	Monitor *event.CommandMonitor
	// Log receives refused indexes, state changes of the circuit breaker and batches that could not be undone.
	Log *slog.Logger
}

// The abilities of the engine.
var (
	_ driver.Breaker     = (*Engine)(nil)
	_ driver.Elector     = (*Engine)(nil)
	_ driver.Finder      = (*Engine)(nil)
	_ driver.Indexer     = (*Engine)(nil)
	_ driver.Inspector   = (*Engine)(nil)
	_ driver.Keeper      = (*Engine)(nil)
	_ driver.Remote      = (*Engine)(nil)
	_ driver.Snapshotter = (*Engine)(nil)
	_ driver.Explainer   = (*workspace)(nil)
	_ driver.Meter       = (*workspace)(nil)
	_ driver.Counting    = (*workspace)(nil)
)

// Engine implements driver.Engine. Its methods are safe for concurrent use.
type Engine struct {
	opts    Options
	client  *mongo.Client
	breaker *gobreaker.CircuitBreaker[struct{}]
	builder *builder
	health  *health
	closed  atomic.Bool
	running atomic.Int64
	adding  atomic.Int64 // running updates of usage counters, see tally

	// calls limits the running calls of each workspace to half of the connections, so that one workspace cannot take all
	// of them.
	calls  fairqueue.Queue[*lease]
	leases cache.Weak[string, lease] // by workspace; kept for as long as a handle on it is in use
	spaces cache.Weak[string, space] // by database; likewise, and while indexes are created there
	common atomic.Pointer[space]     // keeps the database that all workspaces share
	mu     sync.Mutex                // guards shapes, the schemas of spaces and opening workspaces
	shapes map[*driver.Collection]*shape
}

// space is the state of a database.
type space struct {
	db      *mongo.Database
	turn    chan struct{}     // held while the database is prepared
	unique  map[string]*build // unique indexes by signature of their kind; guarded by turn
	schemas []*schema         // collections with which workspaces were opened; guarded by the engine's mu
	tasks   map[string]*task  // by signature; guarded by the builder's mu
	// indexing counts running commands that create indexes, which would bring a dropped database back. None starts once
	// dropped is set.
	indexing atomic.Int64
	dropped  atomic.Bool
}

// index creates indexes, unless the database is being dropped.
func (s *space) index(ctx context.Context, k *kind, all []definition) error {
	s.indexing.Add(1)
	defer s.indexing.Add(-1)
	if s.dropped.Load() {
		return fault{errRemoved}
	}
	_, err := k.coll.Indexes().CreateMany(ctx, models(all))
	return err
}

// drop drops the database. Running commands that create indexes in it then end. One that the server had not started
// yet creates the database again, so drop repeats after they have ended.
func (s *space) drop(ctx context.Context) error {
	s.dropped.Store(true)
	busy := s.indexing.Load() > 0
	if err := s.db.Drop(ctx); err != nil || !busy {
		return err
	}
	if err := settle(ctx, &s.indexing); err != nil {
		return fmt.Errorf("indexes are still being created in it: %w", err)
	}
	return s.db.Drop(ctx)
}

// lease is the state that all handles on a workspace share until it is removed.
type lease struct {
	running atomic.Int64  // running calls
	removed atomic.Bool   // the workspace is being removed
	gone    chan struct{} // closed when the removal has ended
	tally   tally
}

func newLease() *lease {
	return &lease{gone: make(chan struct{}), tally: newTally()}
}

// acquire waits for one of the workspace's connections, at most for the query timeout. Unless it fails, calls.Leave
// must follow. Errors: that of the context, driver.ErrSlow.
func (e *Engine) acquire(ctx context.Context, l *lease) error {
	err := e.calls.Enter(ctx, l)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: other calls on the workspace used all its connections for %s",
			driver.ErrSlow, e.opts.QueryTimeout)
	}
	return err
}

// Open returns an engine. It does not connect: calls and Check return an error if the server is not available. Options
// that can never work, such as a malformed address, are an error, which does not repeat the address. For a mongodb+srv
// address the DNS record must be found; otherwise the error is a driver.ErrUnavailable.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	h := &health{}
	client, err := opts.connect(h)
	if err != nil {
		return nil, err
	}
	e := &Engine{opts: opts, client: client, health: h, shapes: map[*driver.Collection]*shape{}}
	e.calls = fairqueue.Queue[*lease]{Share: max(1, opts.MaxPool/2), Timeout: opts.QueryTimeout}
	e.breaker = newBreaker(opts.Log)
	e.builder = newBuilder(e)
	return e, nil
}

// Open returns the workspace. Its unique indexes exist when Open returns; the others are built in the background.
// Errors: driver.ErrNewer for a database of a newer version, driver.ErrForeign for a workspace of another owner.
func (e *Engine) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	name := o.Workspace
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	for {
		w, err := e.attach(ctx, o)
		if !errors.Is(err, errRemoved) {
			if err != nil {
				return nil, err
			}
			return w, nil
		}
		// The workspace is being removed: open it after that.
		select {
		case <-w.lease.gone:
		case <-ctx.Done():
			return nil, fmt.Errorf("open workspace %s: %w", name, ctx.Err())
		}
	}
}

// attach returns a handle on the workspace. With errRemoved the handle has the lease of the removed workspace.
func (e *Engine) attach(ctx context.Context, o driver.Opening) (*workspace, error) {
	name := o.Workspace
	s, l, err := e.space(name)
	if err != nil {
		return nil, err
	}
	all, err := e.schema(s, o.Collections)
	if err != nil {
		return nil, err
	}
	w := &workspace{engine: e, name: name, space: s, lease: l, schema: all}
	prepare := func(ctx context.Context) error { return e.prepare(ctx, s, &o, all.list) }
	if err := w.call(ctx, "open workspace "+name, prepare); err != nil {
		return w, err
	}
	e.builder.add(s, all.list)
	return w, nil
}

// schema is a list of collections of a database. It is immutable and shared by all workspaces that are opened with it,
// so that an idle workspace takes little memory.
type schema struct {
	collections []*driver.Collection
	list        []*kind
	kinds       map[string]*kind
	known       map[*driver.Collection]*kind
}

// maxSchemas bounds the cached schemas of a database. The program has two: that of the control workspace and that of
// organizations.
const maxSchemas = 16

func (e *Engine) schema(s *space, collections []*driver.Collection) (*schema, error) {
	e.mu.Lock()
	for _, all := range s.schemas {
		if slices.Equal(all.collections, collections) {
			e.mu.Unlock()
			return all, nil
		}
	}
	e.mu.Unlock()
	all := &schema{
		collections: slices.Clone(collections), kinds: make(map[string]*kind, len(collections)),
		known: make(map[*driver.Collection]*kind, len(collections)),
	}
	for _, c := range collections {
		k, err := e.kind(s.db, c)
		if err != nil {
			return nil, err
		}
		all.kinds[c.Name], all.known[c] = k, k
		all.list = append(all.list, k)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(s.schemas) < maxSchemas {
		s.schemas = append(s.schemas, all)
	}
	return all, nil
}

// Kept returns the number of workspaces and databases whose state is cached.
func (e *Engine) Kept() int { return e.leases.Len() + e.spaces.Len() }

// database returns the name of a workspace's database.
func (e *Engine) database(workspace string) (string, error) {
	if e.opts.Isolation == Shared {
		return e.opts.Database, nil
	}
	name := e.opts.Database + "_" + workspace
	if len(name) > maxDatabaseName {
		return "", fmt.Errorf("workspace %s: the database name %s has more than MongoDB's %d bytes; "+
			"configure a shorter database name", workspace, name, maxDatabaseName)
	}
	return name, nil
}

// space returns the database and the lease of a workspace.
func (e *Engine) space(workspace string) (*space, *lease, error) {
	name, err := e.database(workspace)
	if err != nil {
		return nil, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return nil, nil, errClosed
	}
	s := e.spaces.GetOrPut(name, func() *space {
		return &space{
			db: e.client.Database(name), turn: make(chan struct{}, 1),
			unique: map[string]*build{}, tasks: map[string]*task{},
		}
	})
	if e.opts.Isolation == Shared {
		e.common.Store(s)
	}
	return s, e.leases.GetOrPut(workspace, newLease), nil
}

// prepare checks the format of the database and the owner of the workspace, and creates missing unique indexes. It does
// so for every opening, because another process may have dropped the database and created it again.
func (e *Engine) prepare(ctx context.Context, s *space, o *driver.Opening, kinds []*kind) error {
	isNew, err := s.claim(ctx, o)
	if err != nil {
		return err
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if isNew {
		clear(s.unique)
		e.builder.forget(s)
	}
	for _, k := range kinds {
		unique := k.uniques()
		if len(unique) == 0 {
			continue
		}
		b := s.unique[k.signature]
		if b == nil {
			b = e.builder.start(s, k, unique)
			s.unique[k.signature] = b
		}
		if err := b.wait(ctx); err != nil {
			if b.failed() {
				delete(s.unique, k.signature)
			}
			return err
		}
	}
	if !isNew {
		return nil
	}
	_, err = s.db.Collection(metaCollection).UpdateOne(ctx,
		bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: "format"}}}},
		bson.D{{Key: "$setOnInsert", Value: bson.D{{Key: "format", Value: int64(format)}}}},
		options.UpdateOne().SetUpsert(true))
	if mongo.IsDuplicateKeyError(err) { // another process has written it
		return nil
	}
	return err
}

// Remove deletes all documents of the workspace after its running calls have ended. Existing handles of this engine
// fail from then on; the workspace must be opened again. Error: driver.ErrForeign for a workspace of another owner,
// which is left untouched.
func (e *Engine) Remove(ctx context.Context, name, owner string) error {
	limited, cancel := context.WithTimeout(ctx, removeFactor*e.opts.QueryTimeout)
	defer cancel()
	doing := "remove workspace " + name
	s, _, err := e.space(name)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	// The owner is checked before the handles end, because a workspace of another owner stays in use.
	if err := e.run(ctx, limited, true, doing, func(ctx context.Context) error {
		_, err := s.claim(ctx, &driver.Opening{Workspace: name, Owner: owner})
		return err
	}); err != nil {
		return err
	}
	s, l, err := e.end(limited, name)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer close(l.gone)
	if err := settle(limited, &l.running); err != nil {
		e.forget(name, s, l)
		return fmt.Errorf("%s: calls on it have not ended: %w", doing, err)
	}
	err = e.run(ctx, limited, true, doing, func(ctx context.Context) error {
		if e.opts.Isolation == PerDatabase {
			return s.drop(ctx)
		}
		return s.empty(ctx, name)
	})
	e.forget(name, s, l)
	return err
}

// end ends the lease of a workspace, after removals that are already running.
func (e *Engine) end(ctx context.Context, name string) (*space, *lease, error) {
	for {
		s, l, err := e.space(name)
		if err != nil {
			return nil, nil, err
		}
		if !l.removed.Swap(true) {
			return s, l, nil
		}
		select {
		case <-l.gone:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// forget drops the cached state of the workspace, so that the next opening starts from scratch.
func (e *Engine) forget(name string, s *space, l *lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leases.Delete(name, l)
	if e.opts.Isolation == PerDatabase {
		e.spaces.Delete(s.db.Name(), s)
		e.builder.forget(s)
	}
}

// empty deletes the workspace's documents from every collection, including those that this version does not know.
func (s *space) empty(ctx context.Context, name string) error {
	names, err := s.collections(ctx)
	if err != nil {
		return err
	}
	for _, c := range names {
		if _, err := s.db.Collection(c).DeleteMany(ctx, of(name)); err != nil {
			return err
		}
	}
	// The owner is deleted last, so that documents left by an interruption still have one.
	_, err = s.db.Collection(metaCollection).DeleteOne(ctx,
		bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: ownerPrefix + name}}}})
	return err
}

// Check makes a small write that a majority must acknowledge.
func (e *Engine) Check(ctx context.Context) error {
	if e.closed.Load() {
		return errClosed
	}
	return e.call(ctx, "check", func(ctx context.Context) error {
		meta := e.client.Database(e.opts.Database).Collection(metaCollection)
		_, err := meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$eq", Value: "check"}}}},
			bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}}}, options.UpdateOne().SetUpsert(true))
		if mongo.IsDuplicateKeyError(err) { // two concurrent first checks: the server accepts writes
			return nil
		}
		return err
	})
}

// Close waits up to ten seconds for running calls, stops building indexes and disconnects.
// Calls that start later fail with driver.ErrUnavailable.
func (e *Engine) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = settle(ctx, &e.adding) // what is not counted by then is added by the next Recount
	e.mu.Lock()
	if e.closed.Swap(true) {
		e.mu.Unlock()
		return nil
	}
	e.mu.Unlock()
	e.builder.close()
	if err := settle(ctx, &e.running); err != nil {
		err = fmt.Errorf("%d calls have not ended", e.running.Load())
		return errors.Join(err, e.client.Disconnect(ctx))
	}
	return e.client.Disconnect(ctx)
}

// settle waits until n is 0.
func settle(ctx context.Context, n *atomic.Int64) error {
	for n.Load() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}

// workspace implements driver.Workspace. It is a handle on a workspace, with the schema of its collections.
type workspace struct {
	engine *Engine
	name   string
	space  *space
	lease  *lease
	*schema
}

func (w *workspace) kind(c *driver.Collection) (*kind, error) {
	k := w.known[c]
	if k == nil && c == nil {
		return nil, fmt.Errorf("a call on workspace %s names no collection", w.name)
	}
	if k == nil {
		k = w.kinds[c.Name]
	}
	if k == nil {
		return nil, fmt.Errorf("workspace %s was opened without collection %q", w.name, c.Name)
	}
	return k, nil
}

// enter registers a call on the workspace, unless that is being removed. The caller must lower running again.
func (w *workspace) enter() error {
	w.lease.running.Add(1)
	if w.lease.removed.Load() {
		w.lease.running.Add(-1)
		return errRemoved
	}
	return nil
}

// idle replaces a call that needs no round trip. It returns the errors that every call returns.
func (w *workspace) idle(ctx context.Context, doing string) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	case w.engine.closed.Load():
		return fmt.Errorf("%s: %w", doing, errClosed)
	case w.lease.removed.Load():
		return fmt.Errorf("%s: %w", doing, errRemoved)
	}
	return nil
}

// call runs do as a call on the workspace, with one of its connections and the engine's timeout.
func (w *workspace) call(ctx context.Context, doing string, do func(context.Context) error) error {
	if err := w.enter(); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer w.lease.running.Add(-1)
	if err := w.engine.acquire(ctx, w.lease); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer w.engine.calls.Leave(w.lease)
	return w.engine.call(ctx, doing, do)
}
