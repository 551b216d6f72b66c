package keys_test

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
	"tenantry/tenants/tenantstest"
)

var somewhere = netip.MustParseAddr("192.0.2.7")

func issue(t testing.TB, w *tenantstest.World, tenant *tenants.Tenant, n keys.NewKey) *keys.Issued {
	t.Helper()
	if n.Name == "" {
		n.Name = "robot"
	}
	if n.Kind == "" {
		n.Kind = tenants.ServerFull
	}
	issued, err := w.Keys.Issue(t.Context(), tenant, n)
	if err != nil {
		t.Fatal(err)
	}
	return issued
}

func authenticate(t testing.TB, w *tenantstest.World, slug, token string) (*tenants.Principal, error) {
	t.Helper()
	return w.Keys.Authenticate(t.Context(), w.Fresh(t, slug), token, somewhere)
}

func TestKeyIsAcceptedByEveryLayer(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	issued := issue(t, w, tenant, keys.NewKey{Permissions: []tenants.Permission{tenants.ManageForms, tenants.Contacts}})
	token := issued.Token.Reveal()

	fromStore, err := authenticate(t, w, "acme", token)
	if err != nil {
		t.Fatal(err)
	}
	want := &tenants.Principal{
		Kind: tenants.ServiceAccount, AccountID: issued.Account.ID, KeyID: issued.Key.ID, KeyKind: tenants.ServerFull,
		Permissions: []tenants.Permission{tenants.Contacts, tenants.ManageForms},
	}
	if diff := cmp.Diff(want, fromStore, cmpopts.IgnoreFields(tenants.Principal{}, "Needs")); diff != "" {
		t.Errorf("from the store (-want +got):\n%s", diff)
	}

	w.Fresh(t, "acme") // the organization's first key for Redis was made, and changed it
	reads, commands := w.Engine.Reads.Load(), w.RedisHook.Commands.Load()
	fromProcess, err := authenticate(t, w, "acme", token)
	if err != nil {
		t.Fatal(err)
	}
	if w.Engine.Reads.Load() != reads || w.RedisHook.Commands.Load() != commands {
		t.Error("a warm key was looked up")
	}
	if diff := cmp.Diff(want, fromProcess, cmpopts.IgnoreFields(tenants.Principal{}, "Needs")); diff != "" {
		t.Errorf("from the process (-want +got):\n%s", diff)
	}

	w.Second(t, tenantstest.Options{})
	tenant = w.Fresh(t, "acme")
	reads = w.Engine.Reads.Load()
	fromRedis, err := w.Keys.Authenticate(t.Context(), tenant, token, somewhere)
	if err != nil {
		t.Fatal(err)
	}
	if n := w.Engine.Reads.Load() - reads; n != 0 {
		t.Errorf("%d reads of the store with Redis warm", n)
	}
	if diff := cmp.Diff(want, fromRedis, cmpopts.IgnoreFields(tenants.Principal{}, "Needs")); diff != "" {
		t.Errorf("from Redis (-want +got):\n%s", diff)
	}
}

func TestBadKeyIsRefusedWithoutLookup(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	token := issue(t, w, tenant, keys.NewKey{}).Token.Reveal()
	tenant = w.Fresh(t, "acme")
	last := "a"
	if strings.HasSuffix(token, last) {
		last = "b"
	}
	reads, commands := w.Engine.Reads.Load(), w.RedisHook.Commands.Load()
	for name, bad := range map[string]string{
		"bad checksum": token[:len(token)-1] + last, "two keys": token + ", " + token, "empty": "", "space": " " + token,
		"line": token + "\n", "bearer": "Bearer " + token, "cut": token[:len(token)-1], "long": strings.Repeat("a", 1<<20),
		"other kind": strings.Replace(token, "server_full", "server_read", 1), "upper case": strings.ToUpper(token), "zero": "\x00",
	} {
		if _, err := w.Keys.Authenticate(t.Context(), tenant, bad, somewhere); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("%s: got %v, want the error tenants.ErrDenied", name, err)
		}
	}
	if w.Engine.Reads.Load() != reads || w.RedisHook.Commands.Load() != commands {
		t.Error("a malformed key was looked up")
	}
}

func TestForeignKeyIsRefused(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	a := w.Tenant(t, "a")
	w.Tenant(t, "b")
	token := issue(t, w, a, keys.NewKey{}).Token.Reveal()
	for range 3 { // cold, then with A's entries warm
		if _, err := authenticate(t, w, "b", token); !errors.Is(err, tenants.ErrDenied) {
			t.Fatalf("A's key on B: %v", err)
		}
		if _, err := authenticate(t, w, "a", token); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRevokedKeyIsRefusedAtOnceAndForGood(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	issued := issue(t, w, tenant, keys.NewKey{})
	token := issued.Token.Reveal()
	if _, err := authenticate(t, w, "acme", token); err != nil {
		t.Fatal(err)
	}
	snapshot := w.Entries(t, tenant, "")
	if len(snapshot) == 0 {
		t.Fatal("Redis holds no entry: the test would show nothing")
	}
	other := w.Keys
	otherDirectory := w.Directory
	w.Second(t, tenantstest.Options{})
	if _, err := authenticate(t, w, "acme", token); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Keys.Revoke(t.Context(), tenant, issued.Key.ID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := authenticate(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("in the process that revoked: %v", err)
	}
	// Redis comes back with what it held before.
	for key, value := range snapshot {
		if err := w.Redis.Set(t.Context(), key, value, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	w.Clock.Advance(time.Second)
	late, err := otherDirectory.Resolve(t.Context(), "acme.localhost")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Authenticate(t.Context(), late, token, somewhere); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("in another process after a second: %v", err)
	}
	w.Clock.Advance(time.Minute)
	if _, err := authenticate(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("revived by what Redis brought back: %v", err)
	}
}

// TestRevocationDuringALookup revokes a key between its reading and its caching.
func TestRevocationDuringALookup(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	issued := issue(t, w, tenant, keys.NewKey{})
	token := issued.Token.Reveal()
	tenant = w.Fresh(t, "acme")
	var done atomic.Bool
	w.Engine.AfterRead(func(collection string) {
		if collection == "accounts" && !done.Swap(true) {
			if _, err := w.Keys.Revoke(t.Context(), tenant, issued.Key.ID, nil); err != nil {
				t.Error(err)
			}
		}
	})
	_, _ = w.Keys.Authenticate(t.Context(), tenant, token, somewhere) // may succeed, because it began before the revocation
	if !done.Load() {
		t.Fatal("nothing was revoked")
	}
	for range 3 {
		if _, err := authenticate(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
			t.Fatalf("afterwards: %v", err)
		}
	}
	w.Second(t, tenantstest.Options{})
	if _, err := authenticate(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("in another process: %v", err)
	}
}

func TestKeysDuringOutages(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	warm := issue(t, w, tenant, keys.NewKey{Name: "warm"}).Token.Reveal()
	cold := issue(t, w, tenant, keys.NewKey{Name: "cold"}).Token.Reveal()
	if _, err := authenticate(t, w, "acme", warm); err != nil {
		t.Fatal(err)
	}
	tenant = w.Fresh(t, "acme")
	auth := func(token string) error {
		_, err := w.Keys.Authenticate(t.Context(), tenant, token, somewhere)
		return err
	}
	w.RedisHook.Break(func(context.Context) error { return errors.New("black hole") })
	w.Engine.SetDown(true)
	if err := auth(cold); !errors.Is(err, tenants.ErrUnavailable) || errors.Is(err, tenants.ErrDenied) {
		t.Errorf("both down, cold: %v", err)
	}
	w.Clock.Advance(45 * time.Second)
	if err := auth(warm); err != nil {
		t.Errorf("both down, warm, within the grace: %v", err)
	}
	w.Clock.Advance(keys.DefaultGrace)
	if err := auth(warm); !errors.Is(err, tenants.ErrUnavailable) {
		t.Errorf("both down, warm, after the grace: %v", err)
	}
	w.Engine.SetDown(false)
	if err := auth(cold); err != nil {
		t.Errorf("Redis down, the store up: %v", err)
	}
	w.RedisHook.Break(nil)
	if err := auth(warm); err != nil {
		t.Errorf("both up again: %v", err)
	}
}

func TestBrokenRedisIsNotTriedEveryTime(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	var tokens []string
	for range 5 {
		tokens = append(tokens, issue(t, w, tenant, keys.NewKey{}).Token.Reveal())
	}
	tenant = w.Fresh(t, "acme")
	w.RedisHook.Break(func(context.Context) error { return errors.New("black hole") })
	before := w.RedisHook.Commands.Load()
	for _, token := range tokens {
		if _, err := w.Keys.Authenticate(t.Context(), tenant, token, somewhere); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.RedisHook.Commands.Load() - before; n != 1 {
		t.Errorf("%d commands to a Redis that fails, want 1", n)
	}
}

func TestNoUsableKeyAtRest(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Embedded: true})
	tenant := w.Tenant(t, "acme")
	token := issue(t, w, tenant, keys.NewKey{}).Token.Reveal()
	if _, err := authenticate(t, w, "acme", token); err != nil {
		t.Fatal(err)
	}
	random := token[strings.LastIndexByte(token[:len(token)-7], '_')+1 : len(token)-7]
	part := random[8:20]
	entries := w.Entries(t, tenant, "")
	if len(entries) == 0 {
		t.Fatal("Redis is empty: the test would show nothing")
	}
	for key, value := range entries {
		if strings.Contains(key+value, part) {
			t.Errorf("Redis holds part of the token under %s", key)
		}
	}
	files, seen := 0, false
	err := filepath.WalkDir(w.Folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		seen = seen || bytes.Contains(content, []byte("robot"))
		if bytes.Contains(content, []byte(part)) {
			t.Errorf("%s holds part of the token", path)
		}
		return nil
	})
	if err != nil || files == 0 || !seen {
		t.Errorf("%d files, the key's name in them: %v, %v", files, seen, err)
	}
}

func TestDeactivatedAccountDisablesItsKeys(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	one := issue(t, w, tenant, keys.NewKey{Name: "one"})
	two := issue(t, w, tenant, keys.NewKey{Name: "two", Account: "one"})
	other := issue(t, w, tenant, keys.NewKey{Name: "other"})
	if two.Account.ID != one.Account.ID {
		t.Fatal("the account was not found by its name")
	}
	for _, issued := range []*keys.Issued{one, two, other} {
		if _, err := authenticate(t, w, "acme", issued.Token.Reveal()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.People.UpdateAccount(t.Context(), tenant, &one.Account, deactivated); err != nil {
		t.Fatal(err)
	}
	for _, issued := range []*keys.Issued{one, two} {
		if _, err := authenticate(t, w, "acme", issued.Token.Reveal()); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("key of a deactivated account: %v", err)
		}
	}
	if _, err := authenticate(t, w, "acme", other.Token.Reveal()); err != nil {
		t.Errorf("key of another account: %v", err)
	}
	var invalid *fault.Error
	if _, err := w.Keys.Issue(t.Context(), tenant, keys.NewKey{Name: "x", Kind: tenants.Browser, Origins: []string{"https://a.example"}, Account: "one"}); !errors.As(err, &invalid) {
		t.Errorf("new key of a deactivated account: %v", err)
	}
}

func TestChangedAccountChangesItsKeys(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	issued := issue(t, w, tenant, keys.NewKey{Permissions: []tenants.Permission{tenants.Contacts}})
	if p, err := authenticate(t, w, "acme", issued.Token.Reveal()); err != nil || !p.May(tenants.Contacts) {
		t.Fatal(p, err)
	}
	_, err := w.People.UpdateAccount(t.Context(), tenant, &issued.Account, func(a *identity.Account) error {
		a.Permissions = []tenants.Permission{tenants.ManageFiles}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := authenticate(t, w, "acme", issued.Token.Reveal())
	if err != nil || p.May(tenants.Contacts) || !p.May(tenants.ManageFiles) {
		t.Errorf("after the change: %+v, %v", p, err)
	}
}

func TestCacheEntryOfAnotherKeyIsRefused(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	mine, theirs := issue(t, w, tenant, keys.NewKey{Name: "mine"}), issue(t, w, tenant, keys.NewKey{Name: "theirs"})
	for _, issued := range []*keys.Issued{mine, theirs} {
		if _, err := authenticate(t, w, "acme", issued.Token.Reveal()); err != nil {
			t.Fatal(err)
		}
	}
	w.Second(t, tenantstest.Options{})
	var foreign string
	for key, value := range w.Entries(t, tenant, "") {
		if strings.HasSuffix(key, theirs.Key.Hash) {
			foreign = value
		}
	}
	if foreign == "" {
		t.Fatal("no entry of the other key")
	}
	swapped := false
	w.RedisHook.After(func(cmd redis.Cmder) {
		if get, ok := cmd.(*redis.StringCmd); ok {
			get.SetVal(foreign)
			get.SetErr(nil)
			swapped = true
		}
	})
	p, err := authenticate(t, w, "acme", mine.Token.Reveal())
	if err != nil || p.KeyID != mine.Key.ID || !swapped {
		t.Errorf("identity %+v, %v (swapped: %v)", p, err, swapped)
	}
}

func TestExpiryIsCheckedOnACacheHit(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	token := issue(t, w, tenant, keys.NewKey{Lifetime: 10 * time.Second}).Token.Reveal()
	tenant = w.Fresh(t, "acme")
	auth := func() error {
		_, err := w.Keys.Authenticate(t.Context(), tenant, token, somewhere)
		return err
	}
	if err := auth(); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(9 * time.Second)
	reads := w.Engine.Reads.Load()
	if err := auth(); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(time.Second)
	if err := auth(); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("expired, cached: %v", err)
	}
	if w.Engine.Reads.Load() != reads {
		t.Error("the key was not cached: the test shows nothing")
	}
}

func TestManyAtOnceKeepTheirIdentity(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	var all []*keys.Issued
	for range 16 {
		all = append(all, issue(t, w, tenant, keys.NewKey{}))
	}
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			for i := range 200 {
				issued := all[(worker+i)%len(all)]
				p, err := authenticate(t, w, "acme", issued.Token.Reveal())
				if err != nil || p.KeyID != issued.Key.ID {
					t.Errorf("key %s: %+v, %v", issued.Key.ID, p, err)
					return
				}
				if worker == 0 && i%40 == 0 {
					if err := w.Directory.BumpAccess(t.Context(), tenant.Org.OrgID); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkAuthenticateWarm(b *testing.B) {
	w := tenantstest.New(b, tenantstest.Options{Local: true})
	tenant := w.Tenant(b, "acme")
	token := issue(b, w, tenant, keys.NewKey{AllowIPs: []string{"192.0.2.0/24"}}).Token.Reveal()
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Keys.Authenticate(ctx, tenant, token, somewhere); err != nil {
			b.Fatal(err)
		}
	}
}
