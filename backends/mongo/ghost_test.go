package mongo_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/mongo"
	"tenantry/backends/mongo/mongotest"
	"tenantry/crypto/secret"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

// TestRemovedDatabaseIsNotRecreated: index builds that run when a workspace is removed, by this process or another one,
// do not create its database again.
func TestRemovedDatabaseIsNotRecreated(t *testing.T) {
	t.Parallel()
	for _, byAnother := range []bool{false, true} {
		name := map[bool]string{false: "by this process", true: "by another"}[byAnother]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database, later := mongotest.Database(t), &driver.Collection{Name: "later"}
			var once, first sync.Once
			begun, release, dropped := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var mu sync.Mutex
			created := 0
			monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
				switch e.CommandName {
				case "createIndexes":
					mu.Lock()
					created++
					n := created
					mu.Unlock()
					if n == 2 { // the first command creates the unique indexes, for which Open waits
						first.Do(func() { close(begun) })
						<-release
					}
				case "dropDatabase":
					once.Do(func() { close(dropped) })
				}
			}}
			openOn := func(m *event.CommandMonitor) *mongo.Engine {
				e, err := mongo.Open(t.Context(), mongo.Options{URI: secret.New(mongotest.URI(t)), Database: database, Isolation: mongo.PerDatabase, Monitor: m})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = e.Close() })
				return e
			}
			e := openOn(monitor)
			if _, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{people(), later}}); err != nil {
				t.Fatal(err)
			}
			<-begun
			if byAnother {
				// The running command creates the database again. Later commands notice that it has no owner.
				if err := openOn(nil).Remove(t.Context(), "org-1", ""); err != nil {
					t.Fatal(err)
				}
				close(release)
				if err := e.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				names, err := mongotest.Client(t).Database(database+"_org-1").ListCollectionNames(t.Context(), bson.D{})
				if err != nil || slices.Contains(names, later.Name) {
					t.Errorf("the removed database has the collections %v, %v; want none named %s",
						names, err, later.Name)
				}
				return
			}
			go func() {
				<-dropped
				close(release)
			}()
			if err := e.Remove(t.Context(), "org-1", ""); err != nil {
				t.Fatal(err)
			}
			if err := e.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			names, err := mongotest.Client(t).ListDatabaseNames(t.Context(), bson.D{})
			if err != nil || slices.Contains(names, database+"_org-1") {
				t.Errorf("the removed database exists: %v, %v", names, err)
			}
		})
	}
}
