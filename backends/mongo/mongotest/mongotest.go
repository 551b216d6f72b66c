// Package mongotest gives tests access to a MongoDB server, with separate databases for each test.
package mongotest

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"tenantry/backends/storetest"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Variable names the environment variable with the server's address.
const Variable = "TENANTRY_TEST_MONGODB_URI"

const timeout = 30 * time.Second

// URI returns the address of the server to test with. If none is set, it skips the test.
func URI(t testing.TB) string {
	t.Helper()
	uri := os.Getenv(Variable)
	if uri == "" {
		t.Skipf("no MongoDB: set %s to the address of a server that may be written to", Variable)
	}
	return uri
}

// Client returns a new client of the server, which is closed after the test.
func Client(t testing.TB) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(URI(t)).SetTimeout(timeout))
	if err != nil {
		t.Fatalf("connect to the MongoDB server of the tests: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := c.Disconnect(ctx); err != nil {
			t.Errorf("disconnect from MongoDB: %v", err)
		}
	})
	return c
}

// Database returns an unused name of a database. After the test the database is dropped, as are those whose names begin
// with this name and an underscore.
func Database(t testing.TB) string {
	t.Helper()
	name := "tt_" + strings.ToLower(rand.Text()[:10])
	c := Client(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		names, err := c.ListDatabaseNames(ctx, bson.D{})
		if err != nil {
			t.Errorf("list the databases of the test: %v", err)
		}
		for _, n := range names {
			if n != name && !strings.HasPrefix(n, name+"_") {
				continue
			}
			if err := c.Database(n).Drop(ctx); err != nil {
				t.Errorf("drop %s: %v", n, err)
			}
		}
	})
	return name
}

// IsStandIn reports whether the server is mongo-java-server, the substitute for MongoDB. It is recognized by its lack
// of the explain command.
func IsStandIn(t testing.TB) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	explain := bson.D{{Key: "explain", Value: bson.D{{Key: "find", Value: "none"}}}}
	err := Client(t).Database("admin").RunCommand(ctx, explain).Err()
	var command mongo.CommandError
	if err != nil && !errors.As(err, &command) {
		t.Fatalf("ask the MongoDB server of the tests what it is: %v", err)
	}
	return command.HasErrorCode(59) // CommandNotFound
}

// Faults returns the known faults of the server, none for MongoDB.
func Faults(t testing.TB) []storetest.Fault {
	t.Helper()
	if !IsStandIn(t) {
		return nil
	}
	return []storetest.Fault{storetest.WideSums, storetest.RoughSums, storetest.DollarGroups, storetest.SeveralBounds}
}
