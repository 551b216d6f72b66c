package mongo

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// maxReserve bounds the capacity that is allocated for documents before they are read.
const maxReserve = 128

// Remote reports that calls wait for a server.
func (e *Engine) Remote() bool { return true }

// Find implements driver.Workspace. It takes one round trip if the documents fit an answer of 16 MB.
func (w *workspace) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	k, err := w.kind(q.Collection)
	if err != nil {
		return nil, err
	}
	doing := k.finding
	filter, t, err := w.filter(k, q.Where)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	page := page{limit: int64(q.Limit), offset: int64(q.Offset), batch: batch(q.Limit)}
	if isOne := k.one(q.Where); !isOne || len(q.Sort) > 0 {
		if page.order, page.places, err = w.sort(k, q.Sort); err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		if isOne {
			page.order = nil
		}
	}
	var docs []driver.Document
	take, taken := q.Take, error(nil)
	if take == nil {
		take = func(d *driver.Document) error {
			docs = append(docs, *d)
			return nil
		}
	} else if taken = take(nil); taken != nil {
		return nil, taken
	}
	if t == never || q.Limit < 1 {
		return nil, w.idle(ctx, doing)
	}
	err = w.call(ctx, doing, func(ctx context.Context) error {
		cursor, err := k.find(ctx, filter, &page)
		if err != nil {
			return err
		}
		defer func() { _ = cursor.Close(ctx) }()
		if q.Take == nil {
			docs = make([]driver.Document, 0, min(q.Limit, maxReserve, cursor.RemainingBatchLength()))
		} else {
			taken = take(nil)
		}
		for taken == nil && cursor.Next(ctx) {
			d, err := w.decode(k, cursor.Current)
			d.Damage = err
			taken = take(&d) // its error says nothing about the server, so it is not returned from here
		}
		return cursor.Err()
	})
	if err = cmp.Or(err, taken); err != nil {
		return nil, err
	}
	return docs, nil
}

// page selects a part of the found documents. It is a single option of find, to save allocations.
type page struct {
	order         bson.D // nil if at most one document can match
	places        bson.D // computed fields of the order; see sort
	limit, offset int64
	batch         int32
}

// List implements options.Lister.
func (p *page) List() []func(*options.FindOptions) error {
	return []func(*options.FindOptions) error{p.apply}
}

func (p *page) apply(o *options.FindOptions) error {
	o.Limit, o.BatchSize = &p.limit, &p.batch
	if p.order != nil {
		toDisk := true
		o.Sort, o.AllowDiskUse = p.order, &toDisk
	}
	if p.offset > 0 {
		o.Skip = &p.offset
	}
	return nil
}

// batch returns a batch size above the limit, so that the server closes the cursor with its first answer.
func batch(limit int) int32 { return int32(min(limit, 1<<20) + 1) }

// one reports whether at most one document can match, because the predicate pins the id or all fields of a unique
// index. Such a query needs no order.
func (s *shape) one(p driver.Predicate) bool {
	return p.Pins("id") || slices.ContainsFunc(s.unique, func(fields []string) bool { return p.Pins(fields...) })
}

// sort returns the order of a query, which ends with the id because ids are unique. A custom value is sorted by a
// computed field, because the server would sort a list by its least or greatest element.
func (w *workspace) sort(k *kind, steps []driver.Order) (order, places bson.D, err error) {
	order = make(bson.D, 0, len(steps)+1)
	has := func(path string) bool {
		return slices.ContainsFunc(order, func(e bson.E) bool { return e.Key == path })
	}
	for _, s := range steps {
		o, err := w.operand(k, s.Ref)
		if err != nil {
			return nil, nil, err
		}
		path := o.path
		if o.custom {
			path = "%s_" + encodeKey(s.Ref.Name)
		}
		if has(path) || has("_id") {
			continue
		}
		if o.custom { // objects and lists, which sort between text and booleans, become null
			compound := op("$and", op("$gte", o.expr(), op("$literal", bson.D{})), op("$lt", o.expr(), false))
			places = append(places, bson.E{Key: path, Value: op("$cond", compound, nil, o.expr())})
		}
		direction := int32(1)
		if s.Desc {
			direction = -1
		}
		order = append(order, bson.E{Key: path, Value: direction})
	}
	if !has("_id") {
		order = append(order, bson.E{Key: "_id", Value: int32(1)})
	}
	return order, places, nil
}

// Count implements driver.Workspace. It counts with an aggregation which, unlike the count command, is exact on a
// sharded cluster while documents move between shards.
func (w *workspace) Count(ctx context.Context, c *driver.Collection, where driver.Predicate) (int64, error) {
	k, err := w.kind(c)
	if err != nil {
		return 0, err
	}
	doing := k.counting
	filter, t, err := w.filter(k, where)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	if t == never {
		return 0, w.idle(ctx, doing)
	}
	var n int64
	err = w.call(ctx, doing, func(ctx context.Context) (err error) {
		n, err = k.coll.CountDocuments(ctx, filter)
		return err
	})
	return n, err
}

// matching returns a pipeline with the stage that applies the filter. The filter begins with the workspace.
func matching(filter bson.D) bson.A { return bson.A{bson.D{{Key: "$match", Value: filter}}} }

// find sends a query as one command: a find, or an aggregation if its order has computed fields.
func (k *kind) find(ctx context.Context, filter bson.D, p *page) (*mongo.Cursor, error) {
	if len(p.places) == 0 {
		return k.coll.Find(ctx, filter, p)
	}
	return k.coll.Aggregate(ctx, k.stages(filter, p), options.Aggregate().SetAllowDiskUse(true).SetBatchSize(p.batch))
}

// stages returns the pipeline of a query whose order has computed fields.
func (k *kind) stages(filter bson.D, p *page) bson.A {
	stages := matching(filter)
	if len(p.places) > 0 {
		stages = append(stages, bson.D{{Key: "$addFields", Value: p.places}})
	}
	if p.order != nil {
		stages = append(stages, bson.D{{Key: "$sort", Value: p.order}})
	}
	if p.offset > 0 {
		stages = append(stages, bson.D{{Key: "$skip", Value: p.offset}})
	}
	without := bson.D{}
	for _, e := range p.places {
		without = append(without, bson.E{Key: e.Key, Value: int32(0)})
	}
	return append(stages, bson.D{{Key: "$limit", Value: p.limit}}, bson.D{{Key: "$project", Value: without}})
}
