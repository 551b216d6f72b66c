// Package transfer holds tests of import and export over HTTP, random sequences included.
package transfer

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
