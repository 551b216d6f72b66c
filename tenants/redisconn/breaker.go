package redisconn

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// Pause is how long Redis is not used after a failure. Then one call tries it again.
const Pause = time.Second

// ErrPaused is returned for calls that are not sent, because Redis did not answer a moment ago.
var ErrPaused = errors.New("not sent, because Redis did not answer a moment ago")

// Breaker is a circuit breaker for callers that can do without Redis, because its timeout would slow each of them. All
// calls that share a Breaker share its state. Safe for concurrent use.
type Breaker struct {
	log         *slog.Logger
	now         func() time.Time
	pausedUntil atomic.Int64 // Unix milliseconds until which Redis is left alone; 0: it works
}

// NewBreaker returns a Breaker that lets calls through. It logs when an outage begins and ends. A nil log discards
// that; a nil clock is time.Now.
func NewBreaker(log *slog.Logger, now func() time.Time) *Breaker {
	b := &Breaker{log: cmp.Or(log, slog.New(slog.DiscardHandler)), now: now}
	if now == nil {
		b.now = time.Now
	}
	return b
}

// Paused reports whether Redis failed and has not answered since.
func (b *Breaker) Paused() bool { return b.pausedUntil.Load() != 0 }

// Do calls ask, which uses Redis, except during a pause. ErrNil counts as an answer; an error after the end of ctx says
// nothing about Redis. Errors: ErrPaused and those of ask.
func (b *Breaker) Do(ctx context.Context, ask func() error) error {
	probe, ok := b.allow()
	if !ok {
		return ErrPaused
	}
	err := ask()
	switch {
	case err == nil || errors.Is(err, ErrNil):
		if probe && b.pausedUntil.Swap(0) != 0 {
			b.log.InfoContext(ctx, "Redis answers again: the replicas apply the request limits together")
		}
	case ctx.Err() == nil:
		if b.pausedUntil.Swap(b.now().Add(Pause).UnixMilli()) == 0 {
			b.log.WarnContext(ctx, "Redis does not answer: until it does, this replica applies the request limits by itself",
				"error", err)
		}
	}
	return err
}

// allow reports whether to use Redis, and whether the use is the single probe after a pause.
func (b *Breaker) allow() (probe, ok bool) {
	until := b.pausedUntil.Load()
	if until == 0 {
		return false, true
	}
	now := b.now().UnixMilli()
	if now < until && until-now <= Pause.Milliseconds() { // a clock that was set back does not prolong the pause
		return false, false
	}
	probe = b.pausedUntil.CompareAndSwap(until, now+Pause.Milliseconds())
	return probe, probe
}
