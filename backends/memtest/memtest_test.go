package memtest_test

import (
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/memtest"
	"tenantry/backends/storetest"
)

// TestConformance: the answers of the differential cases are its own, those of all others are written down.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) driver.Engine { return memtest.New() })
}
