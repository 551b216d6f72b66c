package sessions_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/tenantstest"
)

// TestForgedOrMovedSessionsAreRefused writes to Redis directly: a session is accepted only as its organization sealed
// it, under its own name.
func TestForgedOrMovedSessionsAreRefused(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	a, b := w.Tenant(t, "a"), w.Tenant(t, "b")
	ann := user(t, w, a, identity.NewUser{})
	boss := user(t, w, a, identity.NewUser{Email: "boss@example.com", Roles: []string{identity.AdminRole}})
	foreign := user(t, w, b, identity.NewUser{Roles: []string{identity.AdminRole}})
	mine, theirs, elsewhere := start(t, w, "a", ann), start(t, w, "a", boss), start(t, w, "b", foreign)
	find := func(tenant *tenants.Tenant, admin bool) (name, value string) {
		for name, value = range w.Entries(t, tenant, "session:") {
			if strings.Contains(value, `"a":true`) == admin {
				return name, value
			}
		}
		t.Fatal("no such session in Redis")
		return
	}
	name, value := find(a, false)
	_, admin := find(a, true)
	_, other := find(b, true)
	parts := strings.SplitN(value, ".", 3)
	raised := strings.Replace(parts[2], `"a":false`, `"a":true`, 1)
	if raised == parts[2] {
		t.Fatalf("the session does not say who is an admin: %s", parts[2])
	}
	for what, forged := range map[string]string{
		"made up, an admin":             raised,
		"altered, an admin":             parts[0] + "." + parts[1] + "." + raised,
		"without a seal":                parts[2],
		"an empty seal":                 "1.." + raised,
		"another version":               "2." + parts[1] + "." + parts[2],
		"no version":                    "." + parts[1] + "." + raised,
		"the admin's under this name":   admin,
		"another organization's":        other,
		"the older form":                `{"v":1,"o":1,"h":"` + name[strings.LastIndexByte(name, ':')+1:] + `","r":1,"u":1,"w":0,"b":0,"e":99999999999999,"a":true,"p":[],"l":false,"s":[]}`,
		"prolonged beyond what it says": parts[0] + "." + parts[1] + "." + strings.Replace(parts[2], `"e":1`, `"e":2`, 1),
	} {
		if err := w.Redis.Set(t.Context(), name, forged, time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		if p, err := lookup(t, w, "a", mine); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("%s: got %+v, %v, want the error tenants.ErrDenied", what, p, err)
		}
	}
	if err := w.Redis.Set(t.Context(), name, value, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	for _, session := range [][2]string{{"a", mine}, {"a", theirs}, {"b", elsewhere}} {
		if _, err := lookup(t, w, session[0], session[1]); err != nil {
			t.Errorf("the sessions themselves: %v", err)
		}
	}
}

// TestSealsFollowTheKeyring checks that rotating the keyring ends no session, that a session sealed with keys that
// cannot be opened is refused, and that an outage refuses no session.
func TestSealsFollowTheKeyring(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	token := start(t, w, "acme", user(t, w, tenant, identity.NewUser{}))
	holds := func(what string) {
		t.Helper()
		w.Clock.Advance(2 * time.Minute) // what was opened is opened again
		if _, err := lookup(t, w, "acme", token); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	holds("before")
	if _, err := w.Directory.NextDataKey(t.Context(), w.Fresh(t, "acme"), "redis"); err != nil {
		t.Fatal(err)
	}
	holds("with another data key")
	if _, err := w.Keyring.Rotate(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Directory.Rewrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Keyring.Retire(1); err != nil {
		t.Fatal(err)
	}
	holds("after rotation and retirement")
	fresh := w.Fresh(t, "acme")
	w.Clock.Advance(2 * time.Minute)
	w.Engine.SetDown(true)
	if _, err := w.Sessions.Lookup(t.Context(), fresh, token); err != nil {
		t.Errorf("with the store down: %v", err)
	}
	w.Engine.SetDown(false)
	if _, err := w.Keyring.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := w.Keyring.Retire(2); err != nil { // without wrapping anew: its keys are lost
		t.Fatal(err)
	}
	w.Clock.Advance(2 * time.Minute)
	if _, err := lookup(t, w, "acme", token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("sealed with a key that nobody can open: %v", err)
	}
}
