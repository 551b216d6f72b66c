package mongo

import (
	"context"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Wait returns once every requested index is ready or refused.
func (e *Engine) Wait(ctx context.Context) error {
	for e.builder.next() != nil {
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// UniqueName returns the name of the collection's first unique index.
func UniqueName(c *driver.Collection) string { return definitions(c)[1].name }

// FormerUnique returns that index as an earlier version made it, with a condition on the type.
func FormerUnique(c *driver.Collection) mongo.IndexModel {
	d := definitions(c)[1]
	d.partial = bson.D{{Key: d.partial[0].Key, Value: bson.D{{Key: "$type", Value: "string"}}}}
	return models([]definition{define(d, d.declared)})[0]
}
