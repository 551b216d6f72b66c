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

// TestBreaker: what one caller learns of Redis holds for the others, one call tries it after a rest, and an outage is
// told once.
func TestBreaker(t *testing.T) {
	t.Parallel()
	var told bytes.Buffer
	at := time.Unix(1_800_000_000, 0)
	b := redisconn.NewBreaker(slog.New(slog.NewTextHandler(&told, nil)), func() time.Time { return at })
	asked := 0
	ask := func(ctx context.Context, answer error) error {
		return b.Do(ctx, func() error {
			asked++
			return answer
		})
	}
	broken := errors.New("refused")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, step := range []struct {
		name   string
		ctx    context.Context
		later  time.Duration
		answer error
		want   error
		rests  bool
	}{
		{"a missing entry is an answer", t.Context(), 0, redisconn.ErrNil, redisconn.ErrNil, false},
		{"a caller who has gone", gone, 0, context.Canceled, context.Canceled, false},
		{"it fails", t.Context(), 0, broken, broken, true},
		{"it is left alone", t.Context(), redisconn.Rest - time.Millisecond, nil, redisconn.ErrResting, true},
		{"the try fails", t.Context(), time.Millisecond, broken, broken, true},
		{"it is left alone again", t.Context(), redisconn.Rest / 2, nil, redisconn.ErrResting, true},
		{"the clock is set back", t.Context(), -time.Hour, redisconn.ErrNil, redisconn.ErrNil, false},
		{"it answers", t.Context(), 0, nil, nil, false},
	} {
		at = at.Add(step.later)
		before := asked
		if err := ask(step.ctx, step.answer); !errors.Is(err, step.want) || b.Resting() != step.rests {
			t.Errorf("%s: %v, it rests: %t; want %v, %t", step.name, err, b.Resting(), step.want, step.rests)
		}
		if sent := asked > before; sent == errors.Is(step.want, redisconn.ErrResting) {
			t.Errorf("%s: it was asked: %t", step.name, sent)
		}
	}
	_ = ask(t.Context(), broken)
	at = at.Add(redisconn.Rest)
	_ = b.Do(t.Context(), func() error { // the others do not wait for the one that tries
		if err := ask(t.Context(), nil); !errors.Is(err, redisconn.ErrResting) {
			t.Errorf("beside a try: %v", err)
		}
		return nil
	})
	if got := told.String(); strings.Count(got, "does not answer") != 2 || strings.Count(got, "answers again") != 2 {
		t.Errorf("two outages are told so:\n%s", got)
	}
}
