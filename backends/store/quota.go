package store

import (
	"context"
	"fmt"

	"tenantry/backends/driver"
)

// Usage is the number and the bytes of an organization's documents, without those of kinds that are not counted.
type Usage = driver.Usage

// Quota bounds a Usage. A bound of 0 means no bound.
type Quota = driver.Quota

// QuotaError says that a write would have exceeded the organization's quota. Nothing of its batch was stored.
type QuotaError = driver.QuotaError

// BeyondQuota returns the workspace without a quota on its writes, for writes that free space, such as deletions.
func (w *Workspace) BeyondQuota() *Workspace {
	c := *w
	c.beyondQuota = true
	return &c
}

// writeWithin stores writes under a quota, if the engine measures what it stores.
func writeWithin(ctx context.Context, drv driver.Workspace, writes []driver.Write, q Quota) error {
	if m, ok := drv.(driver.Meter); ok {
		return m.WriteWithin(ctx, writes, q)
	}
	return drv.Write(ctx, writes)
}

// Used returns the organization's usage, which every write keeps up to date; the zero value if the engine does not
// measure it. Error: ErrUnavailable.
func (w *Workspace) Used(ctx context.Context) (Usage, error) {
	return w.measure(ctx, driver.Meter.Used)
}

// Recount counts all documents of the organization, and corrects what Used returns. Error: ErrUnavailable.
func (w *Workspace) Recount(ctx context.Context) (Usage, error) {
	return w.measure(ctx, driver.Meter.Recount)
}

func (w *Workspace) measure(
	ctx context.Context, measure func(driver.Meter, context.Context) (Usage, error),
) (Usage, error) {
	drv, err := w.reader(ctx)
	m, ok := drv.(driver.Meter)
	if err != nil || !ok {
		return Usage{}, err
	}
	used, err := measure(m, ctx)
	if err != nil {
		err = fmt.Errorf("measuring the organization's usage: %w", err)
	}
	return used, err
}
