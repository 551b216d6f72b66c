// Package contract holds tests of what operations answer: the contract byte for byte, input that is refused, the
// OpenAPI document, the documents of the API and the golden answers.
package contract

import (
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }
