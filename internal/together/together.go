// Package together does several things at the same time, where one alone would wait for
// another: questions to a store that is a network away.
package together

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Do calls the functions at the same time and returns once all have returned. The first
// one runs on the caller's goroutine, so that one alone costs nothing more. A panic in one
// becomes a panic of Do, after all have ended.
func Do(fns ...func()) {
	if len(fns) == 0 {
		return
	}
	var running sync.WaitGroup
	var broken atomic.Pointer[string]
	for _, fn := range fns[1:] {
		running.Go(func() {
			defer func() {
				if cause := recover(); cause != nil {
					text := fmt.Sprintf("%v\n%s", cause, debug.Stack())
					broken.CompareAndSwap(nil, &text)
				}
			}()
			fn()
		})
	}
	func() {
		defer running.Wait()
		fns[0]()
	}()
	if text := broken.Load(); text != nil {
		panic(*text)
	}
}
