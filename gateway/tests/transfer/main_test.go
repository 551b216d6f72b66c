// Package transfer holds tests of imports and exports: bundles over HTTP, random sequences of them, and files of CSV and
// JSON.
package transfer

import (
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }
