// Package announce publishes which organizations have changed to the other replicas, and subscribes to their
// announcements, through Redis.
//
// An announcement only makes a change effective sooner, because every replica reads each organization again within a
// second. Announcements are therefore never repeated or awaited, and those that cannot be sent are dropped and counted.
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
	// flushTimeout bounds the time in which Close announces the remaining changes, after the message under way has
	// ended.
	flushTimeout = time.Second
)

// Directory reports local changes and invalidates what is cached.
type Directory interface {
	// RedisPrefix returns the prefix of the installation's Redis keys. Only its replicas share a channel.
	RedisPrefix() string
	// OnChange registers a function that is called after every change made by this process.
	OnChange(fn func(org int64))
	// Forget invalidates what is cached about an organization, and ForgetAll about all organizations.
	Forget(org int64)
	ForgetAll()
}

// Channel returns the name of the installation's channel. On a cluster every node forwards it.
func Channel(d Directory) string { return d.RedisPrefix() + "changed" }

// Options configure an Announcer. Redis and Directory are required.
type Options struct {
	Redis     redisconn.Client
	Directory Directory
	Log       *slog.Logger // nil: nothing is logged
}

// Stats are counts since the start, for metrics.
type Stats struct {
	Published     int64 // messages sent
	Failed        int64 // messages that Redis did not accept
	Coalesced     int64 // changes of an organization that was already pending
	Dropped       int64 // changes dropped because the queue was full
	Heard         int64 // messages received from other replicas
	Malformed     int64 // messages that could not be decoded, and were ignored
	Gaps          int64 // times that messages of a replica were missing
	Subscriptions int64 // times that a subscription was confirmed
	ForgotAll     int64 // times that everything cached was invalidated
	Connected     bool  // whether there is a confirmed subscription
}

type counters struct {
	published, failed, coalesced, dropped, heard, malformed, gaps, subscriptions, forgotAll atomic.Int64
	connected                                                                               atomic.Bool
}

// Announcer sends and receives announcements until it is closed. It is safe for concurrent use.
type Announcer struct {
	redis     redisconn.Client
	dir       Directory
	log       *slog.Logger
	self      instance
	pingAfter time.Duration
	patience  time.Duration // for sending a message
	counts    counters

	mu      sync.Mutex         // guards pending, lost and closed
	pending map[int64]struct{} // organizations to announce
	lost    bool               // a change was dropped since the last message
	closed  bool
	wake    chan struct{} // holds one token while changes are pending

	number uint64 // number of the last message; used by drain only

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// Start begins to announce the directory's changes and to receive those of other replicas. It does not wait for Redis.
// The caller must close the Announcer before the Redis client.
func Start(o Options) (*Announcer, error) { return start(o, pingAfter, publishTimeout) }

func start(o Options, pingAfter, patience time.Duration) (*Announcer, error) {
	if o.Redis == nil || o.Directory == nil {
		return nil, errors.New("announcing changes needs a Redis client and a directory")
	}
	a := &Announcer{
		redis: o.Redis, dir: o.Directory, log: o.Log, pingAfter: pingAfter, patience: patience,
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

// Close waits for the message under way, announces the remaining changes and waits for the goroutines, for two seconds
// at most. Later changes are not announced. It may be called more than once.
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

// Stats returns the current counts.
func (a *Announcer) Stats() Stats {
	c := &a.counts
	return Stats{
		Published: c.published.Load(), Failed: c.failed.Load(), Coalesced: c.coalesced.Load(), Dropped: c.dropped.Load(),
		Heard: c.heard.Load(), Malformed: c.malformed.Load(), Gaps: c.gaps.Load(), Subscriptions: c.subscriptions.Load(),
		ForgotAll: c.forgotAll.Load(), Connected: c.connected.Load(),
	}
}

// changed adds an organization to the pending ones. It never blocks.
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

// publish sends pending changes until ctx ends.
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

// drain sends the pending changes, until ctx ends. A message that has begun gets its full timeout even if ctx ends
// meanwhile, because its changes are no longer pending. A message that fails is not sent again: by the time Redis is
// back, every replica has read the organizations again.
func (a *Announcer) drain(ctx context.Context) {
	for ctx.Err() == nil {
		orgs, lost := a.takePending()
		if len(orgs) == 0 {
			return
		}
		if lost {
			a.number++
		}
		a.number++
		payload := message{from: a.self, number: a.number, orgs: orgs}.encode()
		timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.patience)
		err := a.redis.Publish(timed, Channel(a.dir), payload)
		cancel()
		if err != nil {
			a.counts.failed.Add(1)
			a.log.DebugContext(ctx,
				"a change of organizations could not be announced; it takes effect in other replicas within a second",
				"error", err)
			continue
		}
		a.counts.published.Add(1)
	}
}

// takePending removes and returns up to maxOrganizations pending organizations, and reports whether changes were
// dropped since the last call.
func (a *Announcer) takePending() (orgs []int64, lost bool) {
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
