package sessions_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/crypto/secret"
	"tenantry/internal/maintest"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/sessions"
	"tenantry/tenants/tenantstest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

var somewhere = netip.MustParseAddr("192.0.2.7")

const password = "correct horse battery"

func user(t *testing.T, w *tenantstest.World, tenant *tenants.Tenant, n identity.NewUser) *identity.User {
	t.Helper()
	if n.Name == "" {
		n.Name = "Ann"
	}
	if n.Email == "" {
		n.Email = "Ann@Example.com"
	}
	u, err := w.People.CreateUser(t.Context(), tenant, n)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func start(t *testing.T, w *tenantstest.World, slug string, u *identity.User) string {
	t.Helper()
	token, _, err := w.Sessions.Start(t.Context(), w.Fresh(t, slug), u, sessions.From{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Reveal()
}

func lookup(t *testing.T, w *tenantstest.World, slug, token string) (*tenants.Principal, error) {
	t.Helper()
	return w.Sessions.Lookup(t.Context(), w.Fresh(t, slug), token)
}

func TestSessionIsBoundToItsOrganization(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	a := w.Tenant(t, "a")
	w.Tenant(t, "b")
	u := user(t, w, a, identity.NewUser{Roles: []string{identity.AdminRole}})
	token := start(t, w, "a", u)
	p, err := lookup(t, w, "a", token)
	if err != nil || p.UserID != u.UID || !p.IsAdmin() {
		t.Fatalf("own organization: %+v, %v", p, err)
	}
	if _, err := lookup(t, w, "b", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("A's session on B: %v", err)
	}
	if err := w.Sessions.End(t.Context(), w.Fresh(t, "b"), token); err != nil {
		t.Fatal(err)
	}
	if _, err := lookup(t, w, "a", token); err != nil {
		t.Errorf("B ended A's session: %v", err)
	}
	for _, bad := range []string{"", "ses_", token + "x", token[:len(token)-1], strings.ToUpper(token), token + "\n"} {
		if _, err := lookup(t, w, "a", bad); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("token %q: %v", bad, err)
		}
	}
}

func TestOnlyTheHashIsInRedis(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	token := start(t, w, "acme", user(t, w, tenant, identity.NewUser{}))
	found, err := w.Redis.Keys(t.Context(), tenant.RedisPrefix()+"*").Result()
	if err != nil || len(found) != 2 {
		t.Fatalf("got %v, %v, want no error and len(found) = 2", found, err)
	}
	for _, name := range found {
		var value string
		if strings.HasSuffix(name, ":sessions:1") {
			value = strings.Join(w.Redis.ZRange(t.Context(), name, 0, -1).Val(), " ")
		} else {
			value = w.Redis.Get(t.Context(), name).Val()
		}
		if value == "" || strings.Contains(name+value, token[4:20]) || strings.Contains(value, "Example.com") {
			t.Errorf("Redis holds the token or personal values: %s = %s", name, value)
		}
	}
}

func TestWhatEndsASession(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		do   func(*testing.T, *tenantstest.World, *tenants.Tenant, *identity.User, string) error
		gone bool
		may  bool // whether the permission of the role is left
	}{
		"nothing": {func(*testing.T, *tenantstest.World, *tenants.Tenant, *identity.User, string) error { return nil }, false, true},
		"sign-out": {func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, _ *identity.User, token string) error {
			return w.Sessions.End(t.Context(), a, token)
		}, true, false},
		"password": {func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, u *identity.User, _ string) error {
			return w.People.SetPassword(t.Context(), a, u.UID, secret.New(password))
		}, true, false},
		"deactivation": {func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, u *identity.User, _ string) error {
			_, err := w.People.Deactivate(t.Context(), a, u.UID, nil)
			return err
		}, true, false},
		"role drop": {func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, u *identity.User, _ string) error {
			_, err := w.People.UpdateUser(t.Context(), a, u.UID, func(u *identity.User) error { u.Roles = nil; return nil })
			return err
		}, false, false},
		"role change": {func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, _ *identity.User, _ string) error {
			_, err := w.PutRole(t.Context(), a, identity.Role{Name: "editor"})
			return err
		}, false, false},
		"name": {func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, u *identity.User, _ string) error {
			_, err := w.People.UpdateUser(t.Context(), a, u.UID, func(u *identity.User) error { u.Name = "Bea"; return nil })
			return err
		}, false, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := tenantstest.New(t, tenantstest.Options{})
			tenant := w.Tenant(t, "acme")
			if _, err := w.PutRole(t.Context(), tenant, identity.Role{Name: "editor", Permissions: []tenants.Permission{tenants.ManageForms}}); err != nil {
				t.Fatal(err)
			}
			u := user(t, w, tenant, identity.NewUser{Roles: []string{"editor"}})
			token := start(t, w, "acme", u)
			if p, err := lookup(t, w, "acme", token); err != nil || !p.May(tenants.ManageForms) {
				t.Fatal(p, err)
			}
			if err := tt.do(t, w, tenant, u, token); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				p, err := lookup(t, w, "acme", token)
				switch {
				case tt.gone && !errors.Is(err, tenants.ErrDenied):
					t.Errorf("the session lives on: %v", err)
				case !tt.gone && err != nil:
					t.Errorf("the session ended: %v", err)
				case !tt.gone && p.May(tenants.ManageForms) != tt.may:
					t.Errorf("may manage forms: %v, want %v", !tt.may, tt.may)
				}
			}
		})
	}
}

func TestEndDuringALookupIsNotUndone(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	token := start(t, w, "acme", user(t, w, tenant, identity.NewUser{}))
	if err := w.Directory.BumpAccess(t.Context(), tenant.Org.OrgID); err != nil {
		t.Fatal(err)
	}
	fresh := w.Fresh(t, "acme")
	var ended atomic.Bool
	w.Engine.AfterRead(func(collection string) {
		if collection == "users" && !ended.Swap(true) {
			if err := w.Sessions.End(t.Context(), fresh, token); err != nil {
				t.Error(err)
			}
		}
	})
	for range 2 {
		if _, err := w.Sessions.Lookup(t.Context(), fresh, token); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("ended while it was looked up: %v", err)
		}
	}
	if !ended.Load() {
		t.Error("the user was not read again: the test shows nothing")
	}
}

// TestJobOutlivesAnExpiredSessionOnly checks that a job continues with its owner's present rights after its session
// expired, but not after the session was ended.
func TestJobOutlivesAnExpiredSessionOnly(t *testing.T) {
	t.Parallel()
	const idleFor = 3 * time.Second
	w := tenantstest.New(t, tenantstest.Options{Sessions: sessions.Options{Idle: idleFor}})
	tenant := w.Tenant(t, "acme")
	u := user(t, w, tenant, identity.NewUser{Roles: []string{identity.AdminRole}})
	user(t, w, tenant, identity.NewUser{Email: "other@example.com", Roles: []string{identity.AdminRole}})
	rights := func(h sessions.Holder) (*tenants.Principal, error) {
		return w.Sessions.Rights(t.Context(), w.Fresh(t, "acme"), h)
	}
	hold := func(token string) sessions.Holder {
		h, err := w.Sessions.Holder(t.Context(), w.Fresh(t, "acme"), token)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	idle, ended := start(t, w, "acme", u), start(t, w, "acme", u)
	forgotten, over := hold(idle), hold(ended)
	if err := w.Sessions.End(t.Context(), w.Fresh(t, "acme"), ended); err != nil {
		t.Fatal(err)
	}
	if _, err := rights(over); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("a session that was ended: %v", err)
	}
	for begun := time.Now(); ; time.Sleep(idleFor + 100*time.Millisecond) { // each look keeps it from idling out
		if _, err := lookup(t, w, "acme", idle); errors.Is(err, tenants.ErrDenied) {
			break
		} else if time.Since(begun) > time.Minute {
			t.Fatalf("the session does not expire: %v", err)
		}
	}
	if p, err := rights(forgotten); err != nil || !p.IsAdmin() || p.UserID != u.UID {
		t.Errorf("a session that has expired: %+v, %v", p, err)
	}
	if _, err := w.Sessions.Holder(t.Context(), w.Fresh(t, "acme"), idle); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("a job begun in a session that has expired: %v", err)
	}
	if _, err := w.People.UpdateUser(t.Context(), w.Fresh(t, "acme"), u.UID, func(u *identity.User) error { u.Roles = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	if p, err := rights(forgotten); err != nil || p.IsAdmin() {
		t.Errorf("whose role was dropped: %+v, %v", p, err)
	}
	if _, err := w.People.Deactivate(t.Context(), w.Fresh(t, "acme"), u.UID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := rights(forgotten); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("who was deactivated: %v", err)
	}
}

func TestIdleAndAbsoluteLimitsExpire(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Sessions: sessions.Options{Idle: 2 * time.Second, Absolute: 5 * time.Second}})
	tenant := w.Tenant(t, "acme")
	u := user(t, w, tenant, identity.NewUser{})
	idle, used := start(t, w, "acme", u), start(t, w, "acme", u)
	begin := time.Now()
	for last := begin; time.Since(begin) < 3200*time.Millisecond; {
		time.Sleep(250 * time.Millisecond)
		looked := time.Now()
		if _, err := lookup(t, w, "acme", used); err != nil {
			if time.Since(last) > 1500*time.Millisecond {
				t.Skip("the machine was too busy to use the session")
			}
			t.Fatalf("a session in use ended after %v: %v", time.Since(begin), err)
		}
		last = looked
	}
	if _, err := lookup(t, w, "acme", idle); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("idle for over two seconds: %v", err)
	}
	for time.Since(begin) < 5400*time.Millisecond {
		time.Sleep(250 * time.Millisecond)
		_, _ = lookup(t, w, "acme", used)
	}
	if _, err := lookup(t, w, "acme", used); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("over five seconds old: %v", err)
	}
}

func TestOutageIsNotARefusal(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	u := user(t, w, tenant, identity.NewUser{})
	token := start(t, w, "acme", u)
	fresh := w.Fresh(t, "acme")
	w.RedisHook.Break(func(context.Context) error { return errors.New("black hole") })
	if _, err := w.Sessions.Lookup(t.Context(), fresh, token); !errors.Is(err, tenants.ErrUnavailable) || errors.Is(err, tenants.ErrDenied) {
		t.Errorf("look-up: %v", err)
	}
	if _, err := w.Sessions.SignIn(t.Context(), fresh, u.Email, secret.New(password), somewhere); !errors.Is(err, tenants.ErrUnavailable) {
		t.Errorf("sign-in without a counter: %v", err)
	}
	if err := w.Sessions.End(t.Context(), fresh, token); !errors.Is(err, tenants.ErrUnavailable) {
		t.Errorf("sign-out: %v", err)
	}
	w.RedisHook.Break(nil)
	if err := w.Directory.BumpAccess(t.Context(), tenant.Org.OrgID); err != nil {
		t.Fatal(err)
	}
	fresh = w.Fresh(t, "acme")
	w.Engine.SetDown(true)
	if _, err := w.Sessions.Lookup(t.Context(), fresh, token); !errors.Is(err, tenants.ErrUnavailable) || errors.Is(err, tenants.ErrDenied) {
		t.Errorf("the store down, rights changed: %v", err)
	}
	w.Engine.SetDown(false)
	if _, err := w.Sessions.Lookup(t.Context(), fresh, token); err != nil {
		t.Errorf("after the outage: %v", err)
	}
}

// TestKnownAndUnknownAddressesAnswerAlike is not parallel, because it measures work by the memory that it allocates.
func TestKnownAndUnknownAddressesAnswerAlike(t *testing.T) {
	w := tenantstest.New(t, tenantstest.Options{PasswordMemory: 19 << 10, Sessions: sessions.Options{Throttle: sessions.Throttle{Free: 4}}})
	tenant := w.Tenant(t, "acme")
	known := user(t, w, tenant, identity.NewUser{Email: "known@example.com"})
	if err := w.People.SetPassword(t.Context(), tenant, known.UID, secret.New(password)); err != nil {
		t.Fatal(err)
	}
	user(t, w, tenant, identity.NewUser{Email: "invited@example.com"}) // has no password
	gone := user(t, w, tenant, identity.NewUser{Email: "gone@example.com"})
	if err := w.People.SetPassword(t.Context(), tenant, gone.UID, secret.New(password)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.People.Deactivate(t.Context(), tenant, gone.UID, nil); err != nil {
		t.Fatal(err)
	}
	tenant = w.Fresh(t, "acme")
	answers := map[string][]string{}
	for email, pass := range map[string]string{
		"known@example.com": "wrong password", "unknown@example.com": password, "invited@example.com": password, "gone@example.com": password,
	} {
		for i := range 6 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := w.Sessions.SignIn(t.Context(), tenant, email, secret.New(pass), somewhere)
			runtime.ReadMemStats(&after)
			// Argon2id fills 19 MiB, whoever is asked for.
			if filled := after.TotalAlloc - before.TotalAlloc; i < 4 && filled < 19<<20 {
				t.Errorf("%s: no password was checked: %d bytes", email, filled)
			}
			if err == nil {
				t.Fatalf("%s signed in", email)
			}
			answers[email] = append(answers[email], err.Error())
		}
	}
	want := answers["known@example.com"]
	if want[3] == want[4] {
		t.Errorf("no wait: %v", want)
	}
	for email, got := range answers {
		if !slices.Equal(got, want) {
			t.Errorf("%s is answered %v, a known address %v", email, got, want)
		}
	}
	if _, err := w.Sessions.SignIn(t.Context(), tenant, "", secret.New(""), somewhere); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("empty address: %v", err)
	}
}

// TestAttemptsForOneAddressDoNotCountForAnother checks that unknown addresses share no counters. Otherwise attempts for
// one address would reveal whether another one with the same counter is known.
func TestAttemptsForOneAddressDoNotCountForAnother(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Sessions: sessions.Options{Throttle: sessions.Throttle{Free: 2}}})
	tenant := w.Tenant(t, "acme")
	user(t, w, tenant, identity.NewUser{Email: "known@example.com"})
	tenant = w.Fresh(t, "acme")
	attempt := func(email string) error {
		_, err := w.Sessions.SignIn(t.Context(), tenant, email, secret.New("wrong guess here"), somewhere)
		return err
	}
	for _, email := range []string{"known@example.com", "unknown@example.com"} {
		other := sameBeginning(email)
		for range 2 {
			_ = attempt(other)
		}
		if err := attempt(other); !errors.Is(err, sessions.ErrThrottled) {
			t.Errorf("%s: %v, want it throttled", other, err)
		}
		if err := attempt(email); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("%s after attempts for %s: %v", email, other, err)
		}
	}
	found, err := w.Redis.Keys(t.Context(), w.Directory.RedisPrefix()+"signin:*").Result()
	if err != nil || len(found) != 9 { // one of the network address, two of each e-mail address
		t.Fatalf("got %v, %v, want no error and len(found) = 9", found, err)
	}
	shapes := map[int]int{}
	for _, key := range found {
		if strings.Contains(key, "example") {
			t.Errorf("Redis holds an address: %s", key)
		}
		shapes[len(key)]++
	}
	if len(shapes) != 3 { // that of the network address, and two of all e-mail addresses
		t.Errorf("known and unknown addresses are counted under different names: %q", found)
	}
}

// sameBeginning returns another address whose SHA-256 begins with the same two bytes.
func sameBeginning(email string) string {
	want := sha256.Sum256([]byte(email))
	for i := 0; ; i++ {
		other := fmt.Sprintf("z%d@attacker.example", i)
		if sum := sha256.Sum256([]byte(other)); sum[0] == want[0] && sum[1] == want[1] {
			return other
		}
	}
}

func TestEverySignInHasItsOwnToken(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	u := user(t, w, w.Tenant(t, "acme"), identity.NewUser{})
	if first := start(t, w, "acme", u); first == start(t, w, "acme", u) {
		t.Error("two sessions have one token")
	}
}

// TestRightsAreReadAgainWithoutAnAnnouncement covers a process that stopped between a change of rights and its
// announcement. If the user cannot be read again, the session continues.
func TestRightsAreReadAgainWithoutAnAnnouncement(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Sessions: sessions.Options{Idle: time.Hour}})
	tenant := w.Tenant(t, "acme")
	u := user(t, w, tenant, identity.NewUser{Permissions: []tenants.Permission{tenants.Contacts}})
	token := start(t, w, "acme", u)
	if _, err := w.Kinds.People.Users.In(tenant.People()).Update(t.Context(), u.ID, func(u *identity.User) error {
		u.Permissions = nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	may := func() bool {
		p, err := lookup(t, w, "acme", token)
		if err != nil {
			t.Fatal(err)
		}
		return p.May(tenants.Contacts)
	}
	if !may() {
		t.Error("it was looked at without need")
	}
	w.Clock.Advance(6 * time.Minute)
	if may() {
		t.Error("six minutes later the person has what was taken away")
	}
}
