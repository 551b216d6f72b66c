package announce

import (
	"context"
	"errors"
	"net"
	"time"
)

const (
	// quiet is how long the connection may say nothing before it is asked whether it
	// lives, and how long it then has to answer.
	quiet      = 3 * time.Second
	minPause   = 50 * time.Millisecond // between attempts to subscribe
	maxPause   = time.Second
	maxSenders = 1024 // replicas whose numbers are known
)

var errSilent = errors.New("the subscription's connection does not answer")

// subscribe keeps a subscription until ctx ends.
func (a *Announcer) subscribe(ctx context.Context) {
	pause := minPause
	warned := false
	for {
		began := a.counts.subscriptions.Load()
		err := a.listen(ctx, func() {
			if warned {
				a.log.InfoContext(ctx, "changes made by other replicas are heard again")
			}
			warned = false
		})
		a.counts.connected.Store(false)
		if ctx.Err() != nil {
			return
		}
		if !warned {
			a.log.WarnContext(ctx, "Redis is not listened to: changes made by other replicas are not heard at once, but within a second", "error", err)
			warned = true
		}
		if a.counts.subscriptions.Load() > began {
			pause = minPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// listen hears announcements until the connection fails; begun is called whenever the
// subscription stands. A new subscription is made after every failure rather than the
// client's own repaired, so that each begins with a confirmation.
func (a *Announcer) listen(ctx context.Context, begun func()) error {
	subscription, err := a.redis.Subscribe(ctx, Channel(a.dir))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = subscription.Close() }) // ends a read that waits
	defer func() {
		stop()
		_ = subscription.Close()
	}()
	numbers := map[instance]uint64{}
	asked := false
	for {
		received, err := subscription.Receive(ctx, a.quiet)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
		case ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout() && !asked:
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
			asked = true
			continue
		case asked:
			return errors.Join(errSilent, err)
		default:
			return err
		}
		switch {
		case received.Begun:
			// Whatever was announced before was missed. The numbers start afresh.
			clear(numbers)
			a.counts.subscriptions.Add(1)
			a.forgetAll()
			a.counts.connected.Store(true)
			begun()
		case received.Published:
			a.hear(received.Message, numbers)
		}
	}
}

func (a *Announcer) forgetAll() {
	a.counts.forgotAll.Add(1)
	a.dir.ForgetAll()
}

// hear takes one message.
func (a *Announcer) hear(payload string, numbers map[instance]uint64) {
	m, err := decode(payload)
	if err != nil {
		a.counts.malformed.Add(1)
		return
	}
	if m.from == a.self {
		return
	}
	a.counts.heard.Add(1)
	last, known := numbers[m.from]
	if !known && len(numbers) >= maxSenders {
		clear(numbers)
	}
	numbers[m.from] = m.number
	if known && m.number != last+1 && m.number != last { // the client may send one twice
		a.counts.gaps.Add(1)
		a.forgetAll()
		return
	}
	for _, org := range m.orgs {
		a.dir.Forget(org)
	}
}
