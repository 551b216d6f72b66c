package limits

import (
	"context"
	"net/netip"
	"time"

	"tenantry/internal/fairqueue"
)

// Parts of what may be in flight, which any one party can have.
const (
	organizationPart    = 4  // of all
	strangersPart       = 8  // all callers of an organization together whom nobody knows
	strangerStreamsPart = 16 // their streams, which last for as long as they are read
	strangerAddressPart = 32 // those of one address
	// fewPart is what an organization can always have: the last quarter of all is kept for
	// organizations that have less than this.
	fewPart = 64
)

const (
	// flightPatience is how long somebody waits for room.
	flightPatience = time.Second
	// maxWaiting bounds those who wait, maxWaitingOf those of one organization, of whom at most half may be
	// strangers, of one address at most a quarter, and of strangers' streams an eighth.
	maxWaiting   = 512
	maxWaitingOf = 128
)

// Load is work for an organization: a call, or a body that is being read.
type Load struct {
	Organization int64
	Stranger     bool       // anybody can be the caller: without a credential, or with one that everybody has
	Address      netip.Addr // of a stranger
	Stream       bool       // it is answered while it is read, however slowly
	Weight       int64      // at least 1
}

// Flight bounds the work under way in this process, for each organization and in all. Who
// finds no room waits a moment; of those the organization that has least is next. Safe
// for concurrent use.
//
// It is no fairqueue.Queue, because a load has a weight and up to four bounds.
type Flight struct {
	size int64

	line    fairqueue.Line[Load] // its lock guards the rest
	used    int64
	parties map[bearer]int64
	queued  map[bearer]int
}

// bearer is an organization, all strangers of it, those of one address, or the streams of all strangers.
type bearer struct {
	organization int64
	strangers    bool
	streams      bool
	address      netip.Addr
}

const maxBearers = 4 // of one load

// NewFlight returns a Flight of that size.
func NewFlight(size int64) *Flight {
	return &Flight{size: size, parties: map[bearer]int64{}, queued: map[bearer]int{}}
}

// Used returns how much there is.
func (f *Flight) Used() int64 {
	f.line.Lock()
	defer f.line.Unlock()
	return f.used
}

// bounds returns whose bounds hold for a load, and which they are.
func (f *Flight) bounds(l *Load) (who [maxBearers]bearer, most [maxBearers]int64, names [maxBearers]string, n int) {
	who[0], most[0], names[0] = bearer{organization: l.Organization}, f.size/organizationPart, "organization in flight"
	if !l.Stranger {
		return who, most, names, 1
	}
	who[1], most[1], names[1] = bearer{organization: l.Organization, strangers: true}, f.size/strangersPart, "anonymous in flight"
	who[2], most[2], names[2] = bearer{organization: l.Organization, strangers: true, address: Network(l.Address)}, f.size/strangerAddressPart, "address in flight"
	if !l.Stream {
		return who, most, names, 3
	}
	who[3], most[3], names[3] = bearer{organization: l.Organization, strangers: true, streams: true}, f.size/strangerStreamsPart, "anonymous streams in flight"
	return who, most, names, maxBearers
}

// InFlight is the name of the bound on all organizations together.
const InFlight = "in flight"

// full returns the name of the bound that leaves no room for the load, "" where there is
// some. Who has nothing gets room whatever the weight.
func (f *Flight) full(l *Load) string {
	who, most, names, n := f.bounds(l)
	var has [maxBearers]int64
	for i := range n {
		if has[i] = f.parties[who[i]]; has[i] > 0 && has[i]+l.Weight > most[i] {
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
		who, _, _, n := f.bounds(l)
		for _, p := range who[:n] {
			f.parties[p] += l.Weight
		}
	}
	return full
}

// Enter takes room for the load, for which it waits about a second at most. Where there is
// none it returns the name of the bound; else "", and Leave must be called.
func (f *Flight) Enter(ctx context.Context, l Load) (full string) {
	f.line.Lock()
	if full = f.add(&l); full == "" || !f.mayWait(&l) {
		f.line.Unlock()
		return full
	}
	t := f.line.Join(l)
	f.queue(&l, 1)
	f.line.Unlock()
	ctx, cancel := context.WithTimeout(ctx, flightPatience)
	defer cancel()
	if f.line.Wait(ctx, t, func() { f.queue(&l, -1) }) == nil {
		return ""
	}
	return full
}

func (f *Flight) mayWait(l *Load) bool {
	who, _, _, n := f.bounds(l)
	most := maxWaitingOf
	for _, p := range who[:n] {
		if f.queued[p] >= most {
			return false
		}
		most /= 2
	}
	return len(f.line.Waiting()) < maxWaiting
}

// queue notes that one more, or one less, waits.
func (f *Flight) queue(l *Load, change int) {
	who, _, _, n := f.bounds(l)
	for _, p := range who[:n] {
		if f.queued[p] += change; f.queued[p] == 0 {
			delete(f.queued, p)
		}
	}
}

// Leave gives the room back.
func (f *Flight) Leave(l Load) {
	f.line.Lock()
	defer f.line.Unlock()
	f.used -= l.Weight
	who, _, _, n := f.bounds(&l)
	for _, p := range who[:n] {
		if f.parties[p] -= l.Weight; f.parties[p] == 0 {
			delete(f.parties, p)
		}
	}
	for f.next() {
		continue
	}
}

// Shrink gives back what a load has beyond that weight, and returns the load that is left.
func (f *Flight) Shrink(l Load, weight int64) Load {
	if beyond := l; weight < l.Weight {
		beyond.Weight, l.Weight = l.Weight-weight, weight
		f.Leave(beyond)
	}
	return l
}

// next lets one of those who wait in: of the organizations that find room that which has
// least, of its own the first.
func (f *Flight) next() bool {
	var next *fairqueue.Ticket[Load]
	least := int64(0)
	for _, t := range f.line.Waiting() {
		if has := f.parties[bearer{organization: t.Of.Organization}]; (next == nil || has < least) && f.full(&t.Of) == "" {
			next, least = t, has
		}
	}
	if next == nil {
		return false
	}
	f.add(&next.Of)
	f.queue(&next.Of, -1)
	f.line.Call(next, nil)
	return true
}
