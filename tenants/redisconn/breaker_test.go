package redisconn_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tenantry/tenants/redisconn"
)

// TestBreaker: the callers share one state, one call tries Redis after a pause, and an outage is logged once.
func TestBreaker(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	at := time.Unix(1_800_000_000, 0)
	b := redisconn.NewBreaker(slog.New(slog.NewTextHandler(&logged, nil)), func() time.Time { return at })
	asked := 0
	ask := func(ctx context.Context, answer error) error {
		return b.Do(ctx, func() error {
			asked++
			return answer
		})
	}
	broken := errors.New("refused")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, step := range []struct {
		name   string
		ctx    context.Context
		later  time.Duration
		answer error
		want   error
		paused bool
	}{
		{"a missing entry is an answer", t.Context(), 0, redisconn.ErrNil, redisconn.ErrNil, false},
		{"the context has ended", ended, 0, context.Canceled, context.Canceled, false},
		{"it fails", t.Context(), 0, broken, broken, true},
		{"it is not used", t.Context(), redisconn.Pause - time.Millisecond, nil, redisconn.ErrPaused, true},
		{"the probe fails", t.Context(), time.Millisecond, broken, broken, true},
		{"it is not used again", t.Context(), redisconn.Pause / 2, nil, redisconn.ErrPaused, true},
		{"the clock is set back", t.Context(), -time.Hour, redisconn.ErrNil, redisconn.ErrNil, false},
		{"it answers", t.Context(), 0, nil, nil, false},
	} {
		at = at.Add(step.later)
		before := asked
		if err := ask(step.ctx, step.answer); !errors.Is(err, step.want) || b.Paused() != step.paused {
			t.Errorf("%s: error = %v, paused = %t; want %v, %t", step.name, err, b.Paused(), step.want, step.paused)
		}
		if sent := asked > before; sent == errors.Is(step.want, redisconn.ErrPaused) {
			t.Errorf("%s: asked = %t", step.name, sent)
		}
	}
	_ = ask(t.Context(), broken)
	at = at.Add(redisconn.Pause)
	_ = b.Do(t.Context(), func() error { // other calls do not wait for the probe
		if err := ask(t.Context(), nil); !errors.Is(err, redisconn.ErrPaused) {
			t.Errorf("during a probe: error = %v", err)
		}
		return nil
	})
	if got := logged.String(); strings.Count(got, "does not answer") != 2 || strings.Count(got, "answers again") != 2 {
		t.Errorf("log of two outages:\n%s", got)
	}
}
