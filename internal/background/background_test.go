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

// TestWork: what panics is logged and called again; each call has an end; Close ends what goes on and waits for
// it, no longer than it is told to, and nothing begins after it.
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
			t.Errorf("a call ends with %v", err)
		}
	}
	hold, closed := make(chan struct{}), make(chan struct{})
	begun := make(chan struct{})
	w.Go("hanging", func(context.Context) { close(begun); <-hold })
	<-begun
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w.Close(gone) // does not wait for what hangs
	go func() { w.Close(t.Context()); close(closed) }()
	for ended := false; !ended; {
		select {
		case err := <-calls: // one was under way
			t.Log(err)
		case hold <- struct{}{}:
		case <-closed:
			ended = true
		}
	}
	if w.Go("late", func(context.Context) { t.Error("it began after the end") }) {
		t.Error("what comes after the end was taken")
	}
	if text := log.String(); strings.Count(text, "what=counting") < 3 || !strings.Contains(text, "broken") || !strings.Contains(text, "background_test.go") {
		t.Errorf(`got %v, want containing "broken" and containing "background_test.go"`, text)
	}
}
