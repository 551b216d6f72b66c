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

// ownerPrefix is the prefix of the identifiers in metaCollection of documents that name the owner of a workspace:
// {_id: "owner/<workspace>", owner: "<owner>"}.
const ownerPrefix = "owner/"

// of matches the documents of a workspace.
func of(workspace string) bson.D {
	return bson.D{{Key: "org_id", Value: bson.D{{Key: "$eq", Value: workspace}}}}
}

func (s *space) where() string { return "database " + s.db.Name() }

// claim checks that the opening may use the workspace, and stores its owner if there is none yet; of several concurrent
// claims the server accepts one. It reports whether the database has no format yet, because it is new or was dropped.
func (s *space) claim(ctx context.Context, o *driver.Opening) (isNew bool, err error) {
	for {
		found, owner, err := s.meta(ctx, o.Workspace)
		if err != nil {
			return false, err
		}
		isNew = isNew || found == 0
		if found > format {
			return false, fault{fmt.Errorf("%w: database %s has format %d, this program knows %d",
				driver.ErrNewer, s.db.Name(), found, format)}
		}
		if found > 0 && found < format {
			return false, fault{fmt.Errorf("database %s has format %d, from before the first release; "+
				"this program reads format %d: import its data from an export", s.db.Name(), found, format)}
		}
		claim, err := o.Admit(owner, s.where(), func() (bool, error) { return s.holds(ctx, o.Workspace) })
		if err != nil || !claim {
			return isNew, ours(err)
		}
		_, err = s.db.Collection(metaCollection).InsertOne(ctx,
			bson.D{{Key: "_id", Value: ownerPrefix + o.Workspace}, {Key: "owner", Value: o.Owner}})
		if !mongo.IsDuplicateKeyError(err) {
			return isNew, err
		}
	}
}

// ours marks an error that is about the workspace and not about the connection to the server.
func ours(err error) error {
	if f, is := err.(*driver.ForeignError); is { //nolint:errorlint // Admit returns exactly this type
		return fault{f}
	}
	return err
}

// meta reads the format of the database, 0 if there is none, and the owner of the workspace, "" if there is none.
func (s *space) meta(ctx context.Context, workspace string) (found int64, owner string, err error) {
	both := bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{"format", ownerPrefix + workspace}}}}}
	cursor, err := s.db.Collection(metaCollection).Find(ctx, both,
		options.Find().SetLimit(2).SetBatchSize(3)) // a batch size above the limit closes the cursor
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = cursor.Close(ctx) }()
	for cursor.Next(ctx) {
		id, _ := cursor.Current.Lookup("_id").StringValueOK()
		ok := false
		if id == "format" {
			found, ok = cursor.Current.Lookup("format").AsInt64OK()
		} else {
			owner, ok = cursor.Current.Lookup("owner").StringValueOK()
			ok = ok && owner != ""
		}
		if !ok {
			return 0, "", fault{fmt.Errorf("database %s is damaged: document %q of %s has an invalid value",
				s.db.Name(), id, metaCollection)}
		}
	}
	return found, owner, cursor.Err()
}

// holds reports whether the workspace has documents, including kinds that this version does not know.
func (s *space) holds(ctx context.Context, workspace string) (bool, error) {
	names, err := s.collections(ctx)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		onlyID := options.FindOne().SetProjection(bson.D{{Key: "_id", Value: int32(1)}})
		err := s.db.Collection(name).FindOne(ctx, of(workspace), onlyID).Err()
		if err == nil {
			return true, nil
		}
		if err != mongo.ErrNoDocuments { //nolint:errorlint // it is returned as it is
			return false, err
		}
	}
	return false, nil
}

// collections returns the names of the collections with documents of workspaces.
func (s *space) collections(ctx context.Context) ([]string, error) {
	names, err := s.db.ListCollectionNames(ctx, bson.D{})
	return slices.DeleteFunc(names, func(name string) bool {
		return name == metaCollection || strings.HasPrefix(name, "system.")
	}), err
}

// Residents returns the names of the workspaces that have documents or an owner.
func (e *Engine) Residents(ctx context.Context) (names []string, err error) {
	err = e.call(ctx, "list workspaces", func(ctx context.Context) (err error) {
		if e.opts.Isolation == Shared {
			names, err = (&space{db: e.client.Database(e.opts.Database)}).residents(ctx)
			return err
		}
		names = nil
		databases, err := e.client.ListDatabaseNames(ctx, bson.D{})
		for _, name := range databases {
			if workspace, is := strings.CutPrefix(name, e.opts.Database+"_"); is {
				names = append(names, workspace)
			}
		}
		return err
	})
	slices.Sort(names)
	return slices.Compact(names), err
}

// Exists reports whether the workspace has documents or an owner.
func (e *Engine) Exists(ctx context.Context, workspace string) (there bool, err error) {
	name, err := e.database(workspace)
	if err != nil {
		return false, err
	}
	s := &space{db: e.client.Database(name)}
	err = e.call(ctx, "look for workspace "+workspace, func(ctx context.Context) (err error) {
		_, owner, err := s.meta(ctx, workspace)
		if there = owner != ""; err == nil && !there {
			there, err = s.holds(ctx, workspace)
		}
		return err
	})
	return there, err
}

// Resident reads the owner of a workspace.
func (e *Engine) Resident(ctx context.Context, workspace string) (driver.Resident, error) {
	r := driver.Resident{Workspace: workspace}
	name, err := e.database(workspace)
	if err != nil {
		return r, err
	}
	s := &space{db: e.client.Database(name)}
	r.Where = s.where()
	if e.opts.Isolation == Shared {
		r.Where = "documents with org_id " + workspace + " in " + r.Where
	}
	err = e.call(ctx, "read the owner of workspace "+workspace, func(ctx context.Context) (err error) {
		_, r.Owner, err = s.meta(ctx, workspace)
		return err
	})
	return r, err
}

// residents returns the names of the workspaces of a shared database, some of them repeatedly.
func (s *space) residents(ctx context.Context) (names []string, err error) {
	collections, err := s.collections(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range collections {
		var workspaces []string
		if err := s.db.Collection(name).Distinct(ctx, "org_id", bson.D{}).Decode(&workspaces); err != nil {
			return nil, err
		}
		names = append(names, workspaces...)
	}
	owned := bson.D{{Key: "owner", Value: bson.D{{Key: "$exists", Value: true}}}}
	cursor, err := s.db.Collection(metaCollection).Find(ctx, owned)
	if err != nil {
		return nil, err
	}
	var docs []struct {
		ID string `bson:"_id"`
	}
	if err := cursor.All(ctx, &docs); err != nil {
		return nil, err
	}
	for _, doc := range docs {
		names = append(names, strings.TrimPrefix(doc.ID, ownerPrefix))
	}
	return names, nil
}
