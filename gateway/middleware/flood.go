package middleware

import (
	"strconv"
	"sync"
	"time"

	"tenantry/backends/api"
	"tenantry/internal/bounded"
	"tenantry/tenants"
	"tenantry/tenants/limits"
)

// Refusals of callers nobody knows, and of those over their limits, are audited too, but a
// flood of them must not fill an organization's disk: of one operation so many a minute are written one by one, fewer of one
// address, so that a noisy one hides no other; the rest as a number in the next record.
const (
	floodPerMinute  = 60
	floodPerAddress = 20
	maxFloods       = 4096 // organizations times audited operations that are counted at once, and as many with addresses
)

type flood struct {
	mu      sync.Mutex
	minute  int64
	written int
	dropped int
}

// admit reports whether another record may be written this minute, of at most limit, and
// how many were not before it.
func (f *flood) admit(now time.Time, limit int) (write bool, dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if minute := now.Unix() / 60; minute != f.minute {
		f.minute, f.written = minute, 0
	}
	if f.written >= limit {
		f.dropped++
		return false, 0
	}
	f.written++
	dropped, f.dropped = f.dropped, 0
	return true, dropped
}

// noteFlood reports whether the call is to be audited by itself. Calls of known callers
// within their limits, and successes, always are.
func (x *exchange) noteFlood(problem *api.Problem) bool {
	known := x.call.Principal != nil && x.call.Principal.Kind != tenants.Anonymous
	if problem == nil || known && !x.refused {
		return true
	}
	key := strconv.FormatInt(x.call.Tenant.Org.OrgID, 10) + " " + x.op.Name
	return x.admitFlood(x.p.addresses, key+" "+limits.Network(x.call.Remote).String(), floodPerAddress, "refused_unrecorded_of_address") &&
		x.admitFlood(x.p.strangers, key, floodPerMinute, "refused_unrecorded")
}

func (x *exchange) admitFlood(floods *bounded.Map[*flood], key string, limit int, fact string) bool {
	write, dropped := floods.GetOrPut(key, func() *flood { return &flood{} }).admit(x.started, limit)
	if dropped > 0 {
		x.call.Note(fact, strconv.Itoa(dropped))
	}
	return write
}
