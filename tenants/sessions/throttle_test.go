package sessions_test

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/crypto/secret"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/sessions"
	"tenantry/tenants/tenantstest"
)

// door signs one person in.
type door struct {
	*tenantstest.World
	tenant *tenants.Tenant
	email  string
}

func newDoor(t *testing.T, throttle sessions.Throttle) *door {
	t.Helper()
	w := tenantstest.New(t, tenantstest.Options{Sessions: sessions.Options{Throttle: throttle}})
	tenant := w.Tenant(t, "acme")
	u := user(t, w, tenant, identity.NewUser{Roles: []string{identity.AdminRole}})
	if err := w.People.SetPassword(t.Context(), tenant, u.UID, secret.New(password)); err != nil {
		t.Fatal(err)
	}
	return &door{w, w.Fresh(t, "acme"), u.Email}
}

func (d *door) try(t *testing.T, from, pass string) error {
	_, err := d.Sessions.SignIn(t.Context(), d.tenant, d.email, secret.New(pass), netip.MustParseAddr(from))
	return err
}

func (d *door) wrong(t *testing.T, from string) {
	t.Helper()
	if err := d.try(t, from, "a wrong password"); !errors.Is(err, tenants.ErrDenied) {
		t.Fatalf("from %s: %v, want a refusal", from, err)
	}
}

// waits checks that the attempt is throttled with a wait in that range, even with the right password.
func (d *door) waits(t *testing.T, from, pass string, least, most time.Duration) {
	t.Helper()
	var e *sessions.ThrottledError
	if err := d.try(t, from, pass); !errors.As(err, &e) || e.RetryAfter < least || e.RetryAfter > most {
		t.Fatalf("from %s: %v %+v, want a wait of %s to %s", from, err, e, least, most)
	}
}

func (d *door) opens(t *testing.T, from string) {
	t.Helper()
	if err := d.try(t, from, password); err != nil {
		t.Fatalf("from %s with the right password: %v", from, err)
	}
}

func TestParallelAttemptsCannotPassTheThrottle(t *testing.T) {
	t.Parallel()
	d := newDoor(t, sessions.Throttle{})
	var wrong, throttled atomic.Int64
	var wg sync.WaitGroup
	now := d.Clock.Freeze()
	for i := range 50 {
		email := []string{"ann@example.com", "ANN@example.com", " Ann@EXAMPLE.com "}[i%3] // other spellings are the same person
		wg.Go(func() {
			_, err := d.Sessions.SignIn(t.Context(), d.tenant, email, secret.New("wrong guess "+email), somewhere)
			for errors.Is(err, tenants.ErrUnavailable) { // Redis within a busy process; it may have counted
				_, err = d.Sessions.SignIn(t.Context(), d.tenant, email, secret.New("wrong guess "+email), somewhere)
			}
			switch {
			case errors.Is(err, tenants.ErrDenied):
				wrong.Add(1)
			case errors.Is(err, sessions.ErrThrottled):
				throttled.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if wrong.Load() < 1 || wrong.Load() > 5 || wrong.Load()+throttled.Load() != 50 {
		t.Errorf("at %s %d passwords were looked at and %d attempts turned away, want at most 5 and the others", now,
			wrong.Load(), throttled.Load())
	}
}

// TestWaitsGrowAndEnd checks that each wrong password doubles the wait, up to a minute, that attempts during a wait do
// not prolong it, and that the right password resets it.
func TestWaitsGrowAndEnd(t *testing.T) {
	t.Parallel()
	d := newDoor(t, sessions.Throttle{})
	d.Clock.Freeze()
	const here = "192.0.2.1"
	for range 5 {
		d.wrong(t, here)
	}
	for _, seconds := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		for range 3 {
			d.waits(t, here, password, seconds*time.Second, seconds*time.Second)
		}
		d.Clock.Advance(seconds * time.Second)
		d.wrong(t, here)
	}
	d.waits(t, here, password, time.Minute, time.Minute)
	d.Clock.Advance(time.Minute)
	d.opens(t, here)
	for range 5 {
		d.wrong(t, here)
	}
	d.Clock.Advance(-time.Hour) // a clock that is set back
	d.waits(t, here, password, time.Second, time.Minute)
}

// TestOtherAddressesCannotLockAPersonOut covers one address with many attempts, and ten addresses with one each.
func TestOtherAddressesCannotLockAPersonOut(t *testing.T) {
	t.Parallel()
	d := newDoor(t, sessions.Throttle{})
	d.Clock.Freeze()
	for range 5 {
		d.wrong(t, "198.51.100.1")
	}
	for range 45 {
		d.waits(t, "198.51.100.1", password, time.Second, time.Minute)
	}
	d.opens(t, "192.0.2.1")
}

func TestTenWrongPasswordsFromTenAddressesLockNoAdminOut(t *testing.T) {
	t.Parallel()
	d := newDoor(t, sessions.Throttle{})
	d.Clock.Freeze()
	for round := range 2 {
		for i := range 10 {
			d.wrong(t, fmt.Sprintf("198.51.100.%d", i))
		}
		d.opens(t, fmt.Sprintf("192.0.2.%d", round)) // where the person never was
	}
}

// TestUncheckedAttemptsAreNotCounted checks that attempts during an outage cause no wait afterwards, while earlier
// wrong ones still count.
func TestUncheckedAttemptsAreNotCounted(t *testing.T) {
	t.Parallel()
	d := newDoor(t, sessions.Throttle{PerAddress: 10, PerPerson: 10})
	d.Clock.Freeze()
	for range 4 {
		d.wrong(t, "198.51.100.1")
	}
	d.Engine.SetDown(true)
	for range 20 {
		if err := d.try(t, "198.51.100.1", password); !errors.Is(err, tenants.ErrUnavailable) {
			t.Fatalf("while the store is down: %v", err)
		}
	}
	d.Engine.SetDown(false)
	d.wrong(t, "198.51.100.1")
	d.waits(t, "198.51.100.1", password, time.Second, time.Second)
	d.Clock.Advance(time.Second)
	d.opens(t, "198.51.100.1")
}

// TestGuessesFromManyAddressesAreLimited checks that guesses from many addresses are limited, and do not delay a
// familiar address.
func TestGuessesFromManyAddressesAreLimited(t *testing.T) {
	t.Parallel()
	d := newDoor(t, sessions.Throttle{PerPerson: 10})
	d.Clock.Freeze()
	d.opens(t, "192.0.2.1")
	d.opens(t, "2001:db8:1::1")
	for i := range 10 {
		d.wrong(t, fmt.Sprintf("198.51.100.%d", i))
	}
	for i := range 10 {
		d.waits(t, fmt.Sprintf("203.0.113.%d", i), password, 30*time.Second, 30*time.Second)
	}
	for range 3 {
		d.opens(t, "192.0.2.1")
		d.opens(t, "2001:db8:1::2") // the same subscriber
	}
	d.Clock.Advance(30 * time.Second)
	d.wrong(t, "203.0.113.1")
	d.waits(t, "203.0.113.2", password, 30*time.Second, 30*time.Second)
	d.Clock.Advance(30 * time.Second)
	d.opens(t, "203.0.113.2")
	d.opens(t, "203.0.113.2")
}

func TestSignInsAreThrottledByAddress(t *testing.T) {
	t.Parallel()
	d := newDoor(t, sessions.Throttle{PerAddress: 3})
	d.Clock.Freeze()
	other := d.Tenant(t, "other")
	for range 5 { // successes do not count
		d.opens(t, "2001:db8::5")
	}
	_, err := d.Sessions.SignIn(t.Context(), other, "x@example.com", secret.New("wrong"), netip.MustParseAddr("2001:db8::1"))
	if !errors.Is(err, tenants.ErrDenied) {
		t.Fatal(err)
	}
	_, err = d.Sessions.SignIn(t.Context(), d.Directory.Anonymous("none.localhost"), "x@example.com", secret.New("wrong"), netip.MustParseAddr("2001:db8::2"))
	if !errors.Is(err, tenants.ErrDenied) {
		t.Fatal(err)
	}
	// A guessed invitation counts as well.
	_, err = d.Sessions.AcceptInvite(t.Context(), d.tenant, "inv_x", secret.New(password), netip.MustParseAddr("2001:db8::3"))
	if !errors.Is(err, tenants.ErrDenied) {
		t.Fatal(err)
	}
	d.waits(t, "2001:db8::9", password, 9*time.Second, 9*time.Second)
	for range 3 {
		_, err = d.Sessions.AcceptInvite(t.Context(), d.tenant, "inv_x", secret.New(password), netip.MustParseAddr("2001:db8::3"))
		if !errors.Is(err, sessions.ErrThrottled) {
			t.Errorf("another guess of an invitation: %v", err)
		}
	}
	d.opens(t, "2001:db8:0:1::9")
	d.Clock.Advance(9 * time.Second)
	d.opens(t, "2001:db8::9")
}

// Foreign values in Redis neither prolong a wait nor make a sign-in fail.
func TestThrottleSurvivesGarbage(t *testing.T) {
	t.Parallel()
	d := newDoor(t, sessions.Throttle{})
	d.wrong(t, "192.0.2.1")
	names, err := d.Redis.Keys(t.Context(), d.Directory.RedisPrefix()+"signin:*").Result()
	if err != nil || len(names) != 3 {
		t.Fatalf("got %v, %v, want no error and len(names) = 3", names, err)
	}
	for _, name := range names {
		if err := d.Redis.Set(t.Context(), name, "garbage", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
	}
	d.opens(t, "192.0.2.1")
}

// TestCallersWithoutAnAddressAreNeverFamiliar checks that a sign-in without an address makes no other caller without an
// address familiar.
func TestCallersWithoutAnAddressAreNeverFamiliar(t *testing.T) {
	t.Parallel()
	d := newDoor(t, sessions.Throttle{PerPerson: 3})
	d.Clock.Freeze()
	try := func(pass string) error {
		_, err := d.Sessions.SignIn(t.Context(), d.tenant, d.email, secret.New(pass), netip.Addr{})
		return err
	}
	if err := try(password); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := try("a wrong password"); !errors.Is(err, tenants.ErrDenied) {
			t.Fatal(err)
		}
	}
	if err := try("a wrong password"); !errors.Is(err, sessions.ErrThrottled) {
		t.Errorf("a fourth attempt: %v", err)
	}
}
