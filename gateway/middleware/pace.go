package middleware

import (
	"context"
	"runtime"
	"sync"
	"time"

	"tenantry/internal/cache"
)

// pacePatience is how long a stream waits for its pace. It is a courtesy to others: whoever waits for too long goes on
// without.
const pacePatience = 500 * time.Millisecond

// paces bound how many streams of an organization are made at the same moment to half of the processors, rounded up.
// What the store does for them has turns of its own, and a reader may take as long as it likes: a stream rests
// meanwhile.
type paces struct {
	lanes cache.Weak[int64, lane] // by organization
}

// lane has one for each stream that is being made.
type lane struct{ busy chan struct{} }

// of returns the pace of one more stream of the organization, which it does not have yet.
func (p *paces) of(ctx context.Context, org int64) *pace {
	return &pace{ctx: ctx, lane: p.lanes.GetOrPut(org, func() *lane {
		return &lane{make(chan struct{}, (runtime.GOMAXPROCS(0)+1)/2)}
	})}
}

// pace is what one stream has while it is being made. Safe for concurrent use.
type pace struct {
	ctx  context.Context //nolint:containedctx // of the stream
	lane *lane

	mu      sync.Mutex
	has     bool
	resting int // how many wait for something else
}

// begin waits for the pace; leave must follow.
func (p *pace) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take()
}

// take waits for the pace, with p.mu held: where several work for the stream, the others wait with it.
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

// leave ends it.
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

// Rest makes it a request.Pace.
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
