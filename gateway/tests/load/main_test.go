// Package load holds tests of bounds: memory, work in flight, request limits, quotas and store calls, and benchmarks of
// the gateway.
package load

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
