package sqlite_test

import (
	"testing"

	"tenantry/backends/store/driver"
	"tenantry/backends/store/sqlite"
	"tenantry/backends/store/storetest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) driver.Engine {
		e, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		return e
	})
}
