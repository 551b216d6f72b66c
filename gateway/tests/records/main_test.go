// Package records holds tests of what operations on records have in common: filters, order, pages, bulk changes,
// revisions, the trash and repeated requests.
package records

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
