package sqlite_test

import (
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/sqlite"
	"tenantry/backends/storetest"
	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"own": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) driver.Engine {
				e, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Shared: shared})
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				return e
			})
		})
	}
}
