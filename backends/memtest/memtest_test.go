package memtest_test

import (
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/memtest"
	"tenantry/backends/storetest"
)

// TestConformance covers the cases with fixed results. In the differential cases memtest is compared with itself.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) driver.Engine { return memtest.New() })
}
