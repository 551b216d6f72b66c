package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/mongo"
	"tenantry/backends/mongo/mongotest"
	"tenantry/crypto/secret"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

func people() *driver.Collection {
	return &driver.Collection{Name: "people", Custom: true, Fields: []driver.Field{
		{Name: "email", Type: driver.String}, {Name: "name", Type: driver.String}, {Name: "country", Type: driver.String},
		{Name: "created", Type: driver.Time}, {Name: "teams", Type: driver.Strings},
	}, Indexes: []driver.Index{
		{Name: "email", Fields: []string{"email"}, Unique: true, Ordered: true}, {Name: "country", Fields: []string{"country", "created", "teams"}},
		{Name: "created", Fields: []string{"created"}}, {Name: "teams", Fields: []string{"teams"}},
	}}
}

func person(c *driver.Collection, i int) driver.Write {
	email := fmt.Sprintf("p%07d@example.org", i)
	return driver.Write{Collection: c, Doc: driver.Document{
		ID: fmt.Sprintf("%024x", i), Body: []byte(`{"email":"` + email + `","text":"` + strings.Repeat("x", 200) + `"}`), Custom: fmt.Appendf(nil, `{"plan":"gold","score":%d}`, i%100),
		Values: []any{email, fmt.Sprintf("Person %d", i*7919%1000003), []string{"DE", "FR", "US"}[i%3], 1_700_000_000_000 + int64(i), []string{"red"}},
	}}
}

func eq(field string, v any) driver.Predicate {
	return driver.Predicate{Op: driver.Eq, Ref: driver.Ref{Name: field}, Values: []any{v}}
}

func opened(t testing.TB, monitor *event.CommandMonitor, c *driver.Collection) (*mongo.Engine, driver.Workspace) {
	t.Helper()
	e := open(t, mongo.Shared, monitor)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	ws, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if err := e.Wait(t.Context()); err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return e, ws
}

// counter counts commands.
type counter struct {
	mu       sync.Mutex
	commands []string
	raw      []bson.Raw
}

func (c *counter) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.commands = append(c.commands, e.CommandName)
		c.raw = append(c.raw, append(bson.Raw(nil), e.Command...))
	}}
}

func (c *counter) take() (string, []bson.Raw) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, raw := strings.Join(c.commands, " "), c.raw
	c.commands, c.raw = nil, nil
	return names, raw
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	n := &counter{}
	c := people()
	e, ws := opened(t, n.monitor(), c)
	var batch []driver.Write
	for i := range 500 {
		batch = append(batch, person(c, i))
	}
	n.take()
	one := func(kind driver.WriteOp, i int, rev int64) driver.Write {
		w := person(c, i)
		w.Op, w.Doc.Rev = kind, rev
		return w
	}
	find := func(q driver.Query) func() error {
		return func() error {
			q.Collection = c
			docs, err := ws.Find(t.Context(), q)
			if err == nil && len(docs) != q.Limit {
				err = fmt.Errorf("%d documents", len(docs))
			}
			return err
		}
	}
	write := func(writes ...driver.Write) func() error {
		return func() error { return ws.Write(t.Context(), writes) }
	}
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"500 inserts", write(batch...), "insert"},
		{"one insert", write(one(driver.Insert, 500, 0)), "insert"},
		{"one replacement", write(one(driver.Replace, 500, 1)), "update"},
		{"one deletion", write(one(driver.Delete, 500, 2)), "delete"},
		{"two puts", write(one(driver.Put, 500, 2), one(driver.Put, 501, 2)), "update"},
		{"a deletion and an insert", write(one(driver.Delete, 501, 2), one(driver.Insert, 501, 0)), "findAndModify insert"},
		{"by id", find(driver.Query{Where: eq("id", fmt.Sprintf("%024x", 7)), Limit: 1}), "find"},
		{"a page", find(driver.Query{Where: eq("country", "DE"), Sort: []driver.Order{{Ref: driver.Ref{Name: "created"}}}, Limit: 50}), "find"},
		{"a long page", find(driver.Query{Limit: 400}), "find"},
		{"count", func() error { _, err := ws.Count(t.Context(), c, eq("country", "DE")); return err }, "aggregate"},
		{"a question that nothing answers", func() error {
			_, err := ws.Count(t.Context(), c, driver.Predicate{Op: driver.Or})
			return err
		}, ""},
		{"aggregate", func() error {
			_, err := ws.Aggregate(t.Context(), driver.Aggregation{Collection: c, Groups: []driver.Group{{Ref: driver.Ref{Name: "email"}}}, Measures: []driver.Measure{{Op: driver.Count}}, Limit: 400})
			return err
		}, "aggregate"},
		{"count up", func() error { _, err := ws.Counter(t.Context(), "n", 1, 0); return err }, "findAndModify"},
		{"check", func() error { return e.Check(t.Context()) }, "update"},
		{"open again", func() error {
			_, err := e.Open(t.Context(), driver.Opening{Workspace: "org-2", Collections: []*driver.Collection{c}})
			return err
		}, "find"}, // reads the owner
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		got, raw := n.take()
		if got != step.want {
			t.Errorf("%s takes [%s], want [%s]", step.name, got, step.want)
		}
		// The first batch has 101 documents by default, and the cursor is closed with the last document.
		if step.want == "find" {
			if limit, size := raw[0].Lookup("limit").AsInt64(), raw[0].Lookup("batchSize").AsInt64(); size <= limit {
				t.Errorf("%s: batch size %d for %d documents, want more", step.name, size, limit)
			}
		}
	}
}

func TestWritesAskForAMajority(t *testing.T) {
	t.Parallel()
	n := &counter{}
	c := people()
	_, ws := opened(t, n.monitor(), c)
	n.take()
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Counter(t.Context(), "n", 1, 1); err != nil {
		t.Fatal(err)
	}
	_, raw := n.take()
	if len(raw) != 3 {
		t.Fatalf("%d commands, want 3", len(raw))
	}
	for _, command := range raw {
		concern := command.Lookup("writeConcern")
		if w, _ := concern.Document().Lookup("w").StringValueOK(); w != "majority" {
			t.Errorf("write concern %s, want majority", concern)
		}
		if j, _ := concern.Document().Lookup("j").BooleanOK(); !j {
			t.Errorf("not journaled: %s", concern)
		}
		if ms := command.Lookup("maxTimeMS").AsInt64(); ms <= 0 || ms > 10_000 {
			t.Errorf("maxTimeMS = %d, want 1 to 10000", ms)
		}
	}
}

func TestIndexesAreReported(t *testing.T) {
	t.Parallel()
	c := people()
	e, _ := opened(t, nil, c)
	all, err := e.Indexes(t.Context())
	if err != nil {
		t.Fatalf("Indexes: %v", err)
	}
	var got []string
	for _, s := range all {
		name := s.Index[:len(s.Index)-9]
		if s.Collection != "people" {
			t.Errorf("an index of the collection %s, want people", s.Collection)
		}
		if name == "custom" && s.State == driver.IndexRefused {
			if !strings.Contains(s.Reason, "read every document of the organization") {
				t.Errorf(`%s: got %s, want containing "read every document of the organization"`, name, s.Reason)
			}
			s.State = driver.IndexReady // before 7.0
		}
		got = append(got, name+" "+string(s.State))
	}
	want := "country ready, created ready, custom ready, email ready, email ready, id ready, teams ready"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestUniqueIndexIsRefusedWhereDocumentsRepeatAValue(t *testing.T) {
	t.Parallel()
	name := mongotest.Database(t)
	openOn := func() *mongo.Engine {
		e, err := mongo.Open(t.Context(), mongo.Options{URI: secret.New(mongotest.URI(t)), Database: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		return e
	}
	loose := people()
	loose.Indexes = nil
	ws, err := openOn().Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{loose}})
	if err != nil {
		t.Fatal(err)
	}
	a, b := person(loose, 1), person(loose, 2)
	b.Doc.Values[0] = a.Doc.Values[0]
	if err := ws.Write(t.Context(), []driver.Write{a, b}); err != nil {
		t.Fatal(err)
	}
	e := openOn()
	for range 2 {
		_, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{people()}})
		if err == nil || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "people") || strings.Contains(err.Error(), "example.org") {
			t.Errorf("Open: %v", err)
		}
	}
	if err := ws.Write(t.Context(), []driver.Write{{Collection: loose, Op: driver.Delete, Doc: driver.Document{ID: b.Doc.ID, Rev: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{people()}}); err != nil {
		t.Errorf("Open once the values differ: %v", err)
	}
}

func TestNewerFormatIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, isolation := range map[string]mongo.Isolation{"shared": mongo.Shared, "database": mongo.PerDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := mongotest.Database(t)
			e, err := mongo.Open(t.Context(), mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database, Isolation: isolation})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			if isolation == mongo.PerDatabase {
				database += "_org-1"
			}
			db := mongotest.Client(t).Database(database)
			if _, err := db.Collection("_meta").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "format"}, {Key: "format", Value: 3}}); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{people()}}); !errors.Is(err, driver.ErrNewer) {
				t.Errorf("Open: %v", err)
			}
			names, err := db.ListCollectionNames(t.Context(), bson.D{})
			if err != nil || len(names) != 1 {
				t.Errorf("the database has the collections %v, %v; want _meta only", names, err)
			}
		})
	}
}

// If another process drops a database, opening it again creates its unique indexes again.
func TestDroppedDatabaseGetsItsUniqueIndexesBack(t *testing.T) {
	t.Parallel()
	name := mongotest.Database(t)
	c := people()
	var engines [2]*mongo.Engine
	for i := range engines {
		e, err := mongo.Open(t.Context(), mongo.Options{URI: secret.New(mongotest.URI(t)), Database: name, Isolation: mongo.PerDatabase})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		engines[i] = e
	}
	for i := range 2 {
		if i == 1 {
			if err := engines[0].Remove(t.Context(), "org-1", ""); err != nil {
				t.Fatal(err)
			}
		}
		ws, err := engines[1].Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
		if err != nil {
			t.Fatal(err)
		}
		twin := person(c, 2)
		twin.Doc.Values[0] = person(c, 1).Doc.Values[0]
		var duplicate *driver.DuplicateError
		if err := ws.Write(t.Context(), []driver.Write{person(c, 1), twin}); !errors.As(err, &duplicate) || duplicate.Index != "email" {
			t.Errorf("round %d: %v", i, err)
		}
	}
}

func TestRemovedWorkspaceRefusesOldHandles(t *testing.T) {
	t.Parallel()
	c := people()
	e, ws := opened(t, nil, c)
	if err := e.Remove(t.Context(), "org-1", ""); err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("writing to a removed workspace: %v", err)
	}
	if _, err := ws.Count(t.Context(), c, driver.Predicate{}); err == nil {
		t.Error("a removed workspace was counted")
	}
}

// A write that runs while its workspace is removed leaves nothing behind.
func TestRemoveWaitsForRunningWrites(t *testing.T) {
	t.Parallel()
	inserting, release, deleting := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	c := people()
	name := mongotest.Database(t)
	e, err := mongo.Open(t.Context(), mongo.Options{URI: secret.New(mongotest.URI(t)), Database: name, Monitor: &event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			switch e.CommandName {
			case "insert":
				close(inserting)
				<-release
			case "delete":
				once.Do(func() { close(deleting) })
			}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	ws, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
			t.Errorf("Write: %v", err)
		}
	})
	<-inserting
	wg.Go(func() {
		if err := e.Remove(t.Context(), "org-1", ""); err != nil {
			t.Errorf("Remove: %v", err)
		}
	})
	select {
	case <-deleting:
		t.Error("documents are deleted while one is being written")
	case <-time.After(200 * time.Millisecond):
	}
	close(release)
	wg.Wait()
	if n, err := mongotest.Client(t).Database(name).Collection("people").CountDocuments(t.Context(), bson.D{}); err != nil || n != 0 {
		t.Errorf("%d documents are left, %v", n, err)
	}
}

// TestQuestionsUseAnIndex: the server's plans show that queries use an index.
func TestQuestionsUseAnIndex(t *testing.T) {
	t.Parallel()
	if mongotest.IsStandIn(t) {
		t.Skip("mongo-java-server has no explain command")
	}
	n := &counter{}
	c := people()
	_, ws := opened(t, n.monitor(), c)
	for i := range 300 {
		if err := ws.Write(t.Context(), []driver.Write{person(c, i)}); err != nil {
			t.Fatal(err)
		}
	}
	n.take()
	db := mongotest.Client(t)
	on := func(field string, op driver.Op, v any) driver.Predicate {
		return driver.Predicate{Op: op, Ref: driver.Ref{Name: field}, Values: []any{v}}
	}
	sorted := func(field string) []driver.Order { return []driver.Order{{Ref: driver.Ref{Name: field}}} }
	for _, q := range []struct {
		where driver.Predicate
		sort  []driver.Order
	}{
		{eq("id", "x"), nil}, {eq("email", "x"), nil}, {on("email", driver.StartsWith, "p"), nil}, {eq("country", "DE"), sorted("created")}, {driver.Predicate{}, sorted("created")}, {driver.Predicate{}, sorted("email")},
		{on("created", driver.Gt, int64(5)), sorted("created")}, {eq("teams", "red"), nil}, {driver.Predicate{}, nil},
		{driver.Predicate{Op: driver.Eq, Ref: driver.Ref{Name: "plan", Custom: true}, Values: []any{"gold"}}, nil},
	} {
		if _, err := ws.Find(t.Context(), driver.Query{Collection: c, Where: q.where, Sort: q.sort, Limit: 20}); err != nil {
			t.Fatal(err)
		}
		_, raw := n.take()
		find := bson.D{}
		for _, e := range elements(raw[0]) {
			switch e.Key() {
			case "find", "filter", "sort", "limit", "projection":
				find = append(find, bson.E{Key: e.Key(), Value: e.Value()})
			}
		}
		plan, err := db.Database(raw[0].Lookup("$db").StringValue()).RunCommand(t.Context(), bson.D{{Key: "explain", Value: find}, {Key: "verbosity", Value: "executionStats"}}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		text := plan.Lookup("queryPlanner", "winningPlan").String()
		if strings.Contains(text, "COLLSCAN") || !strings.Contains(text, "IXSCAN") && !strings.Contains(text, "IDHACK") {
			t.Errorf("%+v scans: %s", q.where, text)
		}
		if q.sort != nil && strings.Contains(text, `"SORT"`) {
			t.Errorf("%+v by %+v sorts: %s", q.where, q.sort, text)
		}
		if seen := plan.Lookup("executionStats", "totalDocsExamined").AsInt64(); seen > 300 {
			t.Errorf("%+v examines %d documents", q.where, seen)
		}
	}
}

// TestBusyEngineCloses: Close waits for running calls, and later calls are refused.
func TestBusyEngineCloses(t *testing.T) {
	t.Parallel()
	c := people()
	e := open(t, mongo.Shared, nil)
	ws, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	begun := make(chan struct{}, 100)
	for i := range 8 {
		wg.Go(func() {
			for j := 0; ; j++ {
				err := ws.Write(context.Background(), []driver.Write{person(c, i*1_000_000+j)})
				if errors.Is(err, driver.ErrUnavailable) {
					return
				}
				if err != nil {
					t.Errorf("Write: %v", err)
					return
				}
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		})
	}
	select {
	case <-begun:
	case <-time.After(30 * time.Second):
		t.Fatal("no write succeeded")
	}
	if err := e.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	wg.Wait()
}
