package store

import (
	"context"

	"tenantry/backends/driver"
)

// Finding is what an operator should know of a backend.
type Finding = driver.Finding

// The verdicts of a Finding.
const (
	FindingWarning = driver.FindingWarning
	FindingWrong   = driver.FindingWrong
)

// Inspect returns what a backend tells of what it depends on, also while it does not answer.
func (s *Store) Inspect(ctx context.Context, backend string) []Finding {
	if e, ok := able[driver.Inspector](s, backend); ok {
		return e.Inspect(ctx)
	}
	return nil
}
