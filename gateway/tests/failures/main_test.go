// Package failures holds tests of outages of Redis and MongoDB, of replicas, and of moves between backends.
package failures

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
