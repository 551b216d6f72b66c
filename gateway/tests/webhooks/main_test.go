// Package webhooks holds tests of what is sent to webhooks.
package webhooks

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
