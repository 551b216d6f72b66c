// Package events holds tests of the event log and of those who follow it.
package events

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
