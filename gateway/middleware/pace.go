package middleware

import (
	"context"
	"runtime"
	"sync"
	"time"

	"tenantry/internal/fairqueue"
)

// pacePatience bounds the wait of a stream for its turn, after which it goes on without one: the bound on concurrent
// streams is a courtesy between them, and not needed for correctness.
const pacePatience = 500 * time.Millisecond

// newPaces returns the queue of streams by organization. It bounds how many streams of an organization work at the same
// time to half of the processors, rounded up. Work in the store has turns of its own, and a reader may be slow, so a
// stream gives up its turn while it waits for either.
func newPaces() *fairqueue.Queue[int64] {
	return &fairqueue.Queue[int64]{Share: (runtime.GOMAXPROCS(0) + 1) / 2, Timeout: pacePatience}
}

// pace is the turn of one stream: it works while it has a slot of its organization. Safe for concurrent use.
type pace struct {
	ctx   context.Context //nolint:containedctx // of the stream
	paces *fairqueue.Queue[int64]
	org   int64

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
func (p *pace) take() { p.has = p.paces.Enter(p.ctx, p.org) == nil }

// leave gives the slot back when the stream ends.
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
