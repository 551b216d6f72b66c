package sessions_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/backends/store"
	"tenantry/crypto/passwords"
	"tenantry/crypto/secret"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/sessions"
	"tenantry/tenants/tenantstest"
)

func names(all []sessions.Session) (ids []string) {
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

func TestPeopleSeeAndEndTheirSessions(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant, other := w.Tenant(t, "acme"), w.Tenant(t, "other")
	ann, bob := user(t, w, tenant, identity.NewUser{}), user(t, w, tenant, identity.NewUser{Email: "bob@example.com"})
	stranger := user(t, w, other, identity.NewUser{})
	from := sessions.From{Address: netip.MustParseAddr("192.0.2.7"), Browser: strings.Repeat("é", 300)}
	first, begun, err := w.Sessions.Start(t.Context(), w.Fresh(t, "acme"), ann, from)
	if err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(time.Minute)
	second, third := start(t, w, "acme", ann), start(t, w, "acme", ann)
	bobs, elsewhere := start(t, w, "acme", bob), start(t, w, "other", stranger)
	list := func(uid int64) []sessions.Session {
		t.Helper()
		all, err := w.Sessions.List(t.Context(), w.Fresh(t, "acme"), uid)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := list(ann.UID)
	if len(all) != 3 || all[2].ID != begun.ID || all[2].Address != from.Address || len(all[2].Browser) != 256 || !all[2].StartedAt.Equal(begun.StartedAt) || all[2].UsedAt.Before(begun.StartedAt.Add(-time.Second)) {
		t.Fatalf("%d sessions: %+v", len(all), all)
	}
	if strings.Contains(first.Reveal(), begun.ID) || len(begun.ID) != 24 {
		t.Errorf("a session is named %q", begun.ID)
	}
	// No session of another person can be ended, under any ID.
	for what, end := range map[string]func() error{
		"another person's":       func() error { return w.Sessions.EndListed(t.Context(), w.Fresh(t, "acme"), bob.UID, begun.ID) },
		"another organization's": func() error { return w.Sessions.EndListed(t.Context(), w.Fresh(t, "other"), stranger.UID, begun.ID) },
		"nobody's":               func() error { return w.Sessions.EndListed(t.Context(), w.Fresh(t, "acme"), ann.UID, "") },
		"a person who is none":   func() error { return w.Sessions.EndAll(t.Context(), w.Fresh(t, "acme"), 999) },
	} {
		if err := end(); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: got %v, want the error store.ErrNotFound", what, err)
		}
	}
	snapshot := w.Entries(t, tenant, "session:")
	if err := w.Sessions.EndListed(t.Context(), w.Fresh(t, "acme"), ann.UID, begun.ID); err != nil {
		t.Fatal(err)
	}
	bringBack(t, w, snapshot) // an older state of Redis
	if ids := names(list(ann.UID)); len(ids) != 2 || slices.Contains(ids, begun.ID) {
		t.Errorf("left: %v", ids)
	}
	if _, err := lookup(t, w, "acme", first.Reveal()); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("the session that was ended: %v", err)
	}
	// Foreign entries in the set are not listed as sessions.
	key := tenant.RedisPrefix() + "sessions:1"
	for _, member := range []string{"", "x", strings.Repeat("0", 64), "session:" + begun.ID} {
		if err := w.Redis.ZAdd(t.Context(), key, redis.Z{Score: 9e15, Member: member}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(list(ann.UID)); n != 2 {
		t.Errorf("%d sessions", n)
	}
	if err := w.Sessions.EndAll(t.Context(), w.Fresh(t, "acme"), ann.UID); err != nil {
		t.Fatal(err)
	}
	bringBack(t, w, snapshot)
	for _, token := range []string{first.Reveal(), second, third} {
		if _, err := lookup(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("after all were ended: %v", err)
		}
	}
	for slug, token := range map[string]string{"acme": bobs, "other": elsewhere} {
		if _, err := lookup(t, w, slug, token); err != nil {
			t.Errorf("the session of another person: %v", err)
		}
	}
	if _, err := lookup(t, w, "acme", start(t, w, "acme", fresh(t, w, ann.UID))); err != nil || len(list(ann.UID)) != 1 {
		t.Errorf("begun afterwards: %v", err)
	}
}

func fresh(t *testing.T, w *tenantstest.World, uid int64) *identity.User {
	t.Helper()
	u, err := w.People.FindUser(t.Context(), w.Fresh(t, "acme"), uid)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// Sessions that are not listed end together with the others.
func TestListedSessionsAreBounded(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	ann := user(t, w, w.Tenant(t, "acme"), identity.NewUser{})
	oldest := start(t, w, "acme", ann)
	for range sessions.MaxListed + 5 {
		w.Clock.Advance(time.Millisecond)
		start(t, w, "acme", ann)
	}
	all, err := w.Sessions.List(t.Context(), w.Fresh(t, "acme"), ann.UID)
	if err != nil || len(all) != sessions.MaxListed {
		t.Fatalf("got %d: %v, want no error and len(all) = %v", len(all), err, sessions.MaxListed)
	}
	if _, err := lookup(t, w, "acme", oldest); err != nil {
		t.Fatal(err)
	}
	if err := w.Sessions.EndAll(t.Context(), w.Fresh(t, "acme"), ann.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := lookup(t, w, "acme", oldest); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("the oldest session is still valid: %v", err)
	}
}

func TestChangePassword(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	ann := user(t, w, w.Tenant(t, "acme"), identity.NewUser{})
	if err := w.People.SetPassword(t.Context(), w.Fresh(t, "acme"), ann.UID, secret.New(password)); err != nil {
		t.Fatal(err)
	}
	ann = fresh(t, w, ann.UID)
	token := start(t, w, "acme", ann)
	change := func(present, next string) error {
		_, err := w.Sessions.ChangePassword(t.Context(), w.Fresh(t, "acme"), ann.UID, secret.New(present), secret.New(next), netip.MustParseAddr("192.0.2.7"))
		return err
	}
	const next = "another long password"
	if err := change("not it at all", next); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("a wrong password: %v", err)
	}
	if err := change(password, "short"); err == nil {
		t.Error("a short password was accepted")
	}
	if _, err := lookup(t, w, "acme", token); err != nil {
		t.Errorf("the session after attempts: %v", err)
	}
	if err := change(password, next); err != nil {
		t.Fatal(err)
	}
	if _, err := lookup(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("the session before: %v", err)
	}
	if err := change(password, next); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("the old password: %v", err)
	}
	var throttled error
	for range 10 {
		throttled = change("guess", next)
	}
	if !errors.Is(throttled, sessions.ErrThrottled) {
		t.Errorf("guessing: %v", throttled)
	}
}

// Of concurrent changes of one password, one succeeds, because the password that the others give is not the present one
// any
// more.
func TestConcurrentPasswordChangesSucceedOnce(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	ann := user(t, w, w.Tenant(t, "acme"), identity.NewUser{})
	if err := w.People.SetPassword(t.Context(), w.Fresh(t, "acme"), ann.UID, secret.New(password)); err != nil {
		t.Fatal(err)
	}
	tenant, shown := w.Fresh(t, "acme"), fresh(t, w, ann.UID)
	results := make(chan error)
	for i := range 4 {
		go func() {
			remote := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
			_, err := w.Sessions.ChangePassword(context.WithoutCancel(t.Context()), tenant, ann.UID, secret.New(password), secret.New(fmt.Sprintf("another long password %d", i)), remote)
			results <- err
		}()
	}
	changed := 0
	for range 4 {
		if err := <-results; err == nil {
			changed++
		} else if !errors.Is(err, tenants.ErrDenied) && !errors.Is(err, passwords.ErrBusy) {
			t.Error(err)
		}
	}
	if changed != 1 {
		t.Errorf("%d changed it", changed)
	}
	if _, err := w.People.ReplacePassword(t.Context(), w.Fresh(t, "acme"), shown, secret.New("yet another password")); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("after it was changed: %v", err)
	}
}

// An ended session of a server whose clock is ahead stays ended when all others are ended later.
func TestEndedSessionsOfAClockAheadStayEnded(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	ann := user(t, w, tenant, identity.NewUser{})
	w.Clock.Advance(time.Minute)
	token := start(t, w, "acme", ann)
	snapshot := w.Entries(t, tenant, "session:")
	if err := w.Sessions.End(t.Context(), w.Fresh(t, "acme"), token); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(-time.Minute)
	if err := w.Sessions.EndAll(t.Context(), w.Fresh(t, "acme"), ann.UID); err != nil {
		t.Fatal(err)
	}
	bringBack(t, w, snapshot)
	if _, err := lookup(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("the session that was ended: %v", err)
	}
}

// An entry of another type under the key of the list prevents neither signing in nor ending sessions.
func TestDamagedListPreventsNothing(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	ann := user(t, w, tenant, identity.NewUser{})
	token := start(t, w, "acme", ann)
	if err := w.Redis.Set(t.Context(), fmt.Sprintf("%ssessions:%d", tenant.RedisPrefix(), ann.UID), "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := w.Sessions.EndAll(t.Context(), w.Fresh(t, "acme"), ann.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := lookup(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("the session that was ended: %v", err)
	}
	start(t, w, "acme", fresh(t, w, ann.UID))
	if all, err := w.Sessions.List(t.Context(), w.Fresh(t, "acme"), ann.UID); err != nil || len(all) != 1 {
		t.Errorf("%d sessions: %v", len(all), err)
	}
}

func TestLinksAreCheckedWithoutBeingUsed(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	made, err := w.People.CreateUser(t.Context(), tenant, identity.NewUser{Name: "Ann", Email: "ann@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	remote := netip.MustParseAddr("192.0.2.7")
	token := made.Invitation.Token.Reveal()
	check := func(slug, token string) error {
		_, err := w.Sessions.CheckInvite(t.Context(), w.Fresh(t, slug), token, remote)
		return err
	}
	for range 200 { // good ones use no attempts up
		if err := check("acme", token); err != nil {
			t.Fatal(err)
		}
	}
	w.Tenant(t, "other")
	if err := check("other", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("elsewhere: %v", err)
	}
	if _, err := w.Sessions.AcceptInvite(t.Context(), w.Fresh(t, "acme"), token, secret.New(password), remote); err != nil {
		t.Fatal(err)
	}
	if err := check("acme", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("after it was used: %v", err)
	}
	var throttled error
	for range 120 {
		throttled = check("acme", "inv_guess")
	}
	if !errors.Is(throttled, sessions.ErrThrottled) {
		t.Errorf("guessing: %v", throttled)
	}
}
