package store

import (
	"context"

	"tenantry/backends/driver"
)

// Finding is something that an operator should know about a backend.
type Finding = driver.Finding

// The verdicts of a Finding.
const (
	FindingWarning = driver.FindingWarning
	FindingWrong   = driver.FindingWrong
)

// Inspect returns the findings of a backend about what it depends on, even while the backend does not answer.
func (s *Store) Inspect(ctx context.Context, backend string) []Finding {
	if e, ok := ability[driver.Inspector](s, backend); ok {
		return e.Inspect(ctx)
	}
	return nil
}
