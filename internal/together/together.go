// Package together runs independent functions concurrently, such as calls to a store behind a network.
//
// It differs from golang.org/x/sync/errgroup in two ways. Its error is the first in the order of the functions, not in
// time, so the same two faults always give the same answer. And a panic of one function ends one request instead of the
// process.
package together

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Do calls the functions and returns the first error in their order. With atOnce they run concurrently, the first one
// on the caller's goroutine, and Do returns when all have returned. Otherwise they run one after another until one
// fails. A panic of one becomes a panic of Do after all have ended.
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
	var panicked atomic.Pointer[string]
	errs := make([]error, len(fns))
	for i, fn := range fns[1:] {
		running.Go(func() {
			defer func() {
				if cause := recover(); cause != nil {
					text := fmt.Sprintf("%v\n%s", cause, debug.Stack())
					panicked.CompareAndSwap(nil, &text)
				}
			}()
			errs[i+1] = fn()
		})
	}
	func() {
		defer running.Wait()
		errs[0] = fns[0]()
	}()
	if text := panicked.Load(); text != nil {
		panic(*text)
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Each calls fn with every number below n, at most width of them concurrently. The numbers are divided into lanes: lane
// l has l, l+width and so on, and stops at its first error. Each returns the error of the first lane that has one.
// Panics are as in Do.
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
