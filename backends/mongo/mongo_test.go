package mongo_test

import (
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/mongo"
	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/storetest"
	"tenantry/crypto/secret"
	"tenantry/internal/maintest"

	"go.mongodb.org/mongo-driver/v2/event"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

// open returns an engine with its own databases. The caller closes it.
func open(t testing.TB, isolation mongo.Isolation, monitor *event.CommandMonitor) *mongo.Engine {
	t.Helper()
	e, err := mongo.Open(t.Context(), mongo.Options{
		URI: secret.New(mongotest.URI(t)), Database: mongotest.Database(t), Isolation: isolation, Monitor: monitor,
	})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return e
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, isolation := range map[string]mongo.Isolation{"shared": mongo.Shared, "database": mongo.PerDatabase} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) driver.Engine { return open(t, isolation, nil) }, mongotest.Faults(t)...)
		})
	}
}
