package localredis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/tenants/localredis"
	"tenantry/tenants/redisconn"
)

// TestExport checks that another server has the same entries, with their lifetimes.
func TestExport(t *testing.T) {
	t.Parallel()
	start := func() (*localredis.Server, redis.UniversalClient) {
		s, err := localredis.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		c, err := localredis.Dial(s, redisconn.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s, c
	}
	from, old := start()
	ctx := t.Context()
	binary := "\x00\xff text"
	for _, err := range []error{
		old.Set(ctx, "forever", binary, 0).Err(), old.Set(ctx, "empty", "", 0).Err(), old.Set(ctx, "hour", "h", time.Hour).Err(),
		old.ZAdd(ctx, "list", redis.Z{Score: 2.5, Member: "b"}, redis.Z{Score: -1, Member: "a"}).Err(),
		old.Expire(ctx, "list", time.Minute).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	raw, err := from.Export()
	if err != nil {
		t.Fatal(err)
	}
	to, c := start()
	if err := to.Import(raw); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"forever": binary, "empty": "", "hour": "h"} {
		if got, err := c.Get(ctx, key).Result(); err != nil || got != want {
			t.Errorf("%s: %q %v, want %q", key, got, err, want)
		}
	}
	if got, err := c.ZRangeWithScores(ctx, "list", 0, -1).Result(); err != nil || len(got) != 2 || got[0].Member != "a" || got[1].Score != 2.5 {
		t.Errorf("list: %v %v, want a and b", got, err)
	}
	for key, most := range map[string]time.Duration{"hour": time.Hour, "list": time.Minute} {
		if got := c.PTTL(ctx, key).Val(); got <= most/2 || got > most {
			t.Errorf("%s lives for %s, want about %s", key, got, most)
		}
	}
	if got := c.PTTL(ctx, "forever").Val(); got != -1 {
		t.Errorf("forever lives for %s, want no end", got)
	}
	if err := to.Import([]byte("nonsense")); err == nil {
		t.Error("Import of nonsense succeeded, want an error")
	}
	if err := old.HSet(ctx, "hash", "a", "b").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := from.Export(); err == nil {
		t.Error("Export of a hash succeeded, want an error")
	}
}
