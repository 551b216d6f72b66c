package announce

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/internal/maintest"
	"tenantry/tenants"
	"tenantry/tenants/localredis"
	"tenantry/tenants/redisconn"
	"tenantry/tenants/redistest"
	"tenantry/tenants/tenantstest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

// patience is how long a test waits for what must happen; it decides nothing else.
const patience = 30 * time.Second

// recorder is a Directory that notes what it is told.
type recorder struct {
	mu     sync.Mutex
	change []func(int64)
	forgot []int64
	all    atomic.Int64
}

func (d *recorder) OnChange(fn func(int64)) { d.change = append(d.change, fn) }
func (d *recorder) ForgetAll()              { d.all.Add(1) }
func (d *recorder) RedisPrefix() string     { return "tnt:{installation}:" }

func (d *recorder) Forget(org int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgot = append(d.forgot, org)
}

func (d *recorder) forgotten() []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.forgot)
}

func (d *recorder) changed(org int64) {
	for _, fn := range d.change {
		fn(org)
	}
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain until %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// begin starts an Announcer that ends with the test, and waits for its subscription.
func begin(t *testing.T, client redis.UniversalClient, d Directory) *Announcer {
	t.Helper()
	a, err := start(Options{Redis: redisconn.Of(client), Directory: d}, 100*time.Millisecond, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	until(t, "the subscription stands", func() bool { return a.Stats().Connected })
	return a
}

// servers are the kinds of Redis there are; each returns a maker of clients.
func servers() map[string]func(*testing.T) func() redis.UniversalClient {
	return map[string]func(*testing.T) func() redis.UniversalClient{
		"in process": func(t *testing.T) func() redis.UniversalClient {
			server, err := localredis.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			return func() redis.UniversalClient {
				client, err := localredis.Dial(server, redisconn.Options{Timeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				return client
			}
		},
		"server": func(t *testing.T) func() redis.UniversalClient {
			s := redistest.Start(t)
			return func() redis.UniversalClient { return patient(t, s.Addr) }
		},
		"cluster": func(t *testing.T) func() redis.UniversalClient {
			addrs := redistest.Cluster(t)
			return func() redis.UniversalClient { return patient(t, addrs...) }
		},
	}
}

// patient returns a client that waits for a busy machine: a message that is not sent in time is not sent again.
func patient(t *testing.T, addrs ...string) redis.UniversalClient {
	t.Helper()
	return redistest.Open(t, redisconn.Options{Addrs: addrs, Timeout: time.Minute})
}

// frozen returns a Directory of its own on the world's store for which no time passes:
// what it cached holds until it is told to forget it.
func frozen(t *testing.T, w *tenantstest.World) *tenants.Directory {
	t.Helper()
	now := time.Now()
	d, err := tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{
		Store: w.Store, Kinds: w.Kinds.Organizations, Keyring: w.Keyring, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func resolves(t *testing.T, d *tenants.Directory, slug string) bool {
	t.Helper()
	_, err := d.Resolve(t.Context(), slug+".localhost")
	if err != nil && !errors.Is(err, tenants.ErrUnknownTenant) {
		t.Fatal(err)
	}
	return err == nil
}

func TestChangeReachesOtherReplicas(t *testing.T) {
	t.Parallel()
	for name, open := range servers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := open(t)
			w := tenantstest.New(t, tenantstest.Options{Local: true})
			w.Tenant(t, "acme")
			w.Tenant(t, "other")
			first, second := frozen(t, w), frozen(t, w)
			sender, hearer := begin(t, client(), first), begin(t, client(), second)
			for _, slug := range []string{"acme", "other"} {
				if !resolves(t, first, slug) || !resolves(t, second, slug) {
					t.Fatalf("%s is unknown", slug)
				}
			}
			reads := w.Engine.Reads.Load()
			if !resolves(t, second, "acme") || w.Engine.Reads.Load() != reads {
				t.Fatal("time passes for the second replica: the test would show nothing")
			}
			if err := first.Suspend(t.Context(), "acme"); err != nil {
				t.Fatal(err)
			}
			until(t, "the other replica knows of the suspension", func() bool { return !resolves(t, second, "acme") })
			runtime.GC() // what is cached of an organization that nobody uses is found by its number, too
			if err := first.Resume(t.Context(), "acme"); err != nil {
				t.Fatal(err)
			}
			until(t, "the other replica knows of its end", func() bool { return resolves(t, second, "acme") })
			until(t, "both messages are counted", func() bool { return sender.Stats().Published == 2 })
			if got := hearer.Stats(); got.Heard != 2 || got.ForgotAll != 1 || got.Malformed != 0 || got.Gaps != 0 {
				t.Errorf("heard: %+v", got)
			}
			if got := sender.Stats(); got.Heard != 0 || got.ForgotAll != 1 || got.Failed != 0 {
				t.Errorf("the sender handled its own messages: %+v", got)
			}
			reads = w.Engine.Reads.Load()
			if !resolves(t, second, "other") || w.Engine.Reads.Load() != reads {
				t.Error("an organization that did not change was forgotten too")
			}
		})
	}
}

func TestChangesMissedDuringAnOutageAreNotTrusted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := tenantstest.New(t, tenantstest.Options{Local: true})
	w.Tenant(t, "acme")
	first, second := frozen(t, w), frozen(t, w)
	client := server.Open(t)
	sender, hearer := begin(t, client, first), begin(t, server.Open(t), second)
	if !resolves(t, second, "acme") {
		t.Fatal("unknown")
	}
	server.Kill()
	until(t, "the loss is noticed", func() bool { return !hearer.Stats().Connected && !sender.Stats().Connected })
	if err := first.Suspend(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	until(t, "the announcement failed", func() bool { return sender.Stats().Failed == 1 })
	if !resolves(t, second, "acme") {
		t.Fatal("the other replica has the change already: the test would show nothing")
	}
	server.Restart()
	until(t, "the missed change holds", func() bool { return !resolves(t, second, "acme") })
	until(t, "the sender is back", func() bool { return sender.Stats().Connected })
	if got := hearer.Stats(); !got.Connected || got.Subscriptions != 2 || got.ForgotAll != 2 {
		t.Errorf("subscribed and forgot not once each: %+v", got)
	}
	// The subscription has a connection of its own: the client may still pause, and what it cannot announce is dropped.
	redistest.Await(t, client)
	defer func() {
		if t.Failed() {
			t.Logf("sender %+v, hearer %+v", sender.Stats(), hearer.Stats())
		}
	}()
	resume := func() {
		if err := first.Resume(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
	}
	failed := sender.Stats().Failed
	resume()
	until(t, "announcements arrive again", func() bool {
		if now := sender.Stats().Failed; now > failed { // it was dropped
			if failed = now; first.Suspend(t.Context(), "acme") == nil {
				resume()
			}
		}
		return resolves(t, second, "acme")
	})
}

// TestSilentRedisConnectionIsDropped covers a connection that is open but silent.
func TestSilentRedisConnectionIsDropped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := &recorder{}
	a := begin(t, server.Open(t), d)
	server.Signal(syscall.SIGSTOP)
	until(t, "the silence is noticed", func() bool { return !a.Stats().Connected })
	server.Signal(syscall.SIGCONT)
	until(t, "the subscription is back", func() bool { return a.Stats().Connected })
	if d.all.Load() < 2 {
		t.Error("changes missed while the connection was silent are still cached")
	}
	subscriptions := a.Stats().Subscriptions
	time.Sleep(500 * time.Millisecond) // several times pingAfter
	if got := a.Stats(); got.Subscriptions != subscriptions {
		t.Errorf("a connection without messages was dropped: %+v", got)
	}
}

func TestGarbageIsIgnoredAndCounted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := &recorder{}
	a := begin(t, server.Open(t), d)
	client := server.Open(t)
	bad := malformed()
	for _, text := range bad {
		if err := client.Publish(t.Context(), Channel(d), text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	good := message{from: instance{1}, number: 1, orgs: []int64{42}}
	if err := client.Publish(t.Context(), Channel(d), good.encode()).Err(); err != nil {
		t.Fatal(err)
	}
	until(t, "the good message is heard", func() bool { return a.Stats().Heard == 1 })
	if got := a.Stats(); got.Malformed != int64(len(bad)) || got.Subscriptions != 1 || d.all.Load() != 1 || !slices.Equal(d.forgotten(), []int64{42}) {
		t.Errorf("%+v, forgot %v and everything %d times", got, d.forgotten(), d.all.Load())
	}
}

func TestFloodBlocksNobodyAndIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	from, to := &recorder{}, &recorder{}
	client := server.Open(t)
	hook := &tenantstest.RedisHook{}
	client.AddHook(hook)
	sender, hearer := begin(t, client, from), begin(t, server.Open(t), to)
	from.changed(1 << 40)
	until(t, "the first change arrives", func() bool { return len(to.forgotten()) == 1 })

	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hook.Break(func(context.Context) error {
		once.Do(func() { close(entered) })
		<-release
		return errors.New("black hole")
	})
	from.changed(1)
	<-entered // the publisher is stuck in Redis from here on
	const organizations, rounds = 3 * maxPending, 5
	for range rounds {
		for org := range int64(organizations) {
			from.changed(org + 2)
		}
	}
	got := sender.Stats()
	if got.Coalesced != rounds*maxPending-maxPending || got.Dropped != rounds*(organizations-maxPending) {
		t.Errorf("a flood while Redis hangs: %+v", got)
	}
	hook.Break(nil)
	close(release)
	until(t, "the rest is sent", func() bool {
		return sender.Stats().Published == 1+maxPending/maxOrganizations
	})
	until(t, "the rest is heard", func() bool { return hearer.Stats().Heard == 1+maxPending/maxOrganizations })
	if got := hearer.Stats(); got.Gaps != 1 || to.all.Load() != 2 {
		t.Errorf("the dropped changes were not noticed: %+v", got)
	}
}

func TestCloseAnnouncesWhatIsLeftAndIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	d := &recorder{}
	hearer := begin(t, server.Open(t), d)
	for org := range int64(20) {
		from := &recorder{}
		a, err := Start(Options{Redis: redisconn.Of(server.Open(t)), Directory: from})
		if err != nil {
			t.Fatal(err)
		}
		from.changed(org + 1)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		from.changed(1000) // after the end: nobody listens, nothing breaks
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "each change is heard", func() bool { return hearer.Stats().Heard == 20 })
	if got := d.forgotten(); slices.Contains(got, 1000) || len(got) != 20 {
		t.Errorf("heard %v", got)
	}
	gone := &recorder{}
	a, err := Start(Options{Redis: redisconn.Of(redistest.Open(t, redisconn.Options{Addrs: []string{redistest.FreeAddr(t)}})), Directory: gone})
	if err != nil {
		t.Fatal(err)
	}
	gone.changed(1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.Close()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("Close waits for a Redis that is not there")
	}
	if got := a.Stats(); got.Connected || got.Published != 0 {
		t.Errorf("without Redis: %+v", got)
	}
}

// held is a hook that holds every message back until it is let go.
type held struct {
	began chan struct{}
	let   chan struct{}
}

func (h held) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h held) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h held) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "publish" {
			return next(ctx, cmd)
		}
		h.began <- struct{}{}
		<-h.let
		return next(ctx, cmd)
	}
}

// TestCloseLetsTheMessageUnderWayEnd checks that Close does not cut off a message, whose changes are no longer pending.
func TestCloseLetsTheMessageUnderWayEnd(t *testing.T) {
	t.Parallel()
	server, err := localredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	open := func() redis.UniversalClient {
		client, err := localredis.Dial(server, redisconn.Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	d := &recorder{}
	hearer := begin(t, open(), d)
	client, from := open(), &recorder{}
	h := held{began: make(chan struct{}), let: make(chan struct{})}
	client.AddHook(h)
	a := begin(t, client, from)
	from.changed(7)
	<-h.began
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	until(t, "Close has begun", func() bool { return !a.Stats().Connected })
	close(h.let)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if got := a.Stats(); got.Published != 1 || got.Failed != 0 {
		t.Errorf("the message under way was cut off: %+v", got)
	}
	until(t, "the change is heard", func() bool { return hearer.Stats().Heard == 1 })
	if got := d.forgotten(); !slices.Equal(got, []int64{7}) {
		t.Errorf("heard %v", got)
	}
}

func TestStartNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	if a, err := Start(Options{Directory: &recorder{}}); err == nil {
		_ = a.Close()
		t.Error("no Redis client was taken")
	}
}
