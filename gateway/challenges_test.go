package gateway

import (
	"testing"
	"time"

	"tenantry/tenants"
)

// TestSpentChallenges: a challenge counts once, and not at all if the record of answered challenges was lost since it
// was issued.
func TestSpentChallenges(t *testing.T) {
	t.Parallel()
	s := openServices(t)
	tenant, err := s.directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Acme"})
	if err != nil {
		t.Fatal(err)
	}
	used := spentChallenges{s.redis}
	begin := func() {
		if err := used.Begin(t.Context(), tenant); err != nil {
			t.Fatal(err)
		}
	}
	by := ""
	spend := func(challenge string, issued time.Time, wanted bool) {
		t.Helper()
		if first, err := used.Spend(t.Context(), tenant, challenge, by, issued, time.Minute); err != nil || first != wanted {
			t.Errorf("Spend(%q) = %t, %v, want %t", challenge, first, err, wanted)
		}
	}
	begin()
	now := time.Now()
	spend("one", now.Add(time.Second), true)
	begin()
	spend("one", now.Add(time.Second), false)
	spend("from before", now.Add(-time.Minute), false)
	if err := s.redis.Del(t.Context(), sinceKey(tenant), tenant.RedisPrefix()+"challenge:one"); err != nil {
		t.Fatal(err)
	}
	spend("one", now.Add(time.Second), false)
	if err := s.redis.Del(t.Context(), tenant.RedisPrefix()+"challenge:one"); err != nil {
		t.Fatal(err)
	}
	begin()
	spend("one", now.Add(-time.Second), false)
	spend("two", time.Now().Add(time.Second), true)
	for _, request := range []struct {
		by     string
		wanted bool
	}{{"a", true}, {"a", true}, {"b", false}, {"", false}} {
		by = request.by
		spend("three", time.Now().Add(time.Second), request.wanted)
	}
}
