// Package access holds tests of credentials and rights: keys, sessions, share tokens, people, the audit log, and rights
// that end while work is in flight.
package access

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
