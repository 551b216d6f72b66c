package middleware

import (
	"context"
	"runtime"
	"sync"
	"time"

	"tenantry/internal/fairqueue"
)

// pacePatience is how long a stream waits for its pace. It is a courtesy to others: whoever waits for too long goes on
// without.
const pacePatience = 500 * time.Millisecond

// newPaces returns what bounds how many streams of an organization are made at the same moment to half of the
// processors, rounded up. What the store does for them has turns of its own, and a reader may take as long as it likes:
// a stream rests meanwhile.
func newPaces() *fairqueue.Queue[int64] {
	return &fairqueue.Queue[int64]{Share: (runtime.GOMAXPROCS(0) + 1) / 2, Patience: pacePatience}
}

// pace is what one stream has while it is being made. Safe for concurrent use.
type pace struct {
	ctx   context.Context //nolint:containedctx // of the stream
	paces *fairqueue.Queue[int64]
	org   int64

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
func (p *pace) take() { p.has = p.paces.Enter(p.ctx, p.org) == nil }

// leave ends it.
func (p *pace) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give()
}

func (p *pace) give() {
	if p.has {
		p.has = false
		p.paces.Leave(p.org)
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
