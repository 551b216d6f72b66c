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
	// maxForeign bounds the foreign documents that are named for each collection. MaxLooked bounds the collections that
	// are searched, because with a database for each organization there may be very many.
	maxForeign = 5
	maxLooked  = 500
)

// foreign returns findings about documents that this package did not write: their _id or org_id is not a string, as in
// documents that were inserted by hand. Two indexes find them without reading others. Queries do not find them, because
// they belong to no organization.
func (e *Engine) foreign(ctx context.Context) (found []driver.Finding) {
	warn := func(says, advice string) {
		found = append(found, driver.Finding{
			Subject: "documents", Verdict: driver.FindingWarning, Says: says, Advice: advice,
		})
	}
	byName := func(a, b *space) int { return strings.Compare(a.db.Name(), b.db.Name()) }
	spaces := slices.SortedFunc(slices.Values(e.spaces.Values()), byName)
	var all []*mongo.Collection
	for _, s := range spaces[:min(len(spaces), maxLooked)] {
		if err := e.call(ctx, "list the collections of "+s.db.Name(), func(ctx context.Context) error {
			names, err := s.collections(ctx)
			for _, name := range slices.Sorted(slices.Values(names)) {
				all = append(all, s.db.Collection(name))
			}
			return err
		}); err != nil {
			warn("the search for foreign documents failed: "+err.Error(), "")
			return found
		}
	}
	if more := len(all) - maxLooked; more > 0 {
		all = all[:maxLooked]
		warn(fmt.Sprintf("%d more collections were not searched for foreign documents", more), "")
	}
	other := bson.D{{Key: "$type", Value: []string{
		"null", "int", "long", "double", "decimal", "object", "array", "objectId", "bool", "date", "binData",
		"timestamp", "regex",
	}}}
	for _, coll := range all {
		name := coll.Database().Name() + "." + coll.Name()
		for _, field := range []string{fieldID, fieldOrg} {
			var ids []bson.Raw
			err := e.call(ctx, "search for foreign documents in "+name, func(ctx context.Context) error {
				onlyID := options.Find().SetLimit(maxForeign).SetProjection(bson.D{{Key: fieldID, Value: int32(1)}})
				cursor, err := coll.Find(ctx, bson.D{{Key: field, Value: other}}, onlyID)
				if err != nil {
					return err
				}
				ids = nil
				return cursor.All(ctx, &ids)
			})
			if err != nil {
				warn("the search for foreign documents failed: "+err.Error(), "")
				return found
			}
			for _, id := range ids {
				warn(fmt.Sprintf("%s has a document that is not this program's: _id %s, %s is not a string",
					name, clip(id.Lookup(fieldID).String()), field), "move it elsewhere, because nothing reads it")
			}
		}
	}
	return found
}
