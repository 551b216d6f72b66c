package mongo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"tenantry/backends/driver"
	"tenantry/backends/mongo"
	"tenantry/backends/mongo/mongotest"
	"tenantry/crypto/secret"
)

// TestOddDocumentsAreNamed: a document that another program inserted or changed is returned with the reason why it
// cannot be read, and does not affect others. Inspect reports documents without an organization. Neither repeats values.
func TestOddDocumentsAreNamed(t *testing.T) {
	t.Parallel()
	c, ctx := people(), t.Context()
	database := mongotest.Database(t)
	e, err := mongo.Open(ctx, mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ws, err := e.Open(ctx, driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(ctx, []driver.Write{person(c, 1), person(c, 2)}); err != nil {
		t.Fatal(err)
	}
	odd := bson.D{{Key: "_id", Value: "org-1/odd"}, {Key: "org_id", Value: "org-1"}, {Key: "country", Value: "XX"}, {Key: "name", Value: bson.Regex{Pattern: "hunter2"}}, {Key: "rev", Value: 1}}
	if _, err := mongotest.Client(t).Database(database).Collection(c.Name).InsertOne(ctx, odd, options.InsertOne().SetBypassDocumentValidation(true)); err != nil {
		t.Fatal(err)
	}
	// A document that was inserted by hand, without an _id.
	if _, err := mongotest.Client(t).Database(database).Collection(c.Name).InsertOne(ctx, bson.D{{Key: "name", Value: "hunter2"}}, options.InsertOne().SetBypassDocumentValidation(true)); err != nil {
		t.Fatal(err)
	}
	find := func(where driver.Predicate) ([]driver.Document, error) {
		return ws.Find(ctx, driver.Query{Collection: c, Where: where, Limit: 10})
	}
	if docs, err := find(eq("id", fmt.Sprintf("%024x", 1))); err != nil || len(docs) != 1 {
		t.Errorf("another document: %v, %v", docs, err)
	}
	all, err := find(driver.Predicate{})
	if err != nil || len(all) != 3 || all[0].Damage != nil || all[1].Damage != nil {
		t.Fatalf("%v, %v", all, err)
	}
	if d := all[2]; d.ID != "odd" || d.Body != nil || d.Damage == nil || !strings.Contains(d.Damage.Error(), "field name") || strings.Contains(d.Damage.Error(), "hunter2") {
		t.Errorf("the odd document: %+v, want its ID, and a damage that names the field but no value", d)
	}
	found := slices.DeleteFunc(e.Inspect(ctx), func(f driver.Finding) bool {
		return f.Subject != "documents" || strings.Contains(f.Says, "checked by the server")
	})
	if len(found) != 1 || !strings.Contains(found[0].Says, `"$oid"`) || strings.Contains(fmt.Sprint(found), "hunter2") {
		t.Errorf("findings %+v, want one that names the foreign _id but no value", found)
	}
}

// TestOddValuesAreLeftOutOfGroups: values of other types than their fields do not fail an aggregation. Their groups are
// omitted.
func TestOddValuesAreLeftOutOfGroups(t *testing.T) {
	t.Parallel()
	c, ctx := people(), t.Context()
	database := mongotest.Database(t)
	e, err := mongo.Open(ctx, mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ws, err := e.Open(ctx, driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(ctx, []driver.Write{person(c, 1), person(c, 2)}); err != nil {
		t.Fatal(err)
	}
	odd := bson.D{{Key: "_id", Value: "org-1/odd"}, {Key: "org_id", Value: "org-1"}, {Key: "rev", Value: 1}}
	for _, f := range c.Fields {
		odd = append(odd, bson.E{Key: f.Name, Value: bson.NewObjectID()})
	}
	ask := func() (answers []string) {
		for _, f := range c.Fields {
			if f.Type == driver.Strings {
				continue
			}
			ref := driver.Ref{Name: f.Name, Type: f.Type}
			a := driver.Aggregation{Collection: c, Groups: []driver.Group{{Ref: ref}}, Measures: []driver.Measure{{Op: driver.Count}}, Limit: 10}
			rows, err := ws.Aggregate(ctx, a)
			answers = append(answers, fmt.Sprint(f.Name, rows, err))
			a.Groups, a.Measures = nil, []driver.Measure{{Op: driver.Sum, Ref: ref}, {Op: driver.Avg, Ref: ref}, {Op: driver.Min, Ref: ref}, {Op: driver.Max, Ref: ref}}
			rows, err = ws.Aggregate(ctx, a)
			answers = append(answers, fmt.Sprint(f.Name, rows, err))
		}
		return answers
	}
	want := ask()
	if _, err := mongotest.Client(t).Database(database).Collection(c.Name).InsertOne(ctx, odd, options.InsertOne().SetBypassDocumentValidation(true)); err != nil {
		t.Fatal(err)
	}
	if got := ask(); !slices.Equal(got, want) {
		t.Errorf("the answers changed (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// TestFormatOfNoReleaseIsRefused: a database of an earlier format is refused, and nothing is written to it.
func TestFormatOfNoReleaseIsRefused(t *testing.T) {
	t.Parallel()
	c, ctx := people(), t.Context()
	database := mongotest.Database(t)
	db := mongotest.Client(t).Database(database)
	if _, err := db.Collection("_meta").InsertOne(ctx, bson.D{{Key: "_id", Value: "format"}, {Key: "format", Value: int64(1)}}); err != nil {
		t.Fatal(err)
	}
	e, err := mongo.Open(ctx, mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = e.Open(ctx, driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
	if err == nil || !strings.Contains(err.Error(), "has format 1, from before the first release") {
		t.Errorf("opened: %v", err)
	}
	if names, err := db.ListCollectionNames(ctx, bson.D{}); err != nil || !slices.Equal(names, []string{"_meta"}) {
		t.Errorf("collections %v, %v", names, err)
	}
}
