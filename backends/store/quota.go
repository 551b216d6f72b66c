package store

import (
	"context"
	"fmt"

	"tenantry/backends/driver"
)

// Usage is how many documents an organization has, but for the gateway's own notes, and how many bytes they have.
type Usage = driver.Usage

// Quota bounds a Usage. A bound of 0 is none.
type Quota = driver.Quota

// QuotaError says that a write would have led beyond the organization's quota. Nothing of its batch was stored.
type QuotaError = driver.QuotaError

// BeyondQuota returns the workspace whose writes no quota refuses, because they serve to make room, such as deletions.
func (w *Workspace) BeyondQuota() *Workspace {
	c := *w
	c.beyond = true
	return &c
}

// within writes as far as the quota goes.
func within(ctx context.Context, drv driver.Workspace, writes []driver.Write, q Quota) error {
	if m, ok := drv.(driver.Meter); ok {
		return m.WriteWithin(ctx, writes, q)
	}
	return drv.Write(ctx, writes)
}

// Used returns what the organization holds, which every write keeps up to date; the zero value where the engine does
// not tell. Error: ErrUnavailable.
func (w *Workspace) Used(ctx context.Context) (Usage, error) {
	return w.measure(ctx, driver.Meter.Used)
}

// Recount counts everything the organization holds and corrects what Used returns. Error: ErrUnavailable.
func (w *Workspace) Recount(ctx context.Context) (Usage, error) {
	return w.measure(ctx, driver.Meter.Recount)
}

func (w *Workspace) measure(ctx context.Context, measure func(driver.Meter, context.Context) (Usage, error)) (Usage, error) {
	drv, err := w.reader(ctx)
	m, ok := drv.(driver.Meter)
	if err != nil || !ok {
		return Usage{}, err
	}
	used, err := measure(m, ctx)
	if err != nil {
		err = fmt.Errorf("measuring what the organization holds: %w", err)
	}
	return used, err
}
