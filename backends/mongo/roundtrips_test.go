package mongo_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/mongo"

	"go.mongodb.org/mongo-driver/v2/event"
)

// TestOneCommandPerCall: a read is one command, however many documents it finds, and so is a write of one document.
func TestOneCommandPerCall(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var commands []string
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		mu.Lock()
		defer mu.Unlock()
		switch e.CommandName {
		case "createIndexes", "listIndexes", "listCollections", "collMod": // from the builder in the background
		default:
			commands = append(commands, e.CommandName)
		}
	}}
	e := open(t, mongo.Shared, monitor)
	defer e.Close()
	c := people()
	ws, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{c}})
	if err != nil {
		t.Fatal(err)
	}
	writes := make([]driver.Write, 1000)
	for i := range writes {
		writes[i] = person(c, i)
	}
	if err := ws.Write(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	find := func(n, limit int, where driver.Predicate) func(context.Context) error {
		return func(ctx context.Context) error {
			docs, err := ws.Find(ctx, driver.Query{Collection: c, Where: where, Limit: limit, Sort: []driver.Order{{Ref: driver.Ref{Name: "created"}}}})
			if len(docs) != n {
				t.Errorf("%d documents, want %d", len(docs), n)
			}
			return err
		}
	}
	everything := driver.Predicate{Op: driver.And}
	for _, call := range []struct {
		name string
		do   func(context.Context) error
		want string
	}{
		{"find one", find(1, 1, everything), "find"},
		{"find 101", find(101, 101, everything), "find"},
		{"find the last", find(1000, 1000, everything), "find"},
		{"find to a limit that is not reached", find(1000, 10_000, everything), "find"},
		{"find nothing", find(0, 50, eq("country", "nowhere")), "find"},
		{"count", func(ctx context.Context) error {
			_, err := ws.Count(ctx, c, eq("country", "DE"))
			return err
		}, "aggregate"},
		{"aggregate", func(ctx context.Context) error {
			_, err := ws.Aggregate(ctx, driver.Aggregation{
				Collection: c, Where: everything, Limit: 10_000, Measures: []driver.Measure{{Op: driver.Count}},
				Groups: []driver.Group{{Ref: driver.Ref{Name: "id", Type: driver.String}}},
			})
			return err
		}, "aggregate"},
		{"insert", func(ctx context.Context) error { return ws.Write(ctx, []driver.Write{person(c, 1000)}) }, "insert"},
	} {
		mu.Lock()
		commands = nil
		mu.Unlock()
		if err := call.do(t.Context()); err != nil {
			t.Errorf("%s: %v", call.name, err)
		}
		mu.Lock()
		if !slices.Equal(commands, []string{call.want}) {
			t.Errorf("%s takes the commands %q, want one %s", call.name, commands, call.want)
		}
		mu.Unlock()
	}
}
