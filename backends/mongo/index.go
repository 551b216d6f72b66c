package mongo

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// maxBuild bounds a command that builds indexes.
	maxBuild = 6 * time.Hour
	// The builder tries again after firstRetry, then after twice as long each time, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// definition is an index as it is on the server.
type definition struct {
	declared string // the declared name; "" for indexes that this package adds
	name     string
	keys     bson.D
	unique   bool
	partial  bson.D
	wildcard bool
}

// define sets the name of the index, which ends with a checksum of its definition: a changed definition is a new index.
func define(d definition, prefix string) definition {
	sum := sha256.Sum256(fmt.Appendf(nil, "%v %v %v", d.keys, d.unique, d.partial))
	d.name = prefix + "_" + hex.EncodeToString(sum[:4])
	return d
}

// definitions returns the distinct indexes of a collection.
//
// A unique index contains only documents that have all its fields. A query for a value of each field can use it. A
// query for some of the fields, or in their order, cannot; if such queries are declared, the collection gets a second,
// plain index on the same fields.
//
// A list at the end of a longer index is omitted, unless only the organization of a partition precedes it: the index
// would contain a document once for each element, which helps neither counts nor the order of ids.
func definitions(c *driver.Collection) []definition {
	types := make(map[string]driver.Type, len(c.Fields))
	for _, f := range c.Fields {
		types[f.Name] = f.Type
	}
	head := bson.E{Key: "org_id", Value: int32(1)}
	tail := bson.E{Key: "_id", Value: int32(1)}
	all := []definition{define(definition{keys: bson.D{head, tail}}, "id")}
	seen := map[string]bool{all[0].name[len("id_"):]: true}
	add := func(d definition, prefix string) {
		d = define(d, prefix)
		if sum := d.name[len(prefix)+1:]; !seen[sum] {
			seen[sum] = true
			all = append(all, d)
		}
	}
	for _, x := range c.Indexes {
		keys, partial := bson.D{head}, bson.D{}
		for i, f := range x.Fields {
			if i > 0 && x.Fields[i-1] != fieldOrg && types[f] == driver.Strings && !x.Unique {
				continue
			}
			keys = append(keys, bson.E{Key: column(f), Value: int32(1)})
			partial = append(partial, bson.E{Key: column(f), Value: bson.D{{Key: "$gte", Value: least(types[f])}}})
		}
		if x.Unique {
			add(definition{declared: x.Name, keys: keys[:len(keys):len(keys)], unique: true, partial: partial}, x.Name)
			if !x.Ordered {
				continue
			}
		}
		keys = append(keys[:len(keys):len(keys)], tail)
		for _, f := range x.Rides {
			keys = append(keys, bson.E{Key: column(f), Value: int32(1)})
		}
		add(definition{declared: x.Name, keys: keys}, x.Name)
	}
	if c.Custom {
		add(definition{keys: bson.D{head, {Key: fieldCustom + ".$**", Value: int32(1)}}, wildcard: true}, "custom")
	}
	return all
}

// bsonType returns the BSON type of stored values of the type.
func bsonType(t driver.Type) string {
	switch {
	case numeric(t):
		return "number"
	case t == driver.Bool:
		return "bool"
	case t == driver.Time:
		return "date"
	}
	return "string"
}

// least returns the lower bound of all values of the type, which excludes missing values and those of other types; for
// Any it is that of text. Partial indexes use it as "the field is present", because the planner recognizes that an
// equality implies it. It would not for $type.
func least(t driver.Type) any {
	switch {
	case numeric(t):
		return math.Inf(-1)
	case t == driver.Bool:
		return false
	case t == driver.Time:
		return bson.DateTime(math.MinInt64)
	}
	return ""
}

// uniques returns the unique indexes.
func (k *kind) uniques() []definition {
	var out []definition
	for _, d := range k.indexes {
		if d.unique {
			out = append(out, d)
		}
	}
	return out
}

// models returns the definitions for the command that creates them.
func models(all []definition) []mongo.IndexModel {
	out := make([]mongo.IndexModel, 0, len(all))
	for _, d := range all {
		o := options.Index().SetName(d.name)
		if d.unique {
			o.SetUnique(true).SetPartialFilterExpression(d.partial)
		}
		out = append(out, mongo.IndexModel{Keys: d.keys, Options: o})
	}
	return out
}

// task is the work of building the indexes of a collection, with its result. The builder's mu guards what changes.
type task struct {
	space   *space
	kind    *kind
	done    bool
	refused map[string]string // reasons, by name of the index
	stale   []string          // unique indexes that are no longer declared, and were kept
}

// builder builds indexes in the background, one collection at a time.
type builder struct {
	engine *Engine
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	queue []*task
	wake  chan struct{}
	// unguarded is why the server does not check documents; empty if it does.
	unguarded string
}

func newBuilder(e *Engine) *builder {
	ctx, cancel := context.WithCancel(context.Background())
	b := &builder{engine: e, ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1)}
	b.wg.Go(b.run)
	return b
}

func (b *builder) close() {
	b.cancel()
	b.wg.Wait()
}

// add queues the collections of a database that have not been queued before.
func (b *builder) add(s *space, kinds []*kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range kinds {
		if s.tasks[k.signature] != nil {
			continue
		}
		t := &task{space: s, kind: k}
		s.tasks[k.signature] = t
		b.queue = append(b.queue, t)
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// forget ends the tasks of a database that no longer exists.
func (b *builder) forget(s *space) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range s.tasks {
		t.done = true
	}
	clear(s.tasks)
}

// build is a running creation of missing unique indexes. It continues if the call that started it ends.
type build struct {
	done chan struct{}
	err  error // valid once done is closed
}

// start starts creating the unique indexes that are missing.
func (b *builder) start(s *space, k *kind, unique []definition) *build {
	made := &build{done: make(chan struct{})}
	b.wg.Go(func() {
		defer close(made.done)
		ctx, cancel := context.WithTimeout(b.ctx, maxBuild)
		defer cancel()
		there, err := k.list(ctx)
		// The index of another version suffices until the builder has created the declared one.
		missing := slices.DeleteFunc(unique, func(d definition) bool {
			return slices.ContainsFunc(there, func(x present) bool { return x.keeps(&d) })
		})
		if err == nil && len(missing) > 0 {
			err = s.index(ctx, k, missing)
		}
		if mongo.IsDuplicateKeyError(err) {
			err = fault{fmt.Errorf("a unique index of collection %s cannot be created: documents in it repeat a value",
				k.name)}
		}
		made.err = err
	})
	return made
}

func (b *build) wait(ctx context.Context) error {
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *build) failed() bool {
	select {
	case <-b.done:
		return b.err != nil
	default:
		return false
	}
}

func (b *builder) run() {
	retry := firstRetry
	for {
		t := b.next()
		if t == nil {
			select {
			case <-b.ctx.Done():
				return
			case <-b.wake:
				continue
			}
		}
		err := b.build(t)
		if err == nil {
			b.finish(t)
			retry = firstRetry
			continue
		}
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(retry):
			retry = min(2*retry, lastRetry)
		}
	}
}

func (b *builder) next() *task {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return nil
	}
	return b.queue[0]
}

func (b *builder) finish(t *task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.done = true
	b.queue[0] = nil // release the task
	b.queue = b.queue[1:]
}

// build creates the indexes of a collection. An error means that another try may succeed.
func (b *builder) build(t *task) error {
	b.mu.Lock()
	gone := t.done
	b.mu.Unlock()
	if gone {
		return nil
	}
	t.space.indexing.Add(1) // dropping the database waits for the check too
	there, err := b.engine.there(b.ctx, t.space)
	t.space.indexing.Add(-1)
	if err != nil || !there {
		return err
	}
	var others, wildcard []definition
	for _, d := range t.kind.indexes {
		if d.wildcard {
			wildcard = append(wildcard, d)
		} else {
			others = append(others, d) // including unique indexes, which exist already and cost nothing
		}
	}
	if err := b.create(t, others); err != nil {
		return err
	}
	for _, d := range wildcard {
		if err := b.create(t, []definition{d}); err != nil {
			return err
		}
	}
	if err := b.guard(t); err != nil {
		return err
	}
	return b.tidy(t)
}

// there reports whether the database of a single workspace still exists. Another process may have removed it, and
// creating an index would bring it back, empty and without an owner.
func (e *Engine) there(ctx context.Context, s *space) (there bool, err error) {
	if e.opts.Isolation == Shared || s.dropped.Load() {
		return !s.dropped.Load(), nil
	}
	err = e.call(ctx, "look for database "+s.db.Name(), func(ctx context.Context) error {
		found, _, err := s.meta(ctx, "")
		there = found != 0
		return err
	})
	return there, err
}

// create creates indexes in one command, or separately if the server refuses one of them.
func (b *builder) create(t *task, all []definition) error {
	ctx, cancel := context.WithTimeout(b.ctx, maxBuild)
	defer cancel()
	err := t.space.index(ctx, t.kind, all)
	if err == nil || errors.Is(err, errRemoved) {
		return nil
	}
	v, judged := b.engine.judge(ctx, true, time.Now(), err)
	if v != answered {
		return judged
	}
	if len(all) > 1 {
		for _, d := range all {
			if err := b.create(t, []definition{d}); err != nil {
				return err
			}
		}
		return nil
	}
	reason := "queries on its fields read every document of the organization in this collection: " + judged.Error()
	if all[0].wildcard {
		reason = "conditions on custom values read every document of the organization in this collection " +
			"(MongoDB 7.0 or newer indexes them): " + judged.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.refused == nil {
		t.refused = map[string]string{}
	}
	if _, known := t.refused[all[0].name]; !known {
		b.engine.opts.Log.Warn("MongoDB refused an index", "database", t.space.db.Name(),
			"collection", t.kind.name, "index", all[0].name, "reason", reason)
	}
	t.refused[all[0].name] = reason
	return nil
}

// tasks returns the tasks of all databases in use.
func (e *Engine) tasks() (all []*task) {
	spaces := e.spaces.Values()
	e.builder.mu.Lock()
	defer e.builder.mu.Unlock()
	for _, s := range spaces {
		for _, t := range s.tasks {
			all = append(all, t)
		}
	}
	return all
}

// Indexes returns the states of the indexes of all databases in use, sorted by database, collection and name. It asks
// the server which of them exist, and returns an error if the server does not answer.
func (e *Engine) Indexes(ctx context.Context) ([]driver.IndexStatus, error) {
	b := e.builder
	var all []driver.IndexStatus
	for _, t := range e.tasks() {
		var there map[string]bool
		err := e.call(ctx, "list the indexes of "+t.kind.name, func(ctx context.Context) error {
			all, err := t.kind.list(ctx)
			there = make(map[string]bool, len(all))
			for _, x := range all {
				there[x.Name] = true
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		for _, d := range t.kind.indexes {
			s := driver.IndexStatus{
				Database: t.space.db.Name(), Collection: t.kind.name, Index: d.name, State: driver.IndexBuilding,
			}
			if reason, refused := t.refused[d.name]; refused {
				s.State, s.Reason = driver.IndexRefused, reason
			} else if there[d.name] && (t.done || d.unique) {
				s.State = driver.IndexReady
			}
			all = append(all, s)
		}
		b.mu.Unlock()
	}
	path := func(s driver.IndexStatus) string {
		return strings.Join([]string{s.Database, s.Collection, s.Index}, "\x00")
	}
	sort.Slice(all, func(i, j int) bool { return path(all[i]) < path(all[j]) })
	return all, nil
}
