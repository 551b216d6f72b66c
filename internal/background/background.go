// Package background runs tasks that no request waits for.
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

// ErrPanic is wrapped by the error of a panic.
var ErrPanic = errors.New("panic")

// Work runs tasks in the background until it is closed. A panic is logged and ends only its own task. Safe for
// concurrent use.
type Work struct {
	log     *slog.Logger
	ctx     context.Context
	stop    context.CancelFunc
	mu      sync.Mutex // keeps tasks from starting while Close waits
	running sync.WaitGroup
}

// New returns a Work. The caller closes it.
func New(log *slog.Logger) *Work {
	w := &Work{log: log}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

// Go runs do in the background and returns at once. The context of do ends when w is closed. Go returns false, without
// calling do, if w is closed already. what names the task in the log.
func (w *Work) Go(what string, do func(context.Context)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return false
	}
	w.running.Go(func() { w.once(w.ctx, what, do) })
	return true
}

// Every calls do at each interval until w is closed, the first time after one interval. The context of each call ends
// when the next call is due.
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

// Close cancels the context of all tasks and waits until they have ended or ctx is done.
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

// Try returns the error of do. A panic of do is returned as an error that wraps ErrPanic.
func Try(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrPanic, cause, debug.Stack())
		}
	}()
	return do()
}
