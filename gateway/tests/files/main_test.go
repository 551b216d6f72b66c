// Package files holds tests of the bytes of files: how they arrive, how they are served, and what remains of them when
// something fails.
package files

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
