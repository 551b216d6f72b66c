// Package deadline has contexts with a deadline for work that rarely waits.
package deadline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Context is like the result of context.WithTimeout, but makes its timer only when something first waits for its end,
// because most requests end without that. Call Begin before use. Safe for concurrent use.
type Context struct {
	parent context.Context
	at     time.Time
	real   atomic.Pointer[timed]

	mu  sync.Mutex
	err error // once Err has returned it
}

type timed struct {
	context.Context
	cancel context.CancelFunc
}

// Begin makes c a child of parent that ends after d. The caller must call End.
func (c *Context) Begin(parent context.Context, d time.Duration) {
	c.parent, c.at = parent, time.Now().Add(d)
	if at, ok := parent.Deadline(); ok && at.Before(c.at) {
		c.at = at
	}
}

// End cancels c and releases its resources.
func (c *Context) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.real.Load(); r != nil {
		r.cancel()
	} else if c.err == nil {
		c.err = context.Canceled
	}
}

// Deadline returns the time at which c ends.
func (c *Context) Deadline() (time.Time, bool) { return c.at, true }

// Done returns a channel that is closed when c ends.
func (c *Context) Done() <-chan struct{} {
	if r := c.real.Load(); r != nil {
		return r.Done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.real.Load()
	if r == nil {
		r = &timed{}
		r.Context, r.cancel = context.WithDeadline(c.parent, c.at)
		if c.err != nil {
			r.cancel()
		}
		c.real.Store(r)
	}
	return r.Done()
}

// Err returns nil before the end, then context.DeadlineExceeded or context.Canceled.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if r := c.real.Load(); r != nil {
		c.err = r.Err()
	} else if c.err = c.parent.Err(); c.err == nil && !time.Now().Before(c.at) {
		c.err = context.DeadlineExceeded
	}
	return c.err
}

// Value returns the parent's value. Contexts derived from c also find its timer this way.
func (c *Context) Value(key any) any {
	if r := c.real.Load(); r != nil {
		return r.Value(key)
	}
	return c.parent.Value(key)
}
