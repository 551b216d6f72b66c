package events

import "sync"

// hub wakes those who wait for events of an organization. The zero value is ready to use. Safe for concurrent use.
type hub struct {
	mu      sync.Mutex
	waiting map[int64]map[chan struct{}]bool // by organization
	every   []func(org int64)
}

// Committed wakes those who wait for events of the organization; it never blocks.
func (h *hub) Committed(org int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for woken := range h.waiting[org] {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	for _, call := range h.every {
		call(org)
	}
}

// Listen returns a channel that gets a value after this process has logged events of the organization, until stop is
// called. Events of other processes must be looked for.
func (h *hub) Listen(org int64) (woken <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting == nil {
		h.waiting = map[int64]map[chan struct{}]bool{}
	}
	if h.waiting[org] == nil {
		h.waiting[org] = map[chan struct{}]bool{}
	}
	h.waiting[org][c] = true
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.waiting[org], c); len(h.waiting[org]) == 0 {
			delete(h.waiting, org)
		}
	}
}

// ListenAll has call called after this process has logged events of any organization. call must not block, and is called
// from then on.
func (h *hub) ListenAll(call func(org int64)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.every = append(h.every, call)
}
