package mongo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/mongo"
	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/storetest"
	"tenantry/crypto/secret"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	library "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// formerDocument returns the document as the former layout had it.
func formerDocument(t testing.TB, c *driver.Collection, workspace string, d driver.Document) bson.D {
	t.Helper()
	doc := bson.D{{Key: "_id", Value: workspace + "/" + d.ID}, {Key: "org_id", Value: workspace}, {Key: "rev", Value: max(d.Rev, 1)}, {Key: "body", Value: string(d.Body)}}
	f := bson.D{}
	for i, field := range c.Fields {
		if v := d.Values[i]; v != nil {
			f = append(f, bson.E{Key: field.Name, Value: v})
		}
	}
	if d.Custom == nil {
		return append(doc, bson.E{Key: "f", Value: f})
	}
	doc = append(doc, bson.E{Key: "custom", Value: string(d.Custom)}, bson.E{Key: "f", Value: f})
	var object map[string]any
	if err := json.Unmarshal(d.Custom, &object); err != nil {
		t.Fatal(err)
	}
	scalars, lists := bson.M{}, bson.M{}
	for key, v := range object {
		switch v := v.(type) {
		case nil:
		case []any:
			raw, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			scalars[key] = bson.Binary{Data: raw}
			list := bson.A{}
			for _, e := range v {
				if s, is := e.(string); is {
					list = append(list, s)
				}
			}
			lists[key] = list
		default:
			scalars[key] = v
		}
	}
	return append(doc, bson.E{Key: "c", Value: scalars}, bson.E{Key: "l", Value: lists})
}

// held is a monitor that holds whoever makes indexes that are not unique, and so the upgrade behind it.
type held struct{ release chan struct{} }

func (h held) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName != "createIndexes" {
			return
		}
		if unique, _ := items(e.Command.Lookup("indexes"))[0].Document().Lookup("unique").BooleanOK(); !unique {
			<-h.release
		}
	}}
}

func hold(t *testing.T) held {
	h := held{make(chan struct{})}
	t.Cleanup(sync.OnceFunc(func() {
		select {
		case <-h.release:
		default:
			close(h.release)
		}
	}))
	return h
}

// releasing is an engine that can be closed while it is held.
type releasing struct {
	*mongo.Engine
	held
}

func (r releasing) Close() error {
	close(r.release)
	return r.Engine.Close()
}

// TestSuiteOnTheWayToTheLayout puts the questions of the whole suite as they are put while an upgrade goes on.
func TestSuiteOnTheWayToTheLayout(t *testing.T) {
	t.Parallel()
	database := mongotest.Database(t)
	meta := mongotest.Client(t).Database(database).Collection("_meta")
	if _, err := meta.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "format"}, {Key: "format", Value: int64(2)}, {Key: "upgrading", Value: bson.A{"things", "plain"}}}); err != nil {
		t.Fatal(err)
	}
	h := hold(t)
	e, err := mongo.Open(t.Context(), mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database, Monitor: h.monitor()})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("suite", func(t *testing.T) {
		storetest.Run(t, func(*testing.T) driver.Engine { return releasing{e, h} }, mongotest.Faults(t)...)
	})
}

func mixed() []driver.Document {
	c := people()
	var all []driver.Document
	for i := range 12 {
		d := person(c, i).Doc
		d.Values[1] = fmt.Sprintf("Person %d", i%5)
		d.Values[4] = [][]string{{"red"}, {"red", "blue"}, nil}[i%3]
		if d.Values[4].([]string) == nil {
			d.Values[4] = nil
		}
		if i%4 == 3 {
			d.Values[2] = nil
		}
		body := map[string]any{"email": d.Values[0], "name": d.Values[1], "country": d.Values[2], "created": d.Values[3], "teams": d.Values[4], "inner": map[string]any{"a.b": []any{1.5, nil, "x"}, "": true}}
		if i%4 == 3 {
			body["country"] = ""
		}
		d.Body, _ = json.Marshal(body)
		d.Custom = []byte(fmt.Sprintf(`{"k":%s,"score":%d}`, []string{`"gold"`, `["gold","tin"]`, `null`, `7.5`, `true`}[i%5], i%4))
		all = append(all, d)
	}
	return all
}

// answers are those to many questions, the documents among them.
func answers(t *testing.T, ws driver.Workspace, c *driver.Collection) string {
	t.Helper()
	var b strings.Builder
	field := func(name string) driver.Ref {
		for _, f := range c.Fields {
			if f.Name == name {
				return driver.Ref{Name: name, Type: f.Type}
			}
		}
		return driver.Ref{Name: name, Custom: true, Type: driver.Any}
	}
	is := func(name string, op driver.Op, values ...any) driver.Predicate {
		return driver.Predicate{Op: op, Ref: field(name), Values: values}
	}
	list := driver.Predicate{Op: driver.Eq, Ref: driver.Ref{Name: "k", Custom: true, Type: driver.Strings}, Values: []any{"gold"}}
	for _, where := range []driver.Predicate{
		{}, is("country", driver.Eq, "DE"), is("country", driver.Exists, false), is("country", driver.Ne, "DE"), is("created", driver.Gt, int64(1_700_000_000_004)), is("teams", driver.Eq, "blue"), is("teams", driver.Exists, false),
		is("k", driver.Eq, "gold"), list, is("k", driver.Exists, false), is("k", driver.Ne, "gold"), is("score", driver.Gte, 2.0), eq("id", fmt.Sprintf("%024x", 3)),
		{Op: driver.Or, Kids: []driver.Predicate{is("name", driver.StartsWith, "Person 1"), is("k", driver.Eq, true)}},
	} {
		for _, sort := range [][]driver.Order{nil, {{Ref: field("country"), Desc: true}}, {{Ref: field("created"), Desc: true}}, {{Ref: field("score")}}} {
			docs, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: where, Sort: sort, Limit: 5, Offset: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range docs {
				fmt.Fprintf(&b, "%s %s %s\n", d.ID, d.Body, d.Custom)
			}
		}
		n, err := ws.Count(t.Context(), c, where)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := ws.Aggregate(t.Context(), driver.Aggregation{Collection: c, Where: where, Limit: 50, Groups: []driver.Group{{Ref: field("country")}, {Ref: field("created"), By: driver.Day}},
			Measures: []driver.Measure{{Op: driver.Count}, {Op: driver.Max, Ref: field("created")}, {Op: driver.Sum, Ref: field("score")}, {Op: driver.Distinct, Ref: field("name")}}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, n, rows)
	}
	return b.String()
}

// TestFormerLayoutIsUpgraded: the same answers before, meanwhile and afterwards, and what is unique stays so.
func TestFormerLayoutIsUpgraded(t *testing.T) {
	t.Parallel()
	c, ctx := people(), t.Context()
	_, fresh := opened(t, nil, c)
	database := mongotest.Database(t)
	db := mongotest.Client(t).Database(database)
	coll := db.Collection(c.Name)
	for _, d := range mixed() {
		if err := fresh.Write(ctx, []driver.Write{{Collection: c, Doc: d}}); err != nil {
			t.Fatal(err)
		}
		if _, err := coll.InsertOne(ctx, formerDocument(t, c, "org-1", d)); err != nil {
			t.Fatal(err)
		}
	}
	want := answers(t, fresh, c)
	if err := db.RunCommand(ctx, bson.D{{Key: "createIndexes", Value: c.Name}, {Key: "indexes", Value: bson.A{
		bson.D{{Key: "name", Value: "email_0"}, {Key: "key", Value: bson.D{{Key: "org_id", Value: 1}, {Key: "f.email", Value: 1}}}, {Key: "unique", Value: true}, {Key: "partialFilterExpression", Value: bson.D{{Key: "f.email", Value: bson.D{{Key: "$exists", Value: true}}}}}},
	}}}).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Collection("_meta").InsertOne(ctx, bson.D{{Key: "_id", Value: "format"}, {Key: "format", Value: int64(1)}}); err != nil {
		t.Fatal(err)
	}
	h := hold(t)
	e, err := mongo.Open(ctx, mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database, Monitor: h.monitor()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ws, err := e.Open(ctx, driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
	if err != nil {
		t.Fatal(err)
	}
	if got := answers(t, ws, c); got != want {
		t.Errorf("before: %s", cmp.Diff(want, got))
	}
	told := func() bool {
		return slices.ContainsFunc(e.Inspect(ctx), func(f driver.Finding) bool { return strings.Contains(f.Says, "present layout") })
	}
	if !told() {
		t.Error("nothing tells of the upgrade")
	}

	// A value of a document of the former layout is taken.
	twin := person(c, 99)
	twin.Doc.Values[0] = person(c, 1).Doc.Values[0]
	var dup *driver.DuplicateError
	if err := ws.Write(ctx, []driver.Write{twin}); !errors.As(err, &dup) || dup.Index != "email" {
		t.Errorf("a value of the former layout: %v", err)
	}
	// What is changed meanwhile has the present layout, also where that is taken back; both show it.
	one := mixed()[1]
	one.Rev = 1
	replace := driver.Write{Collection: c, Op: driver.Replace, Doc: one}
	replace.Doc.Values = slices.Clone(one.Values)
	replace.Doc.Values[1] = "Other"
	if err := ws.Write(ctx, []driver.Write{replace, {Collection: c, Op: driver.Delete, Doc: driver.Document{ID: one.ID, Rev: 2}}, twin, {Collection: c, Op: driver.Delete, Doc: driver.Document{ID: "none", Rev: 1}}}); err == nil {
		t.Error("a batch was not refused")
	}
	if n, err := coll.CountDocuments(ctx, bson.D{{Key: "body", Value: bson.D{{Key: "$exists", Value: false}}}, {Key: "f.email", Value: one.Values[0]}}); err != nil || n != 1 {
		t.Errorf("what was taken back is there %d times in the present layout, %v", n, err)
	}
	if got := answers(t, ws, c); got != want {
		t.Errorf("meanwhile: %s", cmp.Diff(want, got))
	}

	close(h.release)
	if err := e.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if got := answers(t, ws, c); got != want {
		t.Errorf("afterwards: %s", cmp.Diff(want, got))
	}
	if err := ws.Write(ctx, []driver.Write{twin}); !errors.As(err, &dup) || dup.Index != "email" {
		t.Errorf("afterwards a value that is taken: %v", err)
	}
	for _, rest := range []string{"body", "f", "c", "l"} {
		if n, err := coll.CountDocuments(ctx, bson.D{{Key: rest, Value: bson.D{{Key: "$exists", Value: true}}}}); err != nil || n != 0 {
			t.Errorf("%d documents have %s, %v", n, rest, err)
		}
	}
	names, err := coll.Indexes().ListSpecifications(ctx)
	if err != nil || slices.ContainsFunc(names, func(x library.IndexSpecification) bool { return strings.Contains(string(x.KeysDocument), "f.") }) {
		t.Errorf("indexes of the former layout are left: %v, %v", names, err)
	}
	if told() {
		t.Error("the upgrade goes on")
	}
	// Another process begins with the present layout.
	other, err := mongo.Open(ctx, mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if ws, err = other.Open(ctx, driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}}); err != nil {
		t.Fatal(err)
	}
	if got := answers(t, ws, c); got != want {
		t.Errorf("in another process: %s", cmp.Diff(want, got))
	}
}

// TestUpgradePassesOverWhatIsRefused: documents that cannot be brought to the present layout hold up no others, are told, and
// what is unique in them stays taken. What a process wrote for the former layout it takes back, whoever else ended the upgrade.
func TestUpgradePassesOverWhatIsRefused(t *testing.T) {
	t.Parallel()
	c, ctx := people(), t.Context()
	database := mongotest.Database(t)
	db := mongotest.Client(t).Database(database)
	coll := db.Collection(c.Name)
	all := mixed()
	all[3].Values[0] = all[2].Values[0] // which nothing kept from being there twice
	for i, d := range all {
		doc := formerDocument(t, c, "org-1", d)
		if i == 5 {
			doc[2].Value = "no revision"
		}
		if _, err := coll.InsertOne(ctx, doc); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Collection("_meta").InsertOne(ctx, bson.D{{Key: "_id", Value: "format"}, {Key: "format", Value: int64(1)}}); err != nil {
		t.Fatal(err)
	}
	serve := func() (*mongo.Engine, driver.Workspace, held) {
		h := hold(t)
		e, err := mongo.Open(ctx, mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database, Monitor: h.monitor()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			select {
			case <-h.release:
			default:
				close(h.release)
			}
			_ = e.Close()
		})
		ws, err := e.Open(ctx, driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
		if err != nil {
			t.Fatal(err)
		}
		return e, ws, h
	}
	e, ws, h := serve()
	other, second, late := serve()
	close(h.release)
	if err := e.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	told := fmt.Sprint(e.Inspect(ctx))
	if strings.Contains(told, "stopped") || !strings.Contains(told, all[3].ID) || !strings.Contains(told, all[5].ID) {
		t.Errorf("the operator is told %s", told)
	}
	if n, err := coll.CountDocuments(ctx, bson.D{{Key: "body", Value: bson.D{{Key: "$exists", Value: true}}}}); err != nil || n != 2 {
		t.Errorf("%d documents have the former layout, %v", n, err)
	}
	twin := person(c, 99)
	twin.Doc.Values[0] = all[5].Values[0]
	var duplicate *driver.DuplicateError
	if err := ws.Write(ctx, []driver.Write{twin}); !errors.As(err, &duplicate) || duplicate.Index != "email" {
		t.Errorf("a value of one that cannot be read: %v", err)
	}
	// The other process reads, at an opening, that the upgrade has ended before it ends its own.
	if err := second.Write(ctx, []driver.Write{person(c, 100)}); err != nil {
		t.Fatal(err)
	}
	written := bson.D{{Key: "f", Value: bson.D{{Key: "$exists", Value: true}}}, {Key: "body", Value: bson.D{{Key: "$exists", Value: false}}}}
	if n, err := coll.CountDocuments(ctx, written); err != nil || n != 1 {
		t.Errorf("the other wrote %d documents for the former layout, %v", n, err)
	}
	if _, err := other.Open(ctx, driver.Opening{Workspace: "org-2", Collections: []*driver.Collection{c}}); err != nil {
		t.Fatal(err)
	}
	close(late.release)
	if err := other.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := coll.CountDocuments(ctx, written); err != nil || n != 0 {
		t.Errorf("%d documents keep values for the former layout, %v", n, err)
	}
}

// TestOddDocumentsAreNamed: one that somebody put there, or changed, comes with what is wrong with it, and harms nothing
// else. The operator is told of those of nobody. Its values are not told.
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
	// One that somebody made by hand, who gave it no _id.
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
		t.Fatalf("got %v, %v, want no error and len(all) = 3 and all[0].Damage = nil and all[1].Damage = nil", all, err)
	}
	if d := all[2]; d.ID != "odd" || d.Body != nil || d.Damage == nil || !strings.Contains(d.Damage.Error(), "field name") || strings.Contains(d.Damage.Error(), "hunter2") {
		t.Errorf("the odd one: %+v", d)
	}
	told := slices.DeleteFunc(e.Inspect(ctx), func(f driver.Finding) bool {
		return f.Subject != "documents" || strings.Contains(f.Says, "checked by the server")
	})
	if len(told) != 1 || !strings.Contains(told[0].Says, `"$oid"`) || strings.Contains(fmt.Sprint(told), "hunter2") {
		t.Errorf("the operator is told %+v", told)
	}
}

// TestOddValuesAreLeftOutOfGroups: values of other types than their fields end no aggregation. A group of such is left out.
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
		t.Errorf("mismatch (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// A database whose collections another process is making, and which says no format yet, is taken for none of the former layout:
// a question would look for documents of it until the upgrade has found none.
func TestNewDatabaseInTheMakingIsNoFormerOne(t *testing.T) {
	t.Parallel()
	for _, filled := range []bool{false, true} {
		c, ctx := people(), t.Context()
		database := mongotest.Database(t)
		db := mongotest.Client(t).Database(database)
		if err := db.CreateCollection(ctx, c.Name); err != nil {
			t.Fatal(err)
		}
		if filled {
			if _, err := db.Collection(c.Name).InsertOne(ctx, formerDocument(t, c, "org-1", mixed()[0])); err != nil {
				t.Fatal(err)
			}
		}
		e, err := mongo.Open(ctx, mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Open(ctx, driver.Opening{Workspace: "org-2", Collections: []*driver.Collection{c}}); err != nil {
			t.Fatal(err)
		}
		meta, err := db.Collection("_meta").FindOne(ctx, bson.D{{Key: "_id", Value: "format"}}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := meta.LookupErr("upgrading"); (err == nil) != filled {
			t.Errorf("with a document %v: %s", filled, meta)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
