package files

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/crypto/keyring"
	"tenantry/modules/files/contents"
	"tenantry/operation"
	"tenantry/tenants"
)

// oneKey is a contents.KeySet of one key.
type oneKey struct{ keyring.DataKey }

func (k oneKey) Current() keyring.DataKey { return k.DataKey }

func (k oneKey) Version(int) (keyring.DataKey, bool) { return k.DataKey, true }

// TestVisitor: addresses of visitors are kept as pseudonyms of their networks.
func TestVisitor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	ring, err := keyring.Create(filepath.Join(t.TempDir(), "keyring"))
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := keyring.NewDataKey(ring, f.Tenant.Org.OrgID, contents.NamePurpose)
	if err != nil {
		t.Fatal(err)
	}
	m := New(Deps{Contents: contents.New(contents.Options{
		Keys: func(context.Context, *tenants.Tenant, string) (contents.KeySet, error) { return oneKey{key}, nil },
	})})
	who := func(kind tenants.KeyKind, address string) string {
		c := &operation.Call{
			Tenant: f.Tenant, Remote: netip.MustParseAddr(address),
			Principal: &tenants.Principal{Kind: tenants.ServiceAccount, KeyKind: kind},
		}
		name, err := m.visitor(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	const v4, v6 = "192.0.2.1", "2001:db8::1"
	if got := who(tenants.ServerFull, v4); got != "" {
		t.Errorf("got %q for a server key, want none", got)
	}
	if a, b := who(tenants.Browser, v6), who(tenants.Browser, "2001:db8::2"); a == "" || a != b {
		t.Errorf("got %q and %q for one network, want the same", a, b)
	}
	if a, b := who(tenants.Browser, v6), who(tenants.Browser, "2001:db8:0:1::1"); a == b {
		t.Errorf("got %q for two networks", a)
	}
	for _, address := range []string{v4, v6} {
		if got := who(tenants.Browser, address); len(got) < 32 || strings.Contains(got, address) {
			t.Errorf("got %q for %s, want a pseudonym", got, address)
		}
	}
}
