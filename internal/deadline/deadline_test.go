package deadline_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"tenantry/internal/deadline"
)

// TestContext compares a Context with context.WithTimeout, with and without a waiter before the end.
func TestContext(t *testing.T) {
	t.Parallel()
	type key struct{}
	for name, test := range map[string]struct {
		parent time.Duration // 0: has no end
		own    time.Duration
		ends   func(end func(), parent context.CancelFunc)
		want   error
	}{
		"lasts":           {own: time.Hour},
		"is ended":        {own: time.Hour, ends: func(end func(), _ context.CancelFunc) { end() }, want: context.Canceled},
		"parent is ended": {own: time.Hour, ends: func(_ func(), parent context.CancelFunc) { parent() }, want: context.Canceled},
		"time is over":    {own: time.Nanosecond, want: context.DeadlineExceeded},
		"parent's is":     {parent: time.Nanosecond, own: time.Hour, want: context.DeadlineExceeded},
	} {
		for _, early := range []bool{false, true} {
			parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 7))
			defer cancel()
			if test.parent > 0 {
				var stop context.CancelFunc
				parent, stop = context.WithTimeout(parent, test.parent)
				defer stop()
			}
			c := &deadline.Context{}
			c.Begin(parent, test.own)
			like, stop := context.WithTimeout(parent, test.own)
			defer stop()
			if early {
				c.Done()
			}
			child, release := context.WithCancel(context.WithValue(c, "x", 1)) //nolint:revive,staticcheck // a test's
			defer release()
			if test.ends != nil {
				test.ends(func() { c.End(); stop() }, cancel)
			}
			if test.want != nil {
				<-like.Done()
				<-c.Done()
				<-child.Done()
			}
			for range 2 {
				if err := c.Err(); !errors.Is(err, test.want) || !errors.Is(like.Err(), test.want) || !errors.Is(child.Err(), test.want) {
					t.Errorf("%s, waited for: %t: Err() = %v, of its child %v, of the reference %v, want %v", name, early, err, child.Err(), like.Err(), test.want)
				}
			}
			at, ok := c.Deadline()
			if other, _ := like.Deadline(); !ok || at.Sub(other).Abs() > time.Minute || c.Value(key{}) != 7 {
				t.Errorf("%s: got deadline %v and value %v, want %v and 7", name, at, c.Value(key{}), other)
			}
			c.End()
			if c.Err() == nil || child.Err() == nil {
				t.Errorf("%s: after End Err() = %v, of its child %v, want errors", name, c.Err(), child.Err())
			}
		}
	}
}

// TestContext_ErrAlone checks that Err reports the end without a waiter, and always the same error.
func TestContext_ErrAlone(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithCancel(t.Context())
	c := &deadline.Context{}
	c.Begin(parent, time.Nanosecond)
	for c.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	c.End()
	if err := c.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Err() = %v, want %v", err, context.DeadlineExceeded)
	}
	<-c.Done()
	if err := c.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Err() = %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestContext_ConcurrentUse(t *testing.T) {
	t.Parallel()
	for range 200 {
		c := &deadline.Context{}
		c.Begin(t.Context(), time.Hour)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				switch i % 4 {
				case 0:
					<-c.Done()
				case 1:
					_ = c.Err()
				case 2:
					child, stop := context.WithCancel(c)
					<-child.Done()
					stop()
				case 3:
					c.End()
				}
			})
		}
		all.Wait()
		if !errors.Is(c.Err(), context.Canceled) {
			t.Fatalf("got %v, want the error context.Canceled", c.Err())
		}
	}
}
