// Package deadline has contexts that end in time, for work that mostly waits for nothing.
package deadline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Context is what context.WithTimeout returns, but makes its timer when somebody first waits for its
// end: most requests are over before anybody does. The zero value is of no use; see Begin. Safe for
// concurrent use.
type Context struct {
	parent context.Context
	at     time.Time
	real   atomic.Pointer[timed]

	mu  sync.Mutex
	err error // once somebody has heard of it
}

type timed struct {
	context.Context
	cancel context.CancelFunc
}

// Begin makes it a context of the parent's that ends after d. End must follow.
func (c *Context) Begin(parent context.Context, d time.Duration) {
	c.parent, c.at = parent, time.Now().Add(d)
	if at, ok := parent.Deadline(); ok && at.Before(c.at) {
		c.at = at
	}
}

// End ends it, and gives back what it holds.
func (c *Context) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.real.Load(); r != nil {
		r.cancel()
	} else if c.err == nil {
		c.err = context.Canceled
	}
}

// Deadline returns when it ends.
func (c *Context) Deadline() (time.Time, bool) { return c.at, true }

// Done returns what is closed when it has ended.
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

// Value returns the parent's. Contexts made from this one find the timer by it.
func (c *Context) Value(key any) any {
	if r := c.real.Load(); r != nil {
		return r.Value(key)
	}
	return c.parent.Value(key)
}
