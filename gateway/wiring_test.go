package gateway

import (
	"errors"
	"net/netip"
	"testing"

	"tenantry/tenants"
	"tenantry/tenants/keys"
	"tenantry/tenants/localredis"
	"tenantry/tenants/redisconn"
)

// TestEmbeddedRedisHoldsNoKeys: API keys are not cached in an embedded Redis, which no other replica shares. A revoked
// key is refused at once.
func TestEmbeddedRedisHoldsNoKeys(t *testing.T) {
	t.Parallel()
	s := openServices(t)
	tenant, err := s.directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	issued, err := s.keys.Issue(t.Context(), tenant, keys.NewKey{Name: "robot", Kind: tenants.ServerFull})
	if err != nil {
		t.Fatal(err)
	}
	present := func() (*tenants.Principal, error) {
		fresh, err := s.directory.Resolve(t.Context(), "acme.localhost:8080")
		if err != nil {
			t.Fatal(err)
		}
		return s.keys.Authenticate(t.Context(), fresh, issued.Token.Reveal(), netip.Addr{})
	}
	if p, err := present(); err != nil || p.KeyID != issued.Key.ID {
		t.Fatalf("got %+v, %v, want no error and p.KeyID = %v", p, err, issued.Key.ID)
	}
	client, err := localredis.Dial(s.localRedis, redisconn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := client.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("keys in Redis = %d, %v, want 0", n, err)
	}
	if _, err := s.keys.Revoke(t.Context(), tenant, issued.Key.ID, nil); err != nil {
		t.Fatal(err)
	}
	if p, err := present(); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("a revoked key: %+v, %v, want %v", p, err, tenants.ErrDenied)
	}
}
