// Package announce tells the other replicas which organizations changed, and hears it
// from them, over Redis' publish and subscribe.
//
// An announcement only makes a change hold sooner: every replica reads each organization
// again within a second anyway. So nothing here is delivered twice or waited for, and
// what cannot be sent is dropped and counted.
package announce

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/tenants/redisconn"
)

const (
	maxPending     = 4096
	publishTimeout = time.Second
	// flushTimeout bounds how long Close tries to announce what is left, once the message
	// that was under way has ended.
	flushTimeout = time.Second
)

// Directory is what is told of changes and tells them.
type Directory interface {
	// RedisPrefix begins the names of the installation, whose replicas hear each other alone.
	RedisPrefix() string
	// OnChange registers a function that is called after every change made here.
	OnChange(fn func(org int64))
	// Forget voids what is cached about an organization, ForgetAll about all.
	Forget(org int64)
	ForgetAll()
}

// Channel returns the name of the installation's channel. On a cluster every node hears it.
func Channel(d Directory) string { return d.RedisPrefix() + "changed" }

// Options are what an Announcer needs; Redis and Directory are required.
type Options struct {
	Redis     redisconn.Client
	Directory Directory
	Log       *slog.Logger // nil: nothing is logged
}

// Stats are numbers since the start, for metrics.
type Stats struct {
	Published     int64 // messages sent
	Failed        int64 // messages that Redis did not take
	Coalesced     int64 // changes that were waiting to be sent already
	Dropped       int64 // changes that found the queue full
	Heard         int64 // messages of other replicas
	Malformed     int64 // messages that could not be read, and were ignored
	Gaps          int64 // times that messages of a replica were missing
	Subscriptions int64 // times the subscription began
	ForgotAll     int64 // times everything was forgotten
	Connected     bool  // whether the subscription stands
}

type counters struct {
	published, failed, coalesced, dropped, heard, malformed, gaps, subscriptions, forgotAll atomic.Int64
	connected                                                                               atomic.Bool
}

// Announcer sends and hears announcements until it is closed. Safe for concurrent use.
type Announcer struct {
	redis  redisconn.Client
	dir    Directory
	log    *slog.Logger
	self   instance
	quiet  time.Duration
	counts counters

	mu      sync.Mutex
	pending map[int64]struct{}
	lost    bool // a change was dropped since the last message
	closed  bool
	wake    chan struct{} // holds one token while something is pending

	number uint64 // of the last message; the publisher's alone

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Start begins to announce the directory's changes and to hear those of others. It does
// not wait for Redis. The caller closes the Announcer before the Redis client.
func Start(o Options) (*Announcer, error) { return start(o, quiet) }

func start(o Options, quiet time.Duration) (*Announcer, error) {
	if o.Redis == nil || o.Directory == nil {
		return nil, errors.New("announcing changes needs a Redis client and a directory")
	}
	a := &Announcer{
		redis: o.Redis, dir: o.Directory, log: o.Log, quiet: quiet,
		pending: map[int64]struct{}{}, wake: make(chan struct{}, 1),
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	_, _ = rand.Read(a.self[:]) // never fails
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	a.running.Go(func() { a.publish(ctx) })
	a.running.Go(func() { a.subscribe(ctx) })
	o.Directory.OnChange(a.changed)
	return a, nil
}

// Close lets the message under way end, announces what is left and waits for the
// goroutines, two seconds at most. Changes after it are not announced. It may be called
// more than once.
func (a *Announcer) Close() error {
	a.mu.Lock()
	first := !a.closed
	a.closed = true
	a.mu.Unlock()
	a.cancel()
	a.running.Wait()
	if first {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		a.drain(ctx)
	}
	return nil
}

// Stats returns the numbers as they are now.
func (a *Announcer) Stats() Stats {
	c := &a.counts
	return Stats{
		Published: c.published.Load(), Failed: c.failed.Load(), Coalesced: c.coalesced.Load(), Dropped: c.dropped.Load(),
		Heard: c.heard.Load(), Malformed: c.malformed.Load(), Gaps: c.gaps.Load(), Subscriptions: c.subscriptions.Load(),
		ForgotAll: c.forgotAll.Load(), Connected: c.connected.Load(),
	}
}

// changed notes an organization for the publisher. It never blocks.
func (a *Announcer) changed(org int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	if _, ok := a.pending[org]; ok {
		a.counts.coalesced.Add(1)
		return
	}
	if len(a.pending) >= maxPending {
		a.counts.dropped.Add(1)
		a.lost = true
		return
	}
	a.pending[org] = struct{}{}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// publish sends what is pending until ctx ends.
func (a *Announcer) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
			a.drain(ctx)
		}
	}
}

// drain sends what is pending now, until ctx ends. A message that was begun has its time
// also where ctx ends meanwhile: what it tells is no longer pending, so nobody else would
// send it. What fails is not sent again: by the time Redis is back, every replica has read
// the organization.
func (a *Announcer) drain(ctx context.Context) {
	for ctx.Err() == nil {
		orgs, lost := a.take()
		if len(orgs) == 0 {
			return
		}
		if lost {
			a.number++
		}
		a.number++
		payload := message{from: a.self, number: a.number, orgs: orgs}.encode()
		timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
		err := a.redis.Publish(timed, Channel(a.dir), payload)
		cancel()
		if err != nil {
			a.counts.failed.Add(1)
			a.log.DebugContext(ctx, "a change of organizations could not be announced; other replicas see it within a second", "error", err)
			continue
		}
		a.counts.published.Add(1)
	}
}

// take removes and returns up to maxOrganizations that are pending.
func (a *Announcer) take() (orgs []int64, lost bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for org := range a.pending {
		if len(orgs) == maxOrganizations {
			break
		}
		orgs = append(orgs, org)
		delete(a.pending, org)
	}
	if len(orgs) > 0 {
		lost, a.lost = a.lost, false
	}
	return orgs, lost
}
