package middleware

import (
	"net/netip"
	"strconv"
	"sync"
	"time"

	"tenantry/internal/cache"
	"tenantry/operation"
	"tenantry/tenants/limits"
)

// Refusals of callers nobody knows, and of those over their limits, are audited too, but a flood of them must not fill
// an organization's disk: of one operation so many a minute are written one by one, fewer of one address, so that a
// noisy one hides no other; the rest as a number in the next record.
const (
	floodPerMinute  = 60
	floodPerAddress = 20
	maxFloods       = 4096 // organizations times audited operations that are counted at once, and as many with addresses
)

// source is where refusals come from: an address where it has one.
type source struct {
	org       int64
	operation string
	address   netip.Addr
}

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

// withdraw takes back what admit has said, since the record is not written after all: what was not before it is told by
// another.
func (f *flood) withdraw(dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = max(f.written-1, 0)
	f.dropped += dropped
}

// noteFlood reports whether the call is to be audited by itself. Calls of known callers
// within their limits, and successes, always are.
func (x *exchange) noteFlood(problem *operation.Problem) bool {
	if problem == nil || x.known() && !x.refused {
		return true
	}
	from := source{org: x.call.Tenant.Org.OrgID, operation: x.op.Name}
	now := time.Now() // not when the request began: of those that take long some would begin the minute before anew
	all := floodOf(x.p.strangers, from)
	from.address = limits.Network(x.call.Remote)
	mine := floodOf(x.p.addresses, from)
	write, ofAddress := mine.admit(now, floodPerAddress)
	if !write {
		return false
	}
	write, others := all.admit(now, floodPerMinute)
	if !write {
		mine.withdraw(ofAddress)
		return false
	}
	for fact, dropped := range map[string]int{"refused_unrecorded_of_address": ofAddress, "refused_unrecorded": others} {
		if dropped > 0 {
			x.call.Note(fact, strconv.Itoa(dropped))
		}
	}
	return true
}

func floodOf(floods *cache.Map[source, *flood], from source) *flood {
	return floods.GetOrPut(from, func() *flood { return &flood{} })
}
