// Package isolation holds tests that organizations, and teams within them, are kept apart.
package isolation

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
