package redisconn

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// Rest is how long Redis is left alone after it failed; then one call tries it.
const Rest = time.Second

// ErrResting is returned for calls that are not sent, because Redis did not answer a moment ago.
var ErrResting = errors.New("not sent, because Redis did not answer a moment ago")

// Breaker spares callers who can do without Redis the wait for one that does not answer. What any of them learns holds
// for all that share the Breaker. Safe for concurrent use.
type Breaker struct {
	log     *slog.Logger
	now     func() time.Time
	resting atomic.Int64 // Unix milliseconds until which Redis is left alone; 0: it answers
}

// NewBreaker returns a Breaker that lets calls through. It logs when an outage begins and ends; a nil log gets nothing,
// a nil clock is time.Now.
func NewBreaker(log *slog.Logger, now func() time.Time) *Breaker {
	b := &Breaker{log: cmp.Or(log, slog.New(slog.DiscardHandler)), now: now}
	if now == nil {
		b.now = time.Now
	}
	return b
}

// Resting reports whether Redis failed and has not answered since.
func (b *Breaker) Resting() bool { return b.resting.Load() != 0 }

// Do calls ask, which asks Redis, unless that is left alone. ErrNil is an answer; an error that comes after ctx has
// ended says nothing about Redis. Errors: ErrResting and those of ask.
func (b *Breaker) Do(ctx context.Context, ask func() error) error {
	probe, ok := b.admit()
	if !ok {
		return ErrResting
	}
	err := ask()
	switch {
	case err == nil || errors.Is(err, ErrNil):
		if probe && b.resting.Swap(0) != 0 {
			b.log.InfoContext(ctx, "Redis answers again: the replicas apply the request limits together")
		}
	case ctx.Err() == nil:
		if b.resting.Swap(b.now().Add(Rest).UnixMilli()) == 0 {
			b.log.WarnContext(ctx, "Redis does not answer: until it does, this replica applies the request limits by itself", "error", err)
		}
	}
	return err
}

// admit reports whether Redis is to be asked, and whether that is the one attempt after a rest.
func (b *Breaker) admit() (probe, ok bool) {
	until := b.resting.Load()
	if until == 0 {
		return false, true
	}
	now := b.now().UnixMilli()
	if now < until && until-now <= Rest.Milliseconds() { // a clock set back prolongs no rest
		return false, false
	}
	probe = b.resting.CompareAndSwap(until, now+Rest.Milliseconds())
	return probe, probe
}
