package redisconn_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"tenantry/crypto/secret"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
	"tenantry/tenants/redisconn"
	"tenantry/tenants/redistest"
	"tenantry/tenants/sessions"
	"tenantry/tenants/tenantstest"
)

// Keys and sessions work on a cluster: no command spans two slots, and all entries of an organization are on one node.
func TestKeysAndSessionsOnACluster(t *testing.T) {
	t.Parallel()
	addrs := redistest.Cluster(t)
	client := redistest.Open(t, redisconn.Options{Addrs: addrs})
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		t.Fatalf("several addresses gave a %T", client)
	}
	w := tenantstest.New(t, tenantstest.Options{Local: true})
	w.Redis, w.RedisHook = client, &tenantstest.RedisHook{}
	client.AddHook(w.RedisHook)
	options := tenantstest.Options{Sessions: sessions.Options{Throttle: sessions.Throttle{Free: 2}}}
	w.Second(t, options)
	const organizations = 12
	for i := range organizations {
		slug := fmt.Sprintf("org%d", i)
		tenant := w.Tenant(t, slug)
		useKeys(t, w, options, slug, tenant)
		useSessions(t, w, slug, tenant)
	}

	var mu sync.Mutex
	nodes, slots := map[string]bool{}, map[string]int64{}
	err := cluster.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		names, err := node.Keys(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			nodes[node.Options().Addr] = true
			slot, err := node.ClusterKeySlot(ctx, name).Result()
			if err != nil {
				return err
			}
			tag, _, tagged := strings.Cut(name, "}")
			if before, seen := slots[tag]; !tagged || seen && before != slot {
				t.Errorf("%s is in slot %d, others of %s in %d", name, slot, tag, before)
			}
			slots[tag] = slot
		}
		return err
	})
	if err != nil || len(nodes) < 2 || len(slots) != organizations+1 { // what counts sign-ins is the installation's
		t.Errorf("%d organizations on %d nodes, want %d on several: %v", len(slots), len(nodes), organizations, err)
	}
}

// answered runs do and fails if Redis was not used or refused a command, because the services would fall back on the
// store.
func answered(t *testing.T, w *tenantstest.World, what string, do func()) {
	t.Helper()
	before := w.RedisHook.Commands.Load()
	w.RedisHook.After(func(cmd redis.Cmder) {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "NOSCRIPT") { // then the script is sent whole
			t.Errorf("%s: %s: %v", what, cmd.Name(), err)
		}
	})
	do()
	w.RedisHook.After(nil)
	if w.RedisHook.Commands.Load() == before {
		t.Errorf("%s: Redis was not asked", what)
	}
}

var somewhere = netip.MustParseAddr("192.0.2.7")

func useKeys(t *testing.T, w *tenantstest.World, o tenantstest.Options, slug string, tenant *tenants.Tenant) {
	t.Helper()
	issued, err := w.Keys.Issue(t.Context(), tenant, keys.NewKey{Name: "robot", Kind: tenants.ServerFull})
	if err != nil {
		t.Fatal(err)
	}
	authenticate := func() error {
		_, err := w.Keys.Authenticate(t.Context(), w.Fresh(t, slug), issued.Token.Reveal(), somewhere)
		return err
	}
	answered(t, w, "a cold key", func() {
		if err := authenticate(); err != nil {
			t.Error(err)
		}
	})
	w.Second(t, o)
	fresh := w.Fresh(t, slug)
	reads := w.Engine.Reads.Load()
	answered(t, w, "a key that Redis holds", func() {
		if _, err := w.Keys.Authenticate(t.Context(), fresh, issued.Token.Reveal(), somewhere); err != nil {
			t.Error(err)
		}
	})
	if w.Engine.Reads.Load() != reads {
		t.Error("a key that Redis holds was read from the store")
	}
	if err := w.Directory.BumpAccess(t.Context(), tenant.Org.OrgID); err != nil {
		t.Fatal(err)
	}
	if err := authenticate(); err != nil {
		t.Fatal(err)
	}
	answered(t, w, "a revocation", func() {
		if _, err := w.Keys.Revoke(t.Context(), tenant, issued.Key.ID, nil); err != nil {
			t.Error(err)
		}
	})
	if err := authenticate(); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("a revoked key: %v", err)
	}
	kept, err := w.Keys.Issue(t.Context(), tenant, keys.NewKey{Name: "kept", Kind: tenants.ServerRead})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Keys.Authenticate(t.Context(), w.Fresh(t, slug), kept.Token.Reveal(), somewhere); err != nil {
		t.Error(err)
	}
}

func useSessions(t *testing.T, w *tenantstest.World, slug string, tenant *tenants.Tenant) {
	t.Helper()
	const password = "correct horse battery"
	u, err := w.People.CreateUser(t.Context(), tenant, identity.NewUser{Name: "Ann", Email: "ann@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	fresh := w.Fresh(t, slug)
	answered(t, w, "attempts to sign in", func() {
		for range 2 {
			if _, err := w.Sessions.SignIn(t.Context(), fresh, u.Email, secret.New(password), somewhere); !errors.Is(err, tenants.ErrDenied) {
				t.Errorf("without a password: %v", err)
			}
		}
		if _, err := w.Sessions.SignIn(t.Context(), fresh, u.Email, secret.New(password), somewhere); !errors.Is(err, sessions.ErrThrottled) {
			t.Errorf("one attempt too many: %v", err)
		}
	})
	start := func() string {
		token, _, err := w.Sessions.Start(t.Context(), w.Fresh(t, slug), u, sessions.From{})
		if err != nil {
			t.Fatal(err)
		}
		return token.Reveal()
	}
	lookup := func(token string) error {
		_, err := w.Sessions.Lookup(t.Context(), w.Fresh(t, slug), token)
		return err
	}
	answered(t, w, "a session", func() {
		token, kept := start(), start()
		if err := lookup(token); err != nil {
			t.Error(err)
		}
		if err := w.Directory.BumpAccess(t.Context(), tenant.Org.OrgID); err != nil {
			t.Error(err)
		}
		if err := lookup(token); err != nil { // written again with the rights of now
			t.Error(err)
		}
		if err := w.Sessions.End(t.Context(), w.Fresh(t, slug), token); err != nil {
			t.Error(err)
		}
		if err := lookup(token); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("an ended session: %v", err)
		}
		if err := lookup(kept); err != nil {
			t.Error(err)
		}
	})
}
