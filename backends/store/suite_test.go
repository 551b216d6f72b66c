package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/memtest"
	"tenantry/backends/mongo"
	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/sqlite"
	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

// opener opens a new engine for one test.
type opener = func(*testing.T) driver.Engine

func openSQLite(t *testing.T) driver.Engine {
	t.Helper()
	e, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("open the engine: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return e
}

// engines returns the openers of all engines, by name.
func engines() map[string]opener {
	return map[string]opener{"sqlite": openSQLite, "mongo": openMongo, "memory": func(*testing.T) driver.Engine { return memtest.New() }}
}

func openMongo(t *testing.T) driver.Engine {
	t.Helper()
	e, err := mongo.Open(t.Context(), mongo.Options{URI: secret.New(mongotest.URI(t)), Database: mongotest.Database(t)})
	if err != nil {
		t.Fatalf("open the engine: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return e
}

// onEveryEngine runs a suite on every engine.
func onEveryEngine(t *testing.T, suite func(*testing.T, opener)) {
	t.Helper()
	t.Parallel()
	for name, open := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite(t, open)
		})
	}
}

type label string

// item has a field of every portable type.
type item struct {
	store.Meta
	Name    string            `json:"name,omitempty"`
	Title   string            `json:"title"`
	Code    string            `json:"code,omitempty"`
	N       int64             `json:"n,omitempty"`
	Size    int               `json:"size"`
	X       float64           `json:"x"`
	Flag    bool              `json:"flag,omitempty"`
	Text    *string           `json:"text,omitempty"`
	Number  *int64            `json:"number"`
	At      int64             `json:"at" store:"time"`
	Tags    []label           `json:"tags"`
	Teams   []string          `json:"teams,omitempty"`
	Deleted bool              `json:"deleted,omitempty"`
	Secret  string            `json:"secret,omitempty"`
	Sealed  map[string]string `json:"sealed,omitempty"`
	Fields  map[string]any    `json:"fields,omitempty" store:"custom"`
}

func itemSpec() store.Spec {
	return store.Spec{
		Name: "items", Custom: true, Teams: true, SoftDelete: true,
		Fields:  []string{"name", "title", "code", "n", "size", "x", "flag", "text", "number", "at", "tags"},
		Indexes: []store.Index{{Fields: []string{"code"}, Unique: true}, {Fields: []string{"name", "title"}, Unique: true}, {Fields: []string{"tags"}}},
	}
}

// plain has neither teams nor soft deletion.
type plain struct {
	store.Meta
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// member lives in the control workspace, in the partition of an organization.
type member struct {
	store.Meta
	OrgID int64  `json:"org_id"`
	Email string `json:"email,omitempty"`
}

// org lives in the control workspace, in no partition.
type org struct {
	store.Meta
	Slug string `json:"slug"`
}

func define[T any](t testing.TB, spec store.Spec) *store.Kind[T] {
	t.Helper()
	k, err := store.Define[T](spec)
	if err != nil {
		t.Fatalf("Define: %v", err)
	}
	return k
}

// fixture is a store with its kinds and the workspace of organization 1.
type fixture struct {
	*store.Store
	items   *store.Kind[item]
	plains  *store.Kind[plain]
	members *store.Kind[member]
	orgs    *store.Kind[org]
	ws      *store.Workspace
	control *store.Workspace
}

func setup(t *testing.T, open opener) *fixture {
	t.Helper()
	return setupOn(t, open(t), nil)
}

func setupOn(t *testing.T, e driver.Engine, now func() time.Time) *fixture {
	t.Helper()
	f := &fixture{
		items:  define[item](t, itemSpec()),
		plains: define[plain](t, store.Spec{Name: "plains", Fields: []string{"name", "count"}}),
		members: define[member](t, store.Spec{
			Name: "members", Fields: []string{"email"}, Partition: true,
			Indexes: []store.Index{{Fields: []string{"email"}, Unique: true}},
		}),
		orgs: define[org](t, store.Spec{Name: "orgs", Fields: []string{"slug"}}),
	}
	f.Store = store.New(store.Options{
		Engine: e, Now: now,
		Control: []*store.Spec{f.members.Spec(), f.orgs.Spec()},
		Tenant:  []*store.Spec{f.items.Spec(), f.plains.Spec()},
	})
	var err error
	if f.ws, err = f.At(t.Context(), 1, store.Placement{}); err != nil {
		t.Fatalf("Organization: %v", err)
	}
	if f.control, err = f.Control(t.Context()); err != nil {
		t.Fatalf("Control: %v", err)
	}
	return f
}

func insert[T any](t testing.TB, c store.Collection[T], recs ...*T) {
	t.Helper()
	if err := c.Insert(t.Context(), recs...); err != nil {
		t.Fatalf("Insert: %v", err)
	}
}

// reporter is what testing and rapid have in common.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
	Context() context.Context
}

// names returns the names of the records that a query finds, sorted and joined.
func names(t reporter, c store.Collection[item], q store.Query) string {
	t.Helper()
	found, err := c.Find(t.Context(), q)
	if err != nil {
		t.Fatalf("Find: %v", err)
	}
	return nameList(found)
}

func nameList(found []item) string {
	out := make([]string, len(found))
	for i := range found {
		out[i] = found[i].Name
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// everyRead makes every kind of query and returns the errors by name.
func everyRead[T any](ctx context.Context, k *store.Kind[T], w *store.Workspace, f store.Filter) map[string]error {
	c, table := k.In(w), k.Table(w)
	errs := map[string]error{}
	_, errs["Find"] = c.Find(ctx, store.Query{Filter: f})
	_, errs["First"] = c.First(ctx, store.Query{Filter: f})
	_, errs["Count"] = c.Count(ctx, f)
	_, errs["CountIn"] = c.CountIn(ctx, f, store.Either)
	errs["Each"] = c.Each(ctx, f, store.Live, func(*T) error { return nil })
	_, errs["Table.Count"] = table.Count(ctx, f)
	_, _, errs["Select"] = table.Select(ctx, []store.Field{store.F("id")}, store.Query{Filter: f})
	_, _, errs["Aggregate"] = table.Aggregate(ctx, store.Aggregation{Filter: f, Measures: []store.Measure{{Op: store.MeasureCount}}})
	return errs
}
