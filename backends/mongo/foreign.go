package mongo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// maxForeign is how many documents of others are named of a collection, maxLooked how many
	// collections are looked at: with a database for each organization there may be very many.
	maxForeign = 5
	maxLooked  = 500
)

// foreign names documents that are not this package's: with an _id or an org_id that is no text, as whoever inserts
// a document by hand makes them. The two indexes find them without a look at others. No question does: they
// belong to no organization.
func (e *Engine) foreign(ctx context.Context) (found []driver.Finding) {
	tell := func(says, advice string) {
		found = append(found, driver.Finding{Subject: "documents", Verdict: driver.FindingWarning, Says: says, Advice: advice})
	}
	spaces := slices.SortedFunc(slices.Values(e.spaces.Values()), func(a, b *space) int { return strings.Compare(a.db.Name(), b.db.Name()) })
	var all []*mongo.Collection
	for _, s := range spaces[:min(len(spaces), maxLooked)] {
		if err := e.call(ctx, "list the collections of "+s.db.Name(), func(ctx context.Context) error {
			names, err := s.collections(ctx)
			for _, name := range slices.Sorted(slices.Values(names)) {
				all = append(all, s.db.Collection(name))
			}
			return err
		}); err != nil {
			tell("documents of others are not looked for: "+err.Error(), "")
			return found
		}
	}
	if more := len(all) - maxLooked; more > 0 {
		all = all[:maxLooked]
		tell(fmt.Sprintf("in %d more collections, documents of others are not looked for", more), "")
	}
	other := bson.D{{Key: "$type", Value: []string{"null", "int", "long", "double", "decimal", "object", "array", "objectId", "bool", "date", "binData", "timestamp", "regex"}}}
	for _, coll := range all {
		name := coll.Database().Name() + "." + coll.Name()
		for _, field := range []string{fieldID, fieldOrg} {
			var ids []bson.Raw
			err := e.call(ctx, "look for documents of others in "+name, func(ctx context.Context) error {
				cursor, err := coll.Find(ctx, bson.D{{Key: field, Value: other}}, options.Find().SetLimit(maxForeign).SetProjection(bson.D{{Key: fieldID, Value: int32(1)}}))
				if err != nil {
					return err
				}
				ids = nil
				return cursor.All(ctx, &ids)
			})
			if err != nil {
				tell("documents of others are not looked for: "+err.Error(), "")
				return found
			}
			for _, id := range ids {
				tell(fmt.Sprintf("%s has one that is not this program's, with the _id %s and no text in %s", name, clip(id.Lookup(fieldID).String()), field),
					"move it away: nothing reads it")
			}
		}
	}
	return found
}
