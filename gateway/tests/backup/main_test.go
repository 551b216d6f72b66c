// Package backup holds tests of backups and restorations of whole installations.
package backup

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
