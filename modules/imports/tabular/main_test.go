package tabular_test

import (
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }
