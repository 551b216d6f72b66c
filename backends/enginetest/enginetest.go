// Package enginetest opens engines for tests: SQLite, or a database of its own on the MongoDB server that
// TENANTRY_TEST_MONGODB_URI names. Every suite can thus run on both.
package enginetest

import (
	"os"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/mongo"
	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/sqlite"
	"tenantry/crypto/secret"
)

// Open returns an engine that is closed at the end of the test. The test may close it earlier.
func Open(t testing.TB) driver.Engine {
	t.Helper()
	if OnMongo() {
		return openMongo(t)
	}
	return openSQLite(t, sqlite.Options{Dir: t.TempDir(), Shared: Shared()})
}

// OnMongo reports whether Open uses a MongoDB server.
func OnMongo() bool { return os.Getenv(mongotest.Variable) != "" }

// Shared reports whether workspaces share files on SQLite, as they do unless TENANTRY_TEST_ISOLATION is file.
func Shared() bool { return os.Getenv("TENANTRY_TEST_ISOLATION") != "file" }

// OpenSQLite returns the SQLite engine on the folder, with a file for each workspace. It is for tests that inspect the
// folder.
func OpenSQLite(t testing.TB, dir string) driver.Engine {
	t.Helper()
	return openSQLite(t, sqlite.Options{Dir: dir})
}

func openSQLite(t testing.TB, o sqlite.Options) driver.Engine {
	t.Helper()
	e, err := sqlite.Open(t.Context(), o)
	if err != nil {
		t.Fatalf("open the SQLite engine: %v", err)
	}
	return closeAtEnd(t, e)
}

func openMongo(t testing.TB) driver.Engine {
	t.Helper()
	var uri secret.String
	if err := uri.UnmarshalText([]byte(mongotest.URI(t))); err != nil {
		t.Fatal(err)
	}
	e, err := mongo.Open(t.Context(), mongo.Options{URI: uri, Database: mongotest.Database(t)})
	if err != nil {
		t.Fatalf("open MongoDB: %v", err)
	}
	return closeAtEnd(t, e)
}

func closeAtEnd(t testing.TB, e driver.Engine) driver.Engine {
	t.Helper()
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return e
}
