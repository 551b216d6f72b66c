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
	// maxBuild bounds one command that builds indexes.
	maxBuild = 6 * time.Hour
	// The builder tries again after firstRetry, then after twice as long, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// definition is an index as the server knows it.
type definition struct {
	declared string // "" for those of this package
	name     string
	keys     bson.D
	unique   bool
	partial  bson.D
	wildcard bool
}

// define gives the index the name that belongs to what it is: another definition is another index.
func define(d definition, prefix string) definition {
	sum := sha256.Sum256(fmt.Appendf(nil, "%v %v %v", d.keys, d.unique, d.partial))
	d.name = prefix + "_" + hex.EncodeToString(sum[:4])
	return d
}

// definitions returns the indexes of a collection, without repeats.
//
// A unique index holds only documents that have all its fields, which an equality with a value of each implies: such a
// question needs no other. One for some of the fields, or in their order, does: where those are asked, there is a
// second, plain one beside it.
//
// A list at the end of a longer index is left out, unless only the organization of a partition is before it. It would
// make the index hold a document once for each element, which serves neither counting nor the order of ids.
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

// bsonType returns what a value of the type is stored as.
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

// least returns the value that all of the type are at least (Any is of several types, of which a unique index holds the
// texts), and no value of another type or missing one is. That a document has any is written so since the planner sees
// that an equality implies it, which it does not of $type.
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

func (k *kind) uniques() []definition {
	var out []definition
	for _, d := range k.indexes {
		if d.unique {
			out = append(out, d)
		}
	}
	return out
}

// models returns the definitions for one command.
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

// task is the work of building the indexes of a collection, and what became of it.
type task struct {
	space   *space
	kind    *kind
	done    bool
	refused map[string]string // by name of index
	stale   []string          // indexes that are declared no more and were left
}

// builder makes the indexes that nobody waits for, one collection at a time.
type builder struct {
	engine *Engine
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	queue []*task
	wake  chan struct{}
	// unguarded is why the server does not check documents; empty while it does.
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

// forget drops the tasks of a database that is gone.
func (b *builder) forget(s *space) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range s.tasks {
		t.done = true
	}
	clear(s.tasks)
}

// build is the making of unique indexes that are missing, which goes on when the call that began it has given up.
type build struct {
	done chan struct{}
	err  error // to be read once done is closed
}

func (b *builder) start(s *space, k *kind, unique []definition) *build {
	made := &build{done: make(chan struct{})}
	b.wg.Go(func() {
		defer close(made.done)
		ctx, cancel := context.WithTimeout(b.ctx, maxBuild)
		defer cancel()
		there, err := k.list(ctx)
		missing := slices.DeleteFunc(unique, func(d definition) bool { // another version's does until the builder has made it
			return slices.ContainsFunc(there, func(x present) bool { return x.keeps(&d) })
		})
		if err == nil && len(missing) > 0 {
			err = s.index(ctx, k, missing)
		}
		if mongo.IsDuplicateKeyError(err) {
			err = fault{fmt.Errorf("a unique index of collection %s cannot be made: documents in it repeat a value", k.name)}
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
	b.queue[0] = nil // else it were held until another takes the place
	b.queue = b.queue[1:]
}

// build makes the indexes of a collection. An error says that it is worth another try.
func (b *builder) build(t *task) error {
	b.mu.Lock()
	gone := t.done
	b.mu.Unlock()
	if gone {
		return nil
	}
	t.space.indexing.Add(1) // whoever drops the database waits for the look too
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
			others = append(others, d) // unique ones that are there already too, and cost nothing
		}
	}
	if err := b.make(t, others); err != nil {
		return err
	}
	for _, d := range wildcard {
		if err := b.make(t, []definition{d}); err != nil {
			return err
		}
	}
	if err := b.guard(t); err != nil {
		return err
	}
	return b.tidy(t)
}

// there reports whether the database is still there, where it is one workspace's: another process
// may have removed it, and an index would bring it back, empty and nobody's.
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

// make makes indexes in one command, or one by one where the server refuses one of them.
func (b *builder) make(t *task, all []definition) error {
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
			if err := b.make(t, []definition{d}); err != nil {
				return err
			}
		}
		return nil
	}
	reason := "questions on its fields read every document of the organization in this collection: " + judged.Error()
	if all[0].wildcard {
		reason = "not indexed: conditions on custom values read the organization's documents of that kind (MongoDB 7.0 or newer indexes them): " + judged.Error()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.refused == nil {
		t.refused = map[string]string{}
	}
	if _, known := t.refused[all[0].name]; !known {
		b.engine.opts.Log.Warn("MongoDB refused an index", "database", t.space.db.Name(), "collection", t.kind.name, "index", all[0].name, "reason", reason)
	}
	t.refused[all[0].name] = reason
	return nil
}

// tasks returns those of the databases that are held.
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

// Indexes tells of the indexes of every collection of the databases that are held, sorted by database, collection and
// name. It asks the server which of them exist; an error says that it did not answer.
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
			s := driver.IndexStatus{Database: t.space.db.Name(), Collection: t.kind.name, Index: d.name, State: driver.IndexBuilding}
			if reason, refused := t.refused[d.name]; refused {
				s.State, s.Reason = driver.IndexRefused, reason
			} else if there[d.name] && (t.done || d.unique) {
				s.State = driver.IndexReady
			}
			all = append(all, s)
		}
		b.mu.Unlock()
	}
	sort.Slice(all, func(i, j int) bool {
		return strings.Join([]string{all[i].Database, all[i].Collection, all[i].Index}, "\x00") < strings.Join([]string{all[j].Database, all[j].Collection, all[j].Index}, "\x00")
	})
	return all, nil
}
