package mongo

import (
	"context"
	"fmt"

	"tenantry/backends/store/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// maxReserve bounds what is set aside for documents before they are read.
const maxReserve = 128

// Find answers in one round trip where the documents fit the server's 16 MB.
func (w *workspace) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	k, err := w.kind(q.Collection)
	if err != nil {
		return nil, err
	}
	doing := "find in " + k.name
	filter, t, err := w.filter(k, q.Where)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	order, err := w.sort(k, q.Sort)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	if t == never || q.Limit < 1 {
		return nil, w.idle(ctx, doing)
	}
	o := options.Find().SetProjection(w.engine.projection).SetLimit(int64(q.Limit)).SetBatchSize(batch(q.Limit))
	if !byID(q.Where) {
		o.SetSort(order).SetAllowDiskUse(true)
	}
	if q.Offset > 0 {
		o.SetSkip(int64(q.Offset))
	}
	var docs []driver.Document
	err = w.call(ctx, doing, func(ctx context.Context) error {
		cursor, err := k.coll.Find(ctx, filter, o)
		if err != nil {
			return err
		}
		docs = make([]driver.Document, 0, min(q.Limit, maxReserve, cursor.RemainingBatchLength()))
		defer func() { _ = cursor.Close(ctx) }()
		for cursor.Next(ctx) {
			d, err := w.decode(cursor.Current)
			if err != nil {
				return err
			}
			docs = append(docs, d)
		}
		return cursor.Err()
	})
	if err != nil {
		return nil, err
	}
	return docs, nil
}

// batch is one more than will come, so that the server closes the cursor with the first answer.
func batch(limit int) int32 { return int32(min(limit, 1<<20) + 1) }

// byID reports whether the predicate asks for one document by its key, which needs no order.
func byID(p driver.Predicate) bool {
	if p.Op == driver.And {
		for _, kid := range p.Kids {
			if byID(kid) {
				return true
			}
		}
		return false
	}
	return p.Op == driver.Eq && !p.Ref.Custom && p.Ref.Name == "id"
}

// sort returns the order of a question, which ends with the id: nothing after it can change anything.
func (w *workspace) sort(k *kind, steps []driver.Order) (bson.D, error) {
	order := make(bson.D, 0, len(steps)+1)
	seen := make(map[string]bool, len(steps)+1)
	for _, s := range steps {
		o, err := w.operand(k, s.Ref)
		if err != nil {
			return nil, err
		}
		path := o.path
		if o.list != "" {
			path = o.list
		}
		if seen[path] || seen["_id"] {
			continue
		}
		seen[path] = true
		direction := int32(1)
		if s.Desc {
			direction = -1
		}
		order = append(order, bson.E{Key: path, Value: direction})
	}
	if !seen["_id"] {
		order = append(order, bson.E{Key: "_id", Value: int32(1)})
	}
	return order, nil
}

// Count counts in the server. An aggregation, unlike the count command, is exact on a sharded cluster
// while documents move between shards.
func (w *workspace) Count(ctx context.Context, c *driver.Collection, where driver.Predicate) (int64, error) {
	k, err := w.kind(c)
	if err != nil {
		return 0, err
	}
	doing := "count in " + k.name
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
