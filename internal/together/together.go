// Package together asks several questions at the same time, where one would only wait for
// another: those to a store that is a network away.
//
// It is not golang.org/x/sync/errgroup, which returns the error that came first in time, so that of two faults one
// caller is told this and the next that, and where a panic of one function ends the process instead of one request.
package together

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Do calls the functions and returns the first error in their order. With atOnce all are
// called at the same time, the first one on the caller's goroutine, and Do returns once all
// have returned. Otherwise they are called one after another until one fails. A panic in one
// becomes a panic of Do, after all have ended.
func Do(atOnce bool, fns ...func() error) error {
	if !atOnce || len(fns) < 2 {
		for _, fn := range fns {
			if err := fn(); err != nil {
				return err
			}
		}
		return nil
	}
	var running sync.WaitGroup
	var broken atomic.Pointer[string]
	errs := make([]error, len(fns))
	for i, fn := range fns[1:] {
		running.Go(func() {
			defer func() {
				if cause := recover(); cause != nil {
					text := fmt.Sprintf("%v\n%s", cause, debug.Stack())
					broken.CompareAndSwap(nil, &text)
				}
			}()
			errs[i+1] = fn()
		})
	}
	func() {
		defer running.Wait()
		errs[0] = fns[0]()
	}()
	if text := broken.Load(); text != nil {
		panic(*text)
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Each calls fn with every number below n, at most width of them at the same time, and returns the first error by
// lane: lane l has l, l+width and so on, and stops at its own. Panics are as in Do.
func Each(width, n int, fn func(i int) error) error {
	lanes := make([]func() error, min(width, n))
	for l := range lanes {
		lanes[l] = func() error {
			for i := l; i < n; i += len(lanes) {
				if err := fn(i); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return Do(true, lanes...)
}
