package limits

import (
	"context"
	"net/netip"
	"time"

	"tenantry/internal/fairqueue"
)

// The share of the size of a Flight that each scope may use is one part in:
const (
	organizationPart  = 4  // an organization
	publicPart        = 8  // the public callers of an organization
	publicStreamsPart = 16 // their streams, which last as long as the callers read
	publicAddressPart = 32 // its public callers at one address
	// The last quarter of the size is reserved for organizations that use less than one part in fewPart.
	fewPart = 64
)

const (
	// waitTimeout is how long a load waits for room.
	waitTimeout = time.Second
	// maxWaiting bounds the number of waiting loads, and maxWaitingPerOrganization those of one organization. At most
	// half of the latter may be of public callers, a quarter of one address, and an eighth public streams.
	maxWaiting                = 512
	maxWaitingPerOrganization = 128
)

// Load is work for an organization: a call, or a body that is being read.
type Load struct {
	Organization int64
	Public       bool       // the caller has no credential, or a browser key
	Address      netip.Addr // of a public caller
	Stream       bool       // the answer is written while it is read, however slowly
	Weight       int64      // at least 1
}

// Flight bounds the work in flight in this process, for each organization and in total. A load that finds no room waits
// for a moment; room that becomes free goes to the organization that uses the least. It is safe for concurrent use.
//
// It is not a fairqueue.Queue, because a load has a weight and up to four bounds.
type Flight struct {
	size int64

	line   fairqueue.Line[Load] // its lock guards the fields below
	used   int64                // total weight
	inUse  map[scope]int64      // weight by scope
	queued map[scope]int        // number of waiting loads by scope
}

// scope is what a bound applies to: an organization, its public callers, those at one address, or the streams of its
// public callers.
type scope struct {
	organization int64
	public       bool
	streams      bool
	address      netip.Addr
}

const maxScopes = 4 // of one load

// NewFlight returns a Flight with room for loads of that total weight.
func NewFlight(size int64) *Flight {
	return &Flight{size: size, inUse: map[scope]int64{}, queued: map[scope]int{}}
}

// Used returns the total weight in flight.
func (f *Flight) Used() int64 {
	f.line.Lock()
	defer f.line.Unlock()
	return f.used
}

// bounds returns the scopes that a load counts in, with the bound and its name for each.
func (f *Flight) bounds(l *Load) (scopes [maxScopes]scope, caps [maxScopes]int64, names [maxScopes]string, n int) {
	scopes[0], caps[0], names[0] = scope{organization: l.Organization}, f.size/organizationPart, "organization in flight"
	if !l.Public {
		return scopes, caps, names, 1
	}
	scopes[1], caps[1], names[1] = scope{organization: l.Organization,
		public: true}, f.size/publicPart, "anonymous in flight"
	scopes[2], caps[2], names[2] = scope{organization: l.Organization, public: true,
		address: Network(l.Address)}, f.size/publicAddressPart, "address in flight"
	if !l.Stream {
		return scopes, caps, names, 3
	}
	scopes[3], caps[3], names[3] = scope{organization: l.Organization, public: true,
		streams: true}, f.size/publicStreamsPart, "anonymous streams in flight"
	return scopes, caps, names, maxScopes
}

// InFlight is the name of the bound on all organizations together.
const InFlight = "in flight"

// full returns the name of the bound that leaves no room for the load, or "" if there is room. A scope that is empty
// has room for a load of any weight.
func (f *Flight) full(l *Load) string {
	scopes, caps, names, n := f.bounds(l)
	var has [maxScopes]int64
	for i := range n {
		if has[i] = f.inUse[scopes[i]]; has[i] > 0 && has[i]+l.Weight > caps[i] {
			return names[i]
		}
	}
	all := f.size
	if has[0] >= max(f.size/fewPart, 1) {
		all -= all / 4
	}
	if f.used > 0 && f.used+l.Weight > all {
		return InFlight
	}
	return ""
}

// add takes the room, or returns the name of the bound that leaves none.
func (f *Flight) add(l *Load) (full string) {
	if full = f.full(l); full == "" {
		f.used += l.Weight
		scopes, _, _, n := f.bounds(l)
		for _, p := range scopes[:n] {
			f.inUse[p] += l.Weight
		}
	}
	return full
}

// Enter takes room for the load, and waits about a second for it at most. If there is none, it returns the name of the
// bound that leaves none. Otherwise it returns "", and the caller must call Leave.
func (f *Flight) Enter(ctx context.Context, l Load) (full string) {
	f.line.Lock()
	if full = f.add(&l); full == "" || !f.canWait(&l) {
		f.line.Unlock()
		return full
	}
	t := f.line.Join(l)
	f.countWaiting(&l, 1)
	f.line.Unlock()
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	if f.line.Wait(ctx, t, func() { f.countWaiting(&l, -1) }) == nil {
		return ""
	}
	return full
}

// canWait reports whether another load of these scopes may wait.
func (f *Flight) canWait(l *Load) bool {
	scopes, _, _, n := f.bounds(l)
	most := maxWaitingPerOrganization
	for _, p := range scopes[:n] {
		if f.queued[p] >= most {
			return false
		}
		most /= 2
	}
	return len(f.line.Waiting()) < maxWaiting
}

// countWaiting adds change to the number of waiting loads in the scopes of a load.
func (f *Flight) countWaiting(l *Load, change int) {
	scopes, _, _, n := f.bounds(l)
	for _, p := range scopes[:n] {
		if f.queued[p] += change; f.queued[p] == 0 {
			delete(f.queued, p)
		}
	}
}

// Leave gives the room of a load back.
func (f *Flight) Leave(l Load) {
	f.line.Lock()
	defer f.line.Unlock()
	f.used -= l.Weight
	scopes, _, _, n := f.bounds(&l)
	for _, p := range scopes[:n] {
		if f.inUse[p] -= l.Weight; f.inUse[p] == 0 {
			delete(f.inUse, p)
		}
	}
	for f.admitNext() {
		continue
	}
}

// Shrink reduces a load to a lower weight, gives the difference back, and returns the reduced load.
func (f *Flight) Shrink(l Load, weight int64) Load {
	if beyond := l; weight < l.Weight {
		beyond.Weight, l.Weight = l.Weight-weight, weight
		f.Leave(beyond)
	}
	return l
}

// admitNext admits one waiting load: of those that there is room for, the first of the organization that uses the
// least.
func (f *Flight) admitNext() bool {
	var next *fairqueue.Ticket[Load]
	least := int64(0)
	for _, t := range f.line.Waiting() {
		if has := f.inUse[scope{organization: t.Of.Organization}]; (next == nil || has < least) && f.full(&t.Of) == "" {
			next, least = t, has
		}
	}
	if next == nil {
		return false
	}
	f.add(&next.Of)
	f.countWaiting(&next.Of, -1)
	f.line.Call(next, nil)
	return true
}
