package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// present is an index on the server.
type present struct {
	Name    string
	Key     bson.D
	Unique  bool
	Partial bson.D `bson:"partialFilterExpression"`
}

// list returns the collection's indexes.
func (k *kind) list(ctx context.Context) (all []present, err error) {
	cursor, err := k.coll.Indexes().List(ctx)
	if err == nil {
		err = cursor.All(ctx, &all)
	}
	return all, err
}

// own reports whether a version of this package made the index: its name ends with the checksum of its definition.
func (x *present) own() bool {
	keys := slices.Clone(x.Key)
	for i, e := range keys {
		switch e.Value {
		case int32(1), int64(1), 1.0: // servers may return any of these types
			keys[i].Value = int32(1)
		}
	}
	prefix, _, _ := strings.Cut(x.Name, "_")
	name := define(definition{keys: keys, unique: x.Unique, partial: x.Partial}, prefix).name
	return len(keys) > 1 && keys[0].Key == fieldOrg && strings.HasSuffix(x.Name, name[len(prefix):])
}

// keeps reports whether the index enforces the same uniqueness as d: it is d itself, or its counterpart of another
// version of this package.
func (x *present) keeps(d *definition) bool {
	sameKey := func(a, b bson.E) bool { return a.Key == b.Key }
	return x.Name == d.name || x.Unique && d.unique && x.own() && slices.EqualFunc(x.Key, d.keys, sameKey)
}

// tidy drops the indexes of this package that are no longer declared, once all declared indexes exist. Running replicas
// of another version may be slower without them until they are replaced; a replica that starts creates its own again. A
// unique index whose uniqueness no declared index enforces is kept, because such replicas may rely on it, and reported
// by Inspect.
func (b *builder) tidy(t *task) error {
	ctx, cancel := context.WithTimeout(b.ctx, maxBuild)
	defer cancel()
	t.space.indexing.Add(1)
	defer t.space.indexing.Add(-1)
	if t.space.dropped.Load() {
		return nil
	}
	there, err := t.kind.list(ctx)
	if err == nil {
		var left []string
		for _, x := range b.stale(t, there) {
			if x.Unique && !slices.ContainsFunc(t.kind.indexes, func(d definition) bool { return x.keeps(&d) }) {
				left = append(left, x.Name)
				continue
			}
			err = t.kind.coll.Indexes().DropOne(ctx, x.Name)
			if refused, is := errors.AsType[mongo.ServerError](err); is && refused.HasErrorCode(codeNoIndex) {
				err = nil // another replica has dropped it
			}
			if err != nil {
				break
			}
			b.engine.opts.Log.Info("an index that is no longer declared was dropped",
				"database", t.space.db.Name(), "collection", t.kind.name, "index", x.Name)
		}
		b.mu.Lock()
		t.stale = left
		b.mu.Unlock()
	}
	if err == nil {
		return nil
	}
	if v, judged := b.engine.judge(ctx, true, time.Now(), err); v != answered {
		return judged
	}
	b.engine.opts.Log.Warn("indexes that are no longer declared remain",
		"database", t.space.db.Name(), "collection", t.kind.name, "error", err)
	return nil
}

// stale returns the indexes of this package that are not declared; none while a declared index is missing.
func (b *builder) stale(t *task, there []present) (stale []present) {
	names := map[string]bool{}
	for _, x := range there {
		names[x.Name] = true
	}
	declared := map[string]bool{} // whether the index is a wildcard, which not every server supports
	b.mu.Lock()
	for _, other := range t.space.tasks { // kinds of the same name may have different indexes
		if other.kind.name == t.kind.name {
			for _, d := range other.kind.indexes {
				declared[d.name] = d.wildcard
			}
		}
	}
	b.mu.Unlock()
	for name, wildcard := range declared {
		if !names[name] && !wildcard {
			return nil
		}
	}
	return slices.DeleteFunc(slices.Clone(there), func(x present) bool {
		_, is := declared[x.Name]
		return is || !x.own()
	})
}

const codeNoIndex = 27

// stale returns findings about the indexes that tidy kept.
func (e *Engine) stale() (found []driver.Finding) {
	all := map[string]bool{}
	for _, t := range e.tasks() {
		e.builder.mu.Lock()
		for _, name := range t.stale {
			all[fmt.Sprintf("%s of %s.%s", name, t.space.db.Name(), t.kind.name)] = true
		}
		e.builder.mu.Unlock()
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		found = append(found, driver.Finding{
			Subject: "indexes", Verdict: driver.FindingWarning,
			Says:   name + " enforces a uniqueness that this version does not require",
			Advice: "drop it once no older version uses the same data",
		})
	}
	return found
}
