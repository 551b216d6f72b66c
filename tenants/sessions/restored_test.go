package sessions_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/redistest"
	"tenantry/tenants/sessions"
	"tenantry/tenants/tenantstest"
)

func bringBack(t *testing.T, w *tenantstest.World, what map[string]string) {
	t.Helper()
	for key, value := range what {
		if err := w.Redis.Set(t.Context(), key, value, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEndedSessionStaysEndedInARestoredRedis(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	ann := user(t, w, tenant, identity.NewUser{})
	bob := user(t, w, tenant, identity.NewUser{Email: "bob@example.com"})
	ended, kept, others := start(t, w, "acme", ann), start(t, w, "acme", ann), start(t, w, "acme", bob)
	snapshot := w.Entries(t, tenant, "session:")
	if len(snapshot) != 3 {
		t.Fatalf("Redis holds %d sessions: the test would show nothing", len(snapshot))
	}
	if err := w.Sessions.End(t.Context(), w.Fresh(t, "acme"), ended); err != nil {
		t.Fatal(err)
	}
	for _, where := range []string{"in the process that ended it", "in another process"} {
		for range 2 { // the first look-up may have changed what Redis holds
			bringBack(t, w, snapshot)
			if _, err := lookup(t, w, "acme", ended); !errors.Is(err, tenants.ErrDenied) {
				t.Errorf("%s a session is revived: %v", where, err)
			}
			bringBack(t, w, snapshot) // the look-up has removed it
			if _, err := w.Sessions.Info(t.Context(), w.Fresh(t, "acme"), ended); !errors.Is(err, tenants.ErrDenied) {
				t.Errorf("%s a revived session tells about itself: %v", where, err)
			}
			for _, token := range []string{kept, others} {
				if _, err := lookup(t, w, "acme", token); err != nil {
					t.Errorf("%s a session that nobody ended is over: %v", where, err)
				}
			}
		}
		w.Second(t, tenantstest.Options{})
	}
	if err := w.Sessions.End(t.Context(), w.Fresh(t, "acme"), ended); err != nil {
		t.Errorf("ended twice: %v", err)
	}
	if u, err := w.People.FindUser(t.Context(), tenant, ann.UID); err != nil || len(u.SignedOut) != 1 {
		t.Errorf("%d sign-outs are remembered of one: %v", len(u.SignedOut), err)
	}
}

// TestSessionEndHoldsWhenRedisCannotDelete checks that a session that Redis could not delete is void, because the
// person was told that it ended.
func TestSessionEndHoldsWhenRedisCannotDelete(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	token := start(t, w, "acme", user(t, w, tenant, identity.NewUser{}))
	fresh := w.Fresh(t, "acme")
	w.RedisHook.After(func(c redis.Cmder) { // the look-up is answered, the deletion is not
		if c.Name() == "getex" {
			w.RedisHook.Break(func(context.Context) error { return errors.New("gone") })
		}
	})
	err := w.Sessions.End(t.Context(), fresh, token)
	w.RedisHook.After(nil)
	w.RedisHook.Break(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Entries(t, tenant, "session:")) != 1 {
		t.Fatal("it was deleted: the test shows nothing")
	}
	if _, err := lookup(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("the session lives on: %v", err)
	}
}

// TestSessionEndFailsWithoutTheStore checks that a sign-out that the store did not record is not reported as done.
func TestSessionEndFailsWithoutTheStore(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	token := start(t, w, "acme", user(t, w, tenant, identity.NewUser{}))
	fresh := w.Fresh(t, "acme")
	w.Engine.SetDown(true)
	if err := w.Sessions.End(t.Context(), fresh, token); !errors.Is(err, tenants.ErrUnavailable) {
		t.Errorf("with the store down: %v", err)
	}
	w.Engine.SetDown(false)
	if _, err := lookup(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("what could be done was not: %v", err)
	}
}

func TestSignOutsAreRememberedWithinBounds(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	u := user(t, w, tenant, identity.NewUser{})
	var ended []string
	oldest := start(t, w, "acme", u)
	for range 70 {
		w.Clock.Advance(time.Second)
		ended = append(ended, start(t, w, "acme", u))
	}
	snapshot := w.Entries(t, tenant, "session:")
	w.Clock.Advance(time.Second)
	newest := start(t, w, "acme", u)
	for _, token := range ended {
		if err := w.Sessions.End(t.Context(), w.Fresh(t, "acme"), token); err != nil {
			t.Fatal(err)
		}
	}
	u, err := w.People.FindUser(t.Context(), tenant, u.UID)
	if err != nil || len(u.SignedOut) != 50 || u.SessionsFrom == 0 {
		t.Fatalf("%d are remembered, sessions from %d: %v", len(u.SignedOut), u.SessionsFrom, err)
	}
	bringBack(t, w, snapshot)
	for i, token := range ended {
		if _, err := lookup(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("session %d is revived: %v", i, err)
		}
	}
	if _, err := lookup(t, w, "acme", oldest); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("a session older than some that are forgotten: %v", err)
	}
	if _, err := lookup(t, w, "acme", newest); err != nil {
		t.Errorf("a session younger than all that were ended: %v", err)
	}
	// A server whose clock is behind starts sessions that are not over at once.
	w.Clock.Advance(-time.Hour)
	late := start(t, w, "acme", u)
	if err := w.Directory.BumpAccess(t.Context(), tenant.Org.OrgID); err != nil {
		t.Fatal(err)
	}
	if _, err := lookup(t, w, "acme", late); err != nil {
		t.Errorf("a session begun by a clock that is behind: %v", err)
	}
	w.Clock.Advance(time.Hour + sessions.DefaultAbsolute)
	if err := w.Sessions.End(t.Context(), w.Fresh(t, "acme"), start(t, w, "acme", u)); err != nil {
		t.Fatal(err)
	}
	if u, err = w.People.FindUser(t.Context(), tenant, u.UID); err != nil || len(u.SignedOut) != 1 {
		t.Errorf("%d are remembered after all but one would be over: %v", len(u.SignedOut), err)
	}
}

// A session in use costs one command of Redis and no read of the store.
func TestLookupOfAWarmSessionIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	u := user(t, w, tenant, identity.NewUser{})
	ended, token := start(t, w, "acme", u), start(t, w, "acme", u)
	if err := w.Sessions.End(t.Context(), w.Fresh(t, "acme"), ended); err != nil {
		t.Fatal(err)
	}
	if _, err := lookup(t, w, "acme", token); err != nil { // once anew after the sign-out
		t.Fatal(err)
	}
	fresh := w.Fresh(t, "acme")
	reads, commands := w.Engine.Reads.Load(), w.RedisHook.Commands.Load()
	if _, err := w.Sessions.Lookup(t.Context(), fresh, token); err != nil {
		t.Fatal(err)
	}
	if r, c := w.Engine.Reads.Load()-reads, w.RedisHook.Commands.Load()-commands; r != 0 || c != 1 {
		t.Errorf("%d reads and %d commands, want none and one", r, c)
	}
}

func TestKilledRedisRevivesNoSession(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := tenantstest.New(t, tenantstest.Options{Local: true})
	w.Redis = server.Open(t)
	w.Second(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	u := user(t, w, tenant, identity.NewUser{})
	kept := start(t, w, "acme", u)
	var ended []string
	for round := range 5 {
		token := start(t, w, "acme", u)
		if err := w.Redis.Save(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		if err := w.Sessions.End(t.Context(), w.Fresh(t, "acme"), token); err != nil {
			t.Fatal(err)
		}
		ended = append(ended, token)
		server.Kill()
		server.Restart()
		redistest.Await(t, w.Redis)
		if n := len(w.Entries(t, tenant, "session:")); n < 2 {
			t.Fatalf("the snapshot brought %d sessions back: the test shows nothing", n)
		}
		for i, token := range ended {
			if _, err := lookup(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
				t.Errorf("round %d revives session %d: %v", round, i, err)
			}
		}
		if _, err := lookup(t, w, "acme", kept); err != nil {
			t.Errorf("round %d: a session that nobody ended is over: %v", round, err)
		}
	}
}
