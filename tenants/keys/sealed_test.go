package keys_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tenantry/tenants"
	"tenantry/tenants/keys"
	"tenantry/tenants/tenantstest"
)

// TestForgedOrMovedKeyEntriesAreRefused writes to Redis directly: an entry that is not sealed under its name is
// ignored, and the key is read from the store.
func TestForgedOrMovedKeyEntriesAreRefused(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	a, b := w.Tenant(t, "a"), w.Tenant(t, "b")
	weak := issue(t, w, a, keys.NewKey{Name: "weak", Permissions: []tenants.Permission{tenants.ManageForms}})
	strong := issue(t, w, a, keys.NewKey{Name: "strong", Permissions: tenants.AllPermissions()})
	foreign := issue(t, w, b, keys.NewKey{Name: "foreign", Permissions: tenants.AllPermissions()})
	for slug, token := range map[string]string{"a": strong.Token.Reveal(), "b": foreign.Token.Reveal()} {
		if _, err := authenticate(t, w, slug, token); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := authenticate(t, w, "a", weak.Token.Reveal()); err != nil {
		t.Fatal(err)
	}
	entry := func(tenant *tenants.Tenant, hash string) (name, value string) {
		name = tenant.RedisPrefix() + "key:" + hash
		return name, w.Redis.Get(t.Context(), name).Val()
	}
	name, value := entry(a, weak.Key.Hash)
	_, mighty := entry(a, strong.Key.Hash)
	_, others := entry(b, foreign.Key.Hash)
	parts := strings.SplitN(value, ".", 3)
	raised := strings.Replace(parts[len(parts)-1], `"manage_forms"`, `"manage_forms","contacts"`, 1)
	if len(parts) != 3 || mighty == "" || others == "" || raised == parts[2] {
		t.Fatalf("Redis holds %q, %q, %q", value, mighty, others)
	}
	unknown := issue(t, w, b, keys.NewKey{Name: "unknown to a"})
	for what, forged := range map[string]string{
		"made up": raised, "altered": parts[0] + "." + parts[1] + "." + raised, "the strong key's": mighty, "another organization's": others,
		"another version": "7." + parts[1] + "." + parts[2],
	} {
		for _, at := range []string{name, a.RedisPrefix() + "key:" + unknown.Key.Hash} {
			if err := w.Redis.Set(t.Context(), at, forged, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
		}
		w.Second(t, tenantstest.Options{}) // nothing is cached
		if p, err := authenticate(t, w, "a", weak.Token.Reveal()); err != nil || p.KeyID != weak.Key.ID || p.May(tenants.Contacts) {
			t.Errorf("%s: got %+v, %v, want no error and p.KeyID = %v", what, p, err, weak.Key.ID)
		}
		if p, err := authenticate(t, w, "a", unknown.Token.Reveal()); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("%s, under the name of a key that there is not: %+v, %v", what, p, err)
		}
	}
	// The original entry is accepted, so only the seals were wrong.
	if err := w.Redis.Set(t.Context(), name, value, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	w.Second(t, tenantstest.Options{})
	tenant := w.Fresh(t, "a")
	reads := w.Engine.Reads.Load()
	if _, err := w.Keys.Authenticate(t.Context(), tenant, weak.Token.Reveal(), somewhere); err != nil || w.Engine.Reads.Load() != reads {
		t.Errorf("the entry itself is not taken: %v, %d reads", err, w.Engine.Reads.Load()-reads)
	}
}

// TestKeyCacheWorksWithoutTheStore looks keys up long after the organization's data keys were opened.
func TestKeyCacheWorksWithoutTheStore(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	token := issue(t, w, w.Tenant(t, "acme"), keys.NewKey{}).Token.Reveal()
	if _, err := authenticate(t, w, "acme", token); err != nil {
		t.Fatal(err)
	}
	w.Second(t, tenantstest.Options{})
	tenant := w.Fresh(t, "acme")
	w.Clock.Advance(4 * time.Minute)
	w.Engine.SetDown(true)
	if _, err := w.Keys.Authenticate(t.Context(), tenant, token, somewhere); err != nil {
		t.Errorf("the store down, the key in Redis: %v", err)
	}
	w.Engine.SetDown(false)
}
