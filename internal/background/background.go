// Package background does what no request waits for.
package background

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// ErrPanic is what the error of a panic wraps.
var ErrPanic = errors.New("panic")

// Work is what goes on beside requests until it is closed. A panic ends what panics, which is logged, and
// nothing else. Safe for concurrent use.
type Work struct {
	log     *slog.Logger
	ctx     context.Context
	stop    context.CancelFunc
	mu      sync.Mutex // between the last beginning and Close
	running sync.WaitGroup
}

// New returns a Work. The caller closes it.
func New(log *slog.Logger) *Work {
	w := &Work{log: log}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Go calls do, whose context ends when w is closed, and returns at once: false where w is closed already and
// do is not called. What names it in the log.
func (w *Work) Go(what string, do func(context.Context)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return false
	}
	w.running.Go(func() { w.once(w.ctx, what, do) })
	return true
}

// Every calls do again and again until w is closed, the first time after that long. Each call has time until
// the next is due.
func (w *Work) Every(every time.Duration, what string, do func(context.Context)) {
	w.Go(what, func(ctx context.Context) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				round, cancel := context.WithTimeout(ctx, every)
				w.once(round, what, do)
				cancel()
			}
		}
	})
}

func (w *Work) once(ctx context.Context, what string, do func(context.Context)) {
	if err := Try(func() error { do(ctx); return nil }); err != nil {
		w.log.ErrorContext(ctx, "background task failed", "what", what, "error", err)
	}
}

// Close ends the context of what goes on and waits until it has ended, or ctx has.
func (w *Work) Close(ctx context.Context) {
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()
	ended := make(chan struct{})
	go func() { w.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Try returns what do does, or what it panicked with as an error that wraps ErrPanic.
func Try(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrPanic, cause, debug.Stack())
		}
	}()
	return do()
}
