package limits

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/internal/rate"
	"tenantry/tenants/redisconn"
)

// TestScriptAndTwinAgree asks the script and the local counter the same, over and over,
// with limits that change, time that passes and entries that are lost.
func TestScriptAndTwinAgree(t *testing.T) {
	t.Parallel()
	rounds := 3000
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		rounds = 100_000
	}
	onRedis(t, func(t *testing.T, client redis.UniversalClient) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		script, twin := sharedCounter{newShared(redisconn.Of(client))}, localCounter{newLocal()}
		limit := func() rate.Limit {
			count := 1 + random.Int64N([]int64{1, 5, 100, 5000, rate.MaxCount}[random.IntN(5)])
			return mustParse(t, fmt.Sprintf("%d/%c", count, "smhd"[random.IntN(4)]))
		}
		org := fmt.Sprintf("tnt:{%d}:limit:", seed)
		holders := []string{org + "org", org + "key:a", org + "key:b"}
		set := map[string]rate.Limit{}
		refused := 0
		for round := range rounds {
			var rules []rule
			for _, holder := range []string{holders[0], holders[1+random.IntN(2)]} {
				for _, suffix := range []string{rateSuffix, quotaSuffix} {
					name := holder + suffix
					if _, ok := set[name]; !ok || random.IntN(100) == 0 {
						set[name] = limit()
					}
					if random.IntN(5) > 0 {
						rules = append(rules, rule{limit: set[name], name: name, holder: holder, suffix: suffix})
					}
				}
			}
			if len(rules) == 0 {
				continue
			}
			switch random.IntN(30) {
			case 0:
				d := time.Duration(random.Int64N(int64([]time.Duration{time.Second, time.Minute, 30 * time.Hour}[random.IntN(3)])))
				if random.IntN(4) == 0 {
					d = -d
				}
				script.age(t, rules, d)
				twin.age(t, rules, d)
			case 1:
				// A whole party at once: the local counter keeps both meters together.
				if err := client.Del(t.Context(), rules[0].holder+rateSuffix, rules[0].holder+quotaSuffix).Err(); err != nil {
					t.Fatal(err)
				}
				twin.parties.Delete(rules[0].holder)
			case 2:
				if err := client.Set(t.Context(), rules[0].holder+rules[0].suffix, "what this is nobody knows", 0).Err(); err != nil {
					t.Fatal(err)
				}
				held, meters := twin.lock(rules[:1], nil)
				*meters[0] = meter{}
				unlock(held)
				script.giveBack(t, rules[:1]) // which removes it
			case 3, 4:
				now, err := client.Time(t.Context()).Result()
				if err != nil {
					t.Fatal(err)
				}
				keys, args := arguments(rules)
				at, err := script.redis.Run(t.Context(), script.shared.giveBack, keys, args...)
				if err != nil || len(at) != 1 || at[0] < now.UnixMilli() {
					t.Fatalf("given back at %d, after %d: %v", at, now.UnixMilli(), err)
				}
				twin.refund(rules, at[0])
			}
			want := script.take(t, rules)
			got := twin.decide(rules, want.now)
			if got != want {
				t.Fatalf("round %d (seed %d), %+v:\nthe script says %+v\nthe twin says   %+v", round, seed, rules, want, got)
			}
			if got.refused {
				refused++
			}
		}
		if refused == 0 || refused > rounds*9/10 {
			t.Errorf("%d of %d were refused: the test shows little", refused, rounds)
		}
		for _, holder := range holders {
			for _, suffix := range []string{rateSuffix, quotaSuffix} {
				ttl, err := client.PTTL(t.Context(), holder+suffix).Result()
				if err != nil || ttl == -1 || ttl > 25*time.Hour {
					t.Errorf("%s%s lives for %v, %v", holder, suffix, ttl, err)
				}
			}
		}
	})
}
