package announce

import (
	"context"
	"errors"
	"net"
	"time"
)

const (
	// pingAfter is how long the connection may be silent before it is pinged, and how long it then has to answer.
	pingAfter  = 3 * time.Second
	minPause   = 50 * time.Millisecond // between attempts to subscribe
	maxPause   = time.Second
	maxSenders = 1024 // replicas whose message numbers are remembered
)

var errSilent = errors.New("the subscription's connection does not answer")

// subscribe subscribes again after every failure, until ctx ends.
func (a *Announcer) subscribe(ctx context.Context) {
	pause := minPause
	warned := false
	for {
		began := a.counts.subscriptions.Load()
		err := a.listen(ctx, func() {
			if warned {
				a.log.InfoContext(ctx, "changes made by other replicas are received again")
			}
			warned = false
		})
		a.counts.connected.Store(false)
		if ctx.Err() != nil {
			return
		}
		if !warned {
			a.log.WarnContext(ctx,
				"the subscription to Redis failed: changes made by other replicas take up to a second to take effect",
				"error", err)
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

// listen receives announcements until the connection fails. It calls onBegin when the subscription is confirmed. Every
// failure ends the subscription, instead of the client repairing it, so that each begins with a confirmation.
func (a *Announcer) listen(ctx context.Context, onBegin func()) error {
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
	pinged := false
	for {
		received, err := subscription.Receive(ctx, a.pingAfter)
		var timeout net.Error
		switch {
		case err == nil:
			pinged = false
		case ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout() && !pinged:
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
			pinged = true
			continue
		case pinged:
			return errors.Join(errSilent, err)
		default:
			return err
		}
		switch {
		case received.Begun:
			// Earlier announcements may have been missed.
			clear(numbers)
			a.counts.subscriptions.Add(1)
			a.forgetAll()
			a.counts.connected.Store(true)
			onBegin()
		case received.Published:
			a.handle(received.Message, numbers)
		}
	}
}

func (a *Announcer) forgetAll() {
	a.counts.forgotAll.Add(1)
	a.dir.ForgetAll()
}

// handle processes one message. numbers holds the last message number of each replica.
func (a *Announcer) handle(payload string, numbers map[instance]uint64) {
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
	if known && m.number != last+1 && m.number != last { // the sender's client may send a message twice
		a.counts.gaps.Add(1)
		a.forgetAll()
		return
	}
	for _, org := range m.orgs {
		a.dir.Forget(org)
	}
}
