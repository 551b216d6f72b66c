// Package mongotest finds the MongoDB server that tests may use, and gives each test databases of its own.
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

// URI returns the address of the server to test with. Without one it skips the test.
func URI(t testing.TB) string {
	t.Helper()
	uri := os.Getenv(Variable)
	if uri == "" {
		t.Skipf("no MongoDB: set %s to the address of a server that may be written to", Variable)
	}
	return uri
}

// Client returns a connection of its own to the server, closed after the test.
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

// Database returns the name of a database that nobody else uses. After the test it is dropped, with
// those whose names continue it after an underscore.
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

// IsStandIn reports whether the server is mongo-java-server, which stands in for MongoDB where
// there is none. It is the one that knows no explain command.
func IsStandIn(t testing.TB) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := Client(t).Database("admin").RunCommand(ctx, bson.D{{Key: "explain", Value: bson.D{{Key: "find", Value: "none"}}}}).Err()
	var command mongo.CommandError
	if err != nil && !errors.As(err, &command) {
		t.Fatalf("ask the MongoDB server of the tests what it is: %v", err)
	}
	return command.HasErrorCode(59) // CommandNotFound
}

// Faults returns what the server is known to get wrong: nothing where it is MongoDB.
func Faults(t testing.TB) []storetest.Fault {
	t.Helper()
	if !IsStandIn(t) {
		return nil
	}
	return []storetest.Fault{storetest.WideSums, storetest.RoughSums, storetest.DollarGroups, storetest.SeveralBounds}
}
