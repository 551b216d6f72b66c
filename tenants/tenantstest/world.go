// Package tenantstest gives tests organizations, people, keys and sessions on the real
// embedded store and an in-process Redis, with switches to break both.
package tenantstest

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/backends/driver"
	"tenantry/backends/enginetest"
	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/crypto/passwords"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
	"tenantry/tenants/localredis"
	"tenantry/tenants/redisconn"
	"tenantry/tenants/sessions"
)

// RedisURL names the variable with the address of a Redis to test against, for example
// redis://127.0.0.1:6379/0. Without it an in-process Redis is used.
const RedisURL = "TENANTRY_TEST_REDIS_URL"

// Options vary a World.
type Options struct {
	BaseDomain string
	// Local takes the in-process Redis even where RedisURL is set, Embedded SQLite even where
	// there is a MongoDB.
	Local    bool
	Embedded bool
	Sessions sessions.Options // but for People and Redis
	Grace    time.Duration    // of keys and directory
	Leases   store.Leases     // zero: the default
	// Control are kinds that the control workspace holds besides.
	Control []*store.Spec
	// PasswordMemory is that of hashing a password in KiB; 0: as little as spares tests time.
	PasswordMemory uint32
}

// World is everything package tenants and those below it need, for one test.
type World struct {
	Folder      string // of the store's files
	Keyring     *keyring.Keyring
	KeyringFile string
	Engine      *Engine
	Store       *store.Store
	Kinds       Kinds
	Directory   *tenants.Directory
	People      *identity.Service
	Keys        *keys.Service
	Sessions    *sessions.Service
	Redis       redis.UniversalClient
	RedisHook   *RedisHook
	Clock       *Clock
}

// Kinds are the declared records.
type Kinds struct {
	Organizations tenants.Kinds
	People        identity.Kinds
	Keys          keys.Kinds
	Things        *store.Kind[Thing]
}

// Thing is a record of an organization.
type Thing struct {
	store.Meta
	Name string `json:"name"`
}

// OtherBackend is the name of a second backend, besides store.DefaultBackend.
const OtherBackend = "other"

// New returns a World that ends with the test.
func New(t testing.TB, o Options) *World {
	t.Helper()
	w := &World{Folder: t.TempDir(), Clock: &Clock{}}
	var err error
	w.KeyringFile = filepath.Join(t.TempDir(), "keyring")
	if w.Keyring, err = keyring.Create(w.KeyringFile); err != nil {
		t.Fatal(err)
	}
	w.Engine = &Engine{Engine: enginetest.OpenSQLite(t, w.Folder)}
	if enginetest.OnMongo() && !o.Embedded {
		w.Engine.Engine = enginetest.Open(t)
	}
	w.declare(t, o.Leases, o.Control)
	w.openRedis(t, o.Local)
	w.Second(t, o)
	return w
}

func (w *World) declare(t testing.TB, leases store.Leases, more []*store.Spec) {
	t.Helper()
	w.Kinds.Organizations, w.Kinds.People, w.Kinds.Keys = tenants.NewKinds(), identity.NewKinds(), keys.NewKinds()
	w.Kinds.Things = store.Must[Thing](store.Spec{Name: "things"})
	control := slices.Concat(w.Kinds.Organizations.Specs(), record.Specs(w.Kinds.People.Kept()), w.Kinds.Keys.Specs(), more)
	other := enginetest.OpenSQLite(t, t.TempDir())
	w.Store = store.New(store.Options{
		Engine: w.Engine, Backends: map[string]driver.Engine{OtherBackend: other}, Control: control, Tenant: []*store.Spec{w.Kinds.Things.Spec()}, Leases: leases,
	})
}

func (w *World) openRedis(t testing.TB, local bool) {
	t.Helper()
	if url := os.Getenv(RedisURL); url != "" && !local {
		options, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		options.ContextTimeoutEnabled = true
		w.Redis = redis.NewClient(options)
		t.Cleanup(func() { _ = w.Redis.Close() })
		// Tests share this Redis: let no two use the same organization.
		control, err := w.Store.Control(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := control.Counter(t.Context(), "organizations", 0, 1+rand.Int64N(1<<40)); err != nil {
			t.Fatal(err)
		}
	} else {
		server, err := localredis.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		})
		if w.Redis, err = localredis.Dial(server, redisconn.Options{Timeout: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	w.RedisHook = &RedisHook{}
	w.Redis.AddHook(w.RedisHook)
}

// Second replaces the services by new ones on the same store and Redis, as another
// process would have them, with nothing cached.
func (w *World) Second(t testing.TB, o Options) {
	t.Helper()
	hasher, err := passwords.New(passwords.Options{Memory: cmp.Or(o.PasswordMemory, 64)})
	if err != nil {
		t.Fatal(err)
	}
	w.Directory, err = tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{
		Store: w.Store, Kinds: w.Kinds.Organizations, Keyring: w.Keyring, BaseDomain: o.BaseDomain, Now: w.Clock.Now, Grace: o.Grace,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.People = identity.NewService(identity.Options{Directory: w.Directory, Kinds: w.Kinds.People, Passwords: hasher, Now: w.Clock.Now})
	w.Keys = keys.NewService(keys.Options{
		Directory: w.Directory, Kinds: w.Kinds.Keys, People: w.People, Redis: redisconn.Of(w.Redis), Now: w.Clock.Now, Grace: o.Grace,
	})
	o.Sessions.Directory, o.Sessions.People, o.Sessions.Redis, o.Sessions.Now = w.Directory, w.People, redisconn.Of(w.Redis), w.Clock.Now
	w.Sessions = sessions.NewService(o.Sessions)
}

// Tenant creates an organization.
func (w *World) Tenant(t testing.TB, slug string, features ...string) *tenants.Tenant {
	t.Helper()
	n := tenants.NewOrganization{Slug: slug, Name: slug, Features: map[string]bool{}}
	for _, f := range features {
		n.Features[f] = true
	}
	tenant, err := w.Directory.Create(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return tenant
}

// Fresh returns the organization as a request that arrives now would have it.
func (w *World) Fresh(t testing.TB, slug string) *tenants.Tenant {
	t.Helper()
	tenant, err := w.Directory.Resolve(t.Context(), slug+".localhost:8080")
	if err != nil {
		t.Fatal(err)
	}
	return tenant
}

// Clock is the time, which a test can move.
type Clock struct {
	ahead  atomic.Int64
	frozen atomic.Pointer[time.Time]
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if at := c.frozen.Load(); at != nil {
		now = *at
	}
	return now.Add(time.Duration(c.ahead.Load()))
}

// Freeze lets no time pass but what Advance adds, and returns what it is.
func (c *Clock) Freeze() time.Time {
	now := time.Now().Truncate(time.Millisecond)
	c.frozen.Store(&now)
	return c.Now()
}

// Advance moves the time.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

// RedisHook counts commands and makes Redis fail.
type RedisHook struct {
	Commands atomic.Int64
	mu       sync.Mutex
	fault    func(context.Context) error
	swap     func(redis.Cmder)
}

// Break makes every command return what fault returns; nil mends it.
func (h *RedisHook) Break(fault func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = fault
}

// After calls fn with every command that was answered; nil ends it.
func (h *RedisHook) After(fn func(redis.Cmder)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.swap = fn
}

func (h *RedisHook) set() (func(context.Context) error, func(redis.Cmder)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fault, h.swap
}

// DialHook does nothing.
func (h *RedisHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts a command.
func (h *RedisHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.Commands.Add(1)
		fault, after := h.set()
		if fault != nil {
			err := fault(ctx)
			cmd.SetErr(err)
			return err
		}
		err := next(ctx, cmd)
		if after != nil {
			after(cmd)
		}
		return err
	}
}

// ProcessPipelineHook counts the commands of a pipeline.
func (h *RedisHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.Commands.Add(int64(len(cmds)))
		if fault, _ := h.set(); fault != nil {
			return fault(ctx)
		}
		return next(ctx, cmds)
	}
}

// Entries returns what Redis holds of an organization under a prefix, such as "session:".
func (w *World) Entries(t testing.TB, tenant *tenants.Tenant, prefix string) map[string]string {
	t.Helper()
	out := map[string]string{}
	iter := w.Redis.Scan(t.Context(), 0, tenant.RedisPrefix()+prefix+"*", 1000).Iterator()
	for iter.Next(t.Context()) {
		value, err := w.Redis.Get(t.Context(), iter.Val()).Result()
		if err != nil {
			t.Fatal(err)
		}
		out[iter.Val()] = value
	}
	if err := iter.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// PutRole makes or changes the role of that name.
func (w *World) PutRole(ctx context.Context, t *tenants.Tenant, r identity.Role) (*identity.Role, error) {
	made, err := w.People.CreateRole(ctx, t, r)
	var taken *store.DuplicateError
	if !errors.As(err, &taken) {
		return made, err
	}
	have, err := w.People.Role(ctx, t, r.Name)
	if err != nil {
		return nil, err
	}
	return w.People.UpdateRole(ctx, t, have, func(have *identity.Role) error {
		have.Label, have.Permissions = r.Label, r.Permissions
		return nil
	})
}
