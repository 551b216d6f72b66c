// Package backup holds tests of backups and restorations of whole installations.
package backup

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

// isLong reports whether tests take 20 moments and kill 50 processes, which takes many minutes.
func isLong() bool { return os.Getenv("TENANTRY_TEST_LONG") != "" }

// kills returns how many processes a test kills.
func kills() int {
	switch {
	case isLong():
		return 50
	case testing.Short():
		return 3
	}
	return 6
}

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
