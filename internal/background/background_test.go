package background_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tenantry/internal/background"
)

// TestWork checks that panics are logged and the task is called again, that each call has a deadline, that Close
// cancels tasks and waits for them no longer than its context, and that no task starts afterwards.
func TestWork(t *testing.T) {
	t.Parallel()
	log := &bytes.Buffer{}
	w := background.New(slog.New(slog.NewTextHandler(log, nil)))
	calls := make(chan error)
	w.Every(time.Millisecond, "counting", func(ctx context.Context) {
		<-ctx.Done()
		calls <- ctx.Err()
		panic("broken")
	})
	for range 3 {
		if err := <-calls; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call ended with %v, want %v", err, context.DeadlineExceeded)
		}
	}
	hold, closed := make(chan struct{}), make(chan struct{})
	begun := make(chan struct{})
	w.Go("hanging", func(context.Context) { close(begun); <-hold })
	<-begun
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w.Close(gone) // does not wait for the hanging task
	go func() { w.Close(t.Context()); close(closed) }()
	for ended := false; !ended; {
		select {
		case err := <-calls: // one was in progress
			t.Log(err)
		case hold <- struct{}{}:
		case <-closed:
			ended = true
		}
	}
	if w.Go("late", func(context.Context) { t.Error("a task started after Close") }) {
		t.Error("Go after Close = true, want false")
	}
	if text := log.String(); strings.Count(text, "what=counting") < 3 || !strings.Contains(text, "broken") || !strings.Contains(text, "background_test.go") {
		t.Errorf(`log = %s, want "broken" with its stack at least three times`, text)
	}
}
