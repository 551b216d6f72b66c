// Package tenantstest gives tests organizations, people, keys and sessions on the real embedded store and an in-process
// Redis, both of which can be made to fail.
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

// RedisURL names the variable with the address of a Redis server to test against, for example redis://127.0.0.1:6379/0.
// Without it an in-process Redis is used.
const RedisURL = "TENANTRY_TEST_REDIS_URL"

// Options configure a World.
type Options struct {
	BaseDomain string
	// Local uses the in-process Redis even if RedisURL is set. Embedded uses SQLite even if tests run on MongoDB.
	Local    bool
	Embedded bool
	Sessions sessions.Options // except Directory, People, Redis and Now
	Grace    time.Duration    // of keys and directory
	Leases   store.Leases     // zero: the default
	// Control are additional kinds of the control workspace.
	Control []*store.Spec
	// PasswordMemory is the memory for hashing a password in KiB; 0: little, which saves time.
	PasswordMemory uint32
}

// World is the environment of one test: the services of package tenants and the packages below it.
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
	control := slices.Concat(w.Kinds.Organizations.Specs(), record.Specs(w.Kinds.People.Kept()), w.Kinds.Keys.Specs(),
		more)
	other := enginetest.OpenSQLite(t, t.TempDir())
	w.Store = store.New(store.Options{
		Engine: w.Engine, Backends: map[string]driver.Engine{OtherBackend: other},
		Control: control, Tenant: []*store.Spec{w.Kinds.Things.Spec()}, Leases: leases,
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
		// Tests share this Redis, so each begins its organizations at a random number.
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

// Second replaces the services by new ones on the same store and Redis, like those of another process with empty
// caches.
func (w *World) Second(t testing.TB, o Options) {
	t.Helper()
	hasher, err := passwords.New(passwords.Options{Memory: cmp.Or(o.PasswordMemory, 64)})
	if err != nil {
		t.Fatal(err)
	}
	w.Directory, err = tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{
		Store: w.Store, Kinds: w.Kinds.Organizations, Keyring: w.Keyring,
		BaseDomain: o.BaseDomain, Now: w.Clock.Now, Grace: o.Grace,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.People = identity.NewService(identity.Options{Directory: w.Directory, Kinds: w.Kinds.People, Passwords: hasher,
		Now: w.Clock.Now})
	w.Keys = keys.NewService(keys.Options{
		Directory: w.Directory, Kinds: w.Kinds.Keys, People: w.People,
		Redis: redisconn.Of(w.Redis), Now: w.Clock.Now, Grace: o.Grace,
	})
	o.Sessions.Directory, o.Sessions.People = w.Directory, w.People
	o.Sessions.Redis, o.Sessions.Now = redisconn.Of(w.Redis), w.Clock.Now
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

// Fresh resolves the organization like a request that arrives now.
func (w *World) Fresh(t testing.TB, slug string) *tenants.Tenant {
	t.Helper()
	tenant, err := w.Directory.Resolve(t.Context(), slug+".localhost:8080")
	if err != nil {
		t.Fatal(err)
	}
	return tenant
}

// Clock is a clock that a test can stop and advance.
type Clock struct {
	ahead  atomic.Int64
	frozen atomic.Pointer[time.Time]
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if at := c.frozen.Load(); at != nil {
		now = *at
	}
	return now.Add(time.Duration(c.ahead.Load()))
}

// Freeze stops the clock, which only Advance then moves, and returns its time.
func (c *Clock) Freeze() time.Time {
	now := time.Now().Truncate(time.Millisecond)
	c.frozen.Store(&now)
	return c.Now()
}

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

// RedisHook counts commands and makes them fail on demand.
type RedisHook struct {
	Commands atomic.Int64
	mu       sync.Mutex
	fault    func(context.Context) error
	after    func(redis.Cmder)
}

// Break makes every command return the error of fault. Nil ends that.
func (h *RedisHook) Break(fault func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = fault
}

// After registers fn to be called with every command that was answered. Nil removes it.
func (h *RedisHook) After(fn func(redis.Cmder)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.after = fn
}

func (h *RedisHook) hooks() (func(context.Context) error, func(redis.Cmder)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fault, h.after
}

// DialHook implements redis.Hook.
func (h *RedisHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h *RedisHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.Commands.Add(1)
		fault, after := h.hooks()
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

// ProcessPipelineHook implements redis.Hook.
func (h *RedisHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.Commands.Add(int64(len(cmds)))
		if fault, _ := h.hooks(); fault != nil {
			return fault(ctx)
		}
		return next(ctx, cmds)
	}
}

// Entries returns the entries of an organization in Redis under a prefix, such as "session:".
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

// PutRole creates or changes the role with that name.
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
