package contents

import (
	"context"
	"io"
	"sync"

	"tenantry/tenants"
)

// arriving counts the bytes of each organization that are arriving in this process. The zero value counts none. Other
// processes count theirs.
type arriving struct {
	mu    sync.Mutex
	bytes map[int64]int64 // by organization; none is 0
}

func (a *arriving) add(org, n int64) (all int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.bytes == nil {
		a.bytes = map[int64]int64{}
	}
	if all = a.bytes[org] + n; all == 0 {
		delete(a.bytes, org)
	} else {
		a.bytes[org] = all
	}
	return all
}

// count is a writer that counts the bytes of an Arrival, and refuses those beyond the limit of the organization.
type count struct {
	to     io.Writer
	in     *arriving
	tenant *tenants.Tenant
	stored Storage
	bytes  int64
}

// counted returns a writer that counts for the organization, unless t is nil, until the Arrival is closed.
func (k *Keeper) counted(ctx context.Context, t *tenants.Tenant, a *Arrival, to io.Writer) (io.Writer, error) {
	if t == nil {
		return to, nil
	}
	stored, err := k.Storage(ctx, t)
	if err != nil {
		return nil, err
	}
	a.count = &count{to: to, in: &k.arriving, tenant: t, stored: stored}
	return a.count, nil
}

func (c *count) Write(p []byte) (int, error) {
	n := int64(len(p))
	c.bytes += n
	if err := admit(c.tenant, c.stored, c.in.add(c.tenant.Org.OrgID, n)); err != nil {
		return 0, err
	}
	return c.to.Write(p)
}

// end gives back what was counted. It may be called again, and without a count.
func (c *count) end() {
	if c != nil {
		c.in.add(c.tenant.Org.OrgID, -c.bytes)
		c.bytes = 0
	}
}
