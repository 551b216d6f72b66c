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

// Refusals of callers without a valid credential and of callers over their limits are audited too, but a flood of them
// must not fill the disk. At most floodPerMinute records are written for an operation of an organization, and at most
// floodPerAddress of them for one address, because a noisy address must not hide the others. The next record has the
// number of those left out.
const (
	floodPerMinute  = 60
	floodPerAddress = 20
	maxFloods       = 4096 // entries for organization and operation; as many for organization, operation and address
)

// source identifies where refusals come from. A zero address stands for all addresses.
type source struct {
	org       int64
	operation string
	address   netip.Addr
}

// flood counts the refusals of the current minute. Safe for concurrent use.
type flood struct {
	mu      sync.Mutex
	minute  int64
	written int
	dropped int
}

// admit reports whether another record may be written this minute, of at most limit. If so, dropped is the number of
// records left out since the last one.
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

// withdraw undoes an admit whose record is not written. The next record has the dropped number instead.
func (f *flood) withdraw(dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written = max(f.written-1, 0)
	f.dropped += dropped
}

// noteFlood reports whether the call gets an audit record of its own. Successes, and calls of known callers within
// their limits, always do.
func (x *exchange) noteFlood(problem *operation.Problem) bool {
	if problem == nil || x.known() && !x.refused {
		return true
	}
	from := source{org: x.call.Tenant.Org.OrgID, operation: x.op.Name}
	now := time.Now() // not x.started: a request that took long would reset the count to an earlier minute
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
