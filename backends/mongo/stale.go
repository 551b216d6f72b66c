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

// present is an index that the server has.
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

// own reports whether some version of this package made it: its name ends with the sum of what it is.
func (x *present) own() bool {
	keys := slices.Clone(x.Key)
	for i, e := range keys {
		switch e.Value {
		case int32(1), int64(1), 1.0: // as the server has the number
			keys[i].Value = int32(1)
		}
	}
	prefix, _, _ := strings.Cut(x.Name, "_")
	name := define(definition{keys: keys, unique: x.Unique, partial: x.Partial}, prefix).name
	return len(keys) > 1 && keys[0].Key == fieldOrg && strings.HasSuffix(x.Name, name[len(prefix):])
}

// keeps reports whether it keeps unique what d does: it is d, or that of another version of this package.
func (x *present) keeps(d *definition) bool {
	return x.Name == d.name || x.Unique && d.unique && x.own() && slices.EqualFunc(x.Key, d.keys, func(a, b bson.E) bool { return a.Key == b.Key })
}

// tidy drops the indexes of this package that no kind declares any more, once all that are declared are there. Replicas
// of another version that are running ask what those serve too, or are slower until they are replaced; one that starts
// makes its own anew. What keeps values unique that no declared index does is left for as long as such replicas may
// rely on it, and told.
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
			if refused, is := errors.AsType[mongo.ServerError](err); is && refused.HasErrorCode(codeNoIndex) { // another replica was first
				err = nil
			}
			if err != nil {
				break
			}
			b.engine.opts.Log.Info("an index was dropped that is declared no more", "database", t.space.db.Name(), "collection", t.kind.name, "index", x.Name)
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
	b.engine.opts.Log.Warn("indexes that are declared no more are left", "database", t.space.db.Name(), "collection", t.kind.name, "error", err)
	return nil
}

// stale returns the indexes of this package that are not declared; none while one that is may be missing.
func (b *builder) stale(t *task, there []present) (stale []present) {
	names := map[string]bool{}
	for _, x := range there {
		names[x.Name] = true
	}
	declared := map[string]bool{} // whether it is on custom values, which not every server has
	b.mu.Lock()
	for _, other := range t.space.tasks { // kinds of one name may differ
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

// stale tells of the indexes that were left.
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
		found = append(found, driver.Finding{Subject: "indexes", Verdict: driver.FindingWarning,
			Says: name + " keeps values unique which this version does not ask for", Advice: "drop it once no older version serves the same data"})
	}
	return found
}
