// Package operations holds tests of what operators do and see: start and stop, data folders, damage, readiness, metrics
// and the end of an organization.
package operations

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
