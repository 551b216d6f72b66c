package mongo_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/mongo"
	"tenantry/backends/mongo/mongotest"
	"tenantry/crypto/secret"

	"go.mongodb.org/mongo-driver/v2/bson"
	library "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// TestIndexesOfAnotherVersion: indexes of this package that are no longer declared are dropped once the declared ones
// exist. Indexes of others are kept, and so are unique indexes whose uniqueness no declared index enforces, which
// Inspect reports. Open does not wait for a unique index if that of another version enforces the same.
func TestIndexesOfAnotherVersion(t *testing.T) {
	t.Parallel()
	ctx, database := t.Context(), mongotest.Database(t)
	before := people()
	before.Indexes = append(before.Indexes, driver.Index{Name: "name", Fields: []string{"name"}},
		driver.Index{Name: "country_name", Fields: []string{"country", "name"}, Unique: true})
	var commands counter
	serve := func(c *driver.Collection) (*mongo.Engine, driver.Workspace) {
		e, err := mongo.Open(ctx, mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database, Monitor: commands.monitor()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		ws, err := e.Open(ctx, driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		return e, ws
	}
	coll := mongotest.Client(t).Database(database).Collection(before.Name)
	there := func() (names []string) {
		all, err := coll.Indexes().ListSpecifications(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range all {
			names = append(names, x.Name[:max(strings.LastIndex(x.Name, "_"), 1)])
		}
		slices.Sort(names)
		return names
	}
	_, old := serve(before)
	mine := library.IndexModel{Keys: bson.D{{Key: "org_id", Value: 1}, {Key: "email", Value: -1}}, Options: options.Index().SetName("email_0123abcd")}
	if _, err := coll.Indexes().CreateOne(ctx, mine); err != nil {
		t.Fatal(err)
	}
	// The unique index as an earlier version made it, with a condition on the type and therefore another name.
	if err := coll.Indexes().DropOne(ctx, mongo.UniqueName(before)); err != nil {
		t.Fatal(err)
	}
	former := mongo.FormerUnique(before)
	if _, err := coll.Indexes().CreateOne(ctx, former); err != nil {
		t.Fatal(err)
	}
	with := there()

	commands.take()
	now := people()
	now.Indexes[0].Ordered = false
	e, ws := serve(now)
	_, sent := commands.take()
	made := slices.IndexFunc(sent, func(raw bson.Raw) bool { _, err := raw.LookupErr("createIndexes"); return err == nil })
	if unique, _ := sent[made].Lookup("indexes", "0", "unique").BooleanOK(); unique {
		t.Errorf("the first index command waits for a unique index that another version has: %s", sent[made])
	}
	has := func(name string) int {
		return len(slices.DeleteFunc(there(), func(n string) bool { return n != name }))
	}
	if has("name") != 0 || has("email") != 2 || has("country_name") != 1 || len(there()) != len(with)-2 {
		t.Errorf("indexes %q, before %q; want name dropped, and one of two for the email", there(), with)
	}
	found := slices.DeleteFunc(e.Inspect(ctx), func(f driver.Finding) bool { return f.Subject != "indexes" })
	if len(found) != 1 || !strings.Contains(found[0].Says, "country_name_") {
		t.Errorf("findings %+v, want one about country_name", found)
	}
	twin := person(now, 2)
	twin.Doc.Values[0] = person(now, 1).Doc.Values[0]
	for _, ws := range []driver.Workspace{ws, old} { // the other version still runs
		c := map[driver.Workspace]*driver.Collection{ws: now, old: before}[ws]
		one, two := person(c, 1), twin
		one.Collection, two.Collection = c, c
		if err := ws.Write(ctx, []driver.Write{one}); err != nil && ws != old {
			t.Fatal(err)
		}
		var duplicate *driver.DuplicateError
		if err := ws.Write(ctx, []driver.Write{two}); !errors.As(err, &duplicate) || duplicate.Index != "email" {
			t.Errorf("writing a duplicate: %v, want a DuplicateError of email", err)
		}
	}
}
