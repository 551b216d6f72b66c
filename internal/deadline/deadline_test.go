package deadline_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"tenantry/internal/deadline"
)

// TestContext holds it against context.WithTimeout: whether somebody waited or not, and at whatever time it
// was asked first.
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
					t.Errorf("%s, waited for: %t: %v, child %v, like %v", name, early, err, child.Err(), like.Err())
				}
			}
			at, ok := c.Deadline()
			if other, _ := like.Deadline(); !ok || at.Sub(other).Abs() > time.Minute || c.Value(key{}) != 7 {
				t.Errorf("%s: ends at %v, like %v; value %v", name, at, other, c.Value(key{}))
			}
			c.End()
			if c.Err() == nil || child.Err() == nil {
				t.Errorf("%s: lasts after its end", name)
			}
		}
	}
}

// TestContext_ErrAlone: who only asks hears of the end too, and always the same.
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
		t.Error(err)
	}
	<-c.Done()
	if err := c.Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestContext_AskedByMany(t *testing.T) {
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
