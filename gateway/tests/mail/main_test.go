// Package mail holds tests of mail against a real mail server: what is sent, to whom, what the gateway does when the server
// refuses or is away, and what callers cannot find out.
package mail

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
