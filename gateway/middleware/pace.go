package middleware

import (
	"context"
	"runtime"
	"sync"
	"time"

	"tenantry/internal/cache"
)

// pacePatience bounds the wait of a stream for its turn, after which it goes on without one: the bound on concurrent
// streams is a courtesy between them, and not needed for correctness.
const pacePatience = 500 * time.Millisecond

// paces bounds how many streams of an organization work at the same time to half of the processors, rounded up. Work in
// the store has turns of its own, and a reader may be slow, so a stream gives up its turn while it waits for either.
type paces struct {
	lanes cache.Weak[int64, lane] // by organization
}

// lane is a semaphore with a slot for each stream that works.
type lane struct{ busy chan struct{} }

// of returns a pace for one more stream of the organization. It has no slot yet.
func (p *paces) of(ctx context.Context, org int64) *pace {
	return &pace{ctx: ctx, lane: p.lanes.GetOrPut(org, func() *lane {
		return &lane{make(chan struct{}, (runtime.GOMAXPROCS(0)+1)/2)}
	})}
}

// pace is the turn of one stream: it works while it has a slot of the lane. Safe for concurrent use.
type pace struct {
	ctx  context.Context //nolint:containedctx // of the stream
	lane *lane

	mu      sync.Mutex
	has     bool // it has a slot
	resting int  // goroutines of the stream that wait for something else
}

// begin waits for a slot; the caller must call leave.
func (p *pace) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take()
}

// take waits for a slot. The caller holds p.mu, so that other goroutines of the stream wait as well.
func (p *pace) take() {
	select {
	case p.lane.busy <- struct{}{}:
		p.has = true
		return
	default:
	}
	patience := time.NewTimer(pacePatience)
	defer patience.Stop()
	select {
	case p.lane.busy <- struct{}{}:
		p.has = true
	case <-patience.C:
	case <-p.ctx.Done():
	}
}

// leave gives the slot back when the stream ends.
func (p *pace) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give()
}

func (p *pace) give() {
	if p.has {
		p.has = false
		<-p.lane.busy
	}
}

// Rest implements request.Pace.
func (p *pace) Rest() (again func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resting++
	p.give()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.resting--; p.resting == 0 {
			p.take()
		}
	}
}
