package limits

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"tenantry/internal/rate"
	"tenantry/tenants/redisconn"
)

// counter is the local one or the script, with a time that a test can move.
type counter interface {
	take(t *testing.T, rules []rule) verdict
	giveBack(t *testing.T, rules []rule)
	// age makes what the holders have used older, as if that time had passed.
	age(t *testing.T, rules []rule, d time.Duration)
}

type localCounter struct{ *local }

func (c localCounter) take(_ *testing.T, rules []rule) verdict {
	return c.decide(rules, time.Now().UnixMilli())
}

func (c localCounter) giveBack(_ *testing.T, rules []rule) {
	c.refund(rules, time.Now().UnixMilli())
}

func (c localCounter) age(_ *testing.T, rules []rule, d time.Duration) {
	held, meters := c.lock(rules, nil)
	defer unlock(held)
	for _, m := range meters {
		m.at -= d.Milliseconds()
	}
}

type sharedCounter struct{ *shared }

func (c sharedCounter) take(t *testing.T, rules []rule) verdict {
	t.Helper()
	v, err := c.decide(t.Context(), rules)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (c sharedCounter) giveBack(t *testing.T, rules []rule) {
	t.Helper()
	if err := c.refund(t.Context(), rules); err != nil {
		t.Fatal(err)
	}
}

func (c sharedCounter) age(t *testing.T, rules []rule, d time.Duration) {
	t.Helper()
	for _, r := range rules {
		key := r.holder + r.suffix
		stored, err := c.redis.Get(t.Context(), key)
		if errors.Is(err, redisconn.ErrNil) {
			continue
		}
		var level, at, count, period int64
		if _, e := fmt.Sscan(string(stored), &level, &at, &count, &period); err != nil || e != nil {
			t.Fatalf("%s holds %q: %v %v", key, stored, err, e)
		}
		aged := fmt.Sprintf("%d %d %d %d", level, at-d.Milliseconds(), count, period)
		if err := c.redis.Replace(t.Context(), key, aged); err != nil {
			t.Fatal(err)
		}
	}
}

// onBoth runs a test on the local counter and on the script.
func onBoth(t *testing.T, test func(*testing.T, counter)) {
	t.Helper()
	t.Run("local", func(t *testing.T) {
		t.Parallel()
		test(t, localCounter{newLocal()})
	})
	onRedis(t, func(t *testing.T, client redis.UniversalClient) {
		test(t, sharedCounter{newShared(redisconn.Of(client))})
	})
}

// newHolder returns a holder nobody else has, and its rules: rate, then quota.
func newHolder(t *testing.T, limits ...string) []rule {
	t.Helper()
	holder := fmt.Sprintf("tnt:{%d}:limit:test:%s", time.Now().UnixNano(), t.Name())
	var rules []rule
	for i, text := range limits {
		rules = append(rules, rule{limit: mustParse(t, text), name: text, holder: holder, suffix: []string{rateSuffix, quotaSuffix}[i]})
	}
	return rules
}

// drain takes n requests, all of which must be admitted.
func drain(t *testing.T, c counter, rules []rule, n int) {
	t.Helper()
	for i := range n {
		if v := c.take(t, rules); v.refused {
			t.Fatalf("request %d of %d was refused: %+v", i+1, n, v)
		}
	}
}

// about reports whether ms is the duration, but for what a slow machine loses.
func about(ms int64, want time.Duration) bool {
	return ms <= want.Milliseconds() && ms > (want-10*time.Second).Milliseconds()
}

func TestBurstThenSteadyRate(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c counter) {
		rules := newHolder(t, "6/h") // one in 10 minutes: what the test itself takes does not count
		for left := int64(5); left >= 0; left-- {
			v := c.take(t, rules)
			if v.refused || v.remaining != left || v.wait != 0 || !about(v.reset, time.Duration(6-left)*10*time.Minute) {
				t.Fatalf("with %d left to be: %+v", left, v)
			}
		}
		for range 3 {
			v := c.take(t, rules)
			if !v.refused || v.remaining != 0 || !about(v.wait, 10*time.Minute) || !about(v.reset, time.Hour) {
				t.Fatalf("over the limit: %+v", v)
			}
		}
		c.age(t, rules, 9*time.Minute)
		if v := c.take(t, rules); !v.refused || !about(v.wait, time.Minute) {
			t.Errorf("a minute too early: %+v", v)
		}
		c.age(t, rules, time.Minute)
		drain(t, c, rules, 1)
		if v := c.take(t, rules); !v.refused {
			t.Errorf("ten minutes admitted two: %+v", v)
		}
		c.age(t, rules, 20*time.Minute)
		drain(t, c, rules, 2)
		if v := c.take(t, rules); !v.refused {
			t.Errorf("twenty minutes admitted three: %+v", v)
		}
		c.age(t, rules, 100*time.Hour)
		if v := c.take(t, rules); v.refused || v.remaining != 5 {
			t.Errorf("after a long time the limit is not full, and no more: %+v", v)
		}
	})
}

func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c counter) {
		org, key := newHolder(t, "100/h", "100/d"), newHolder(t, "3/h", "50/d")
		for i := range key {
			key[i].holder += ":key"
			key[i].holder = org[0].holder + key[i].holder[len(org[0].holder):]
		}
		all := append(append([]rule{}, org...), key...)
		drain(t, c, all, 3)
		for range 40 {
			v := c.take(t, all)
			if !v.refused || v.index != 2 || !about(v.wait, 20*time.Minute) {
				t.Fatalf("over the key's rate: %+v", v)
			}
		}
		for _, probe := range []struct {
			rule rule
			left int64
		}{{org[0], 96}, {org[1], 96}, {key[1], 46}} {
			if v := c.take(t, []rule{probe.rule}); v.refused || v.remaining != probe.left {
				t.Errorf("%s: refused requests were counted: %+v", probe.rule.name, v)
			}
		}
	})
}

func TestTightest(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c counter) {
		rules := newHolder(t, "5/h", "4/d")
		if v := c.take(t, rules); v.index != 1 || v.remaining != 3 {
			t.Errorf("the fewest left count: %+v", v)
		}
		drain(t, c, rules, 3)
		drain(t, c, rules[:1], 1)
		// Both are used up; the quota's next request comes later.
		if v := c.take(t, rules); !v.refused || v.index != 1 || !about(v.wait, 6*time.Hour) {
			t.Errorf("the longest wait counts: %+v", v)
		}
	})
}

func TestChangedLimitKeepsWhatWasUsed(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c counter) {
		rules := newHolder(t, "10/d")
		drain(t, c, rules, 10)
		rules[0].limit = mustParse(t, "15/d")
		if v := c.take(t, rules); v.refused || v.remaining != 4 {
			t.Errorf("10 of 15 are used: %+v", v)
		}
		rules[0].limit = mustParse(t, "5/h")
		if v := c.take(t, rules); !v.refused || !about(v.wait, 12*time.Minute) {
			t.Errorf("11 of 5 are as good as 5: %+v", v)
		}
		c.age(t, rules, time.Hour)
		if v := c.take(t, rules); v.refused || v.remaining != 4 {
			t.Errorf("an hour later: %+v", v)
		}
	})
}

func TestClockSetBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c counter) {
		rules := newHolder(t, "2/h")
		drain(t, c, rules, 2)
		c.age(t, rules, -100*time.Hour) // as if counted in the future
		if v := c.take(t, rules); !v.refused || !about(v.wait, 30*time.Minute) {
			t.Errorf("at once: %+v", v)
		}
		c.age(t, rules, 30*time.Minute)
		drain(t, c, rules, 1)
		if v := c.take(t, rules); !v.refused {
			t.Errorf("half an hour admitted two: %+v", v)
		}
	})
}

func TestGiveBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c counter) {
		rules := newHolder(t, "3/h")
		c.giveBack(t, rules) // of a full limit there is nothing to give back
		drain(t, c, rules, 3)
		c.giveBack(t, rules)
		drain(t, c, rules, 1)
		if v := c.take(t, rules); !v.refused {
			t.Errorf("one was given back, two admitted: %+v", v)
		}
	})
}

// TestMeterProperties holds what a limit promises, for any limit and any times of requests.
func TestMeterProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int64{3, 50, 1000, rate.MaxCount}).Draw(t, "most")
		l, err := rate.Parse(fmt.Sprintf("%d/%c", rapid.Int64Range(1, most).Draw(t, "count"), rapid.SampledFrom([]rune("smhd")).Draw(t, "period")))
		if err != nil {
			t.Fatal(err)
		}
		m := &meter{}
		rules := []rule{{limit: l}}
		now := int64(1_800_000_000_000)
		var admitted []int64
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			now += rapid.Int64Range(0, rapid.SampledFrom([]int64{0, 2, l.Period() / l.Count(), l.Period()}).Draw(t, "scale")).Draw(t, "pause")
			before := *m
			v := decide([]*meter{m}, rules, now)
			if m.level < 0 || m.level > full(l) || v.remaining < 0 || v.remaining >= l.Count() || v.reset > l.Period() {
				t.Fatalf("out of bounds: %+v %+v", m, v)
			}
			if !v.refused {
				admitted = append(admitted, now)
				continue
			}
			for wait, fits := range map[int64]bool{v.wait: true, v.wait - 1: false} {
				if got := before.drained(l, now+wait).admits(); got != fits {
					t.Fatalf("%v: %d ms after a refusal with wait %d it is %v that the request fits", l, wait, v.wait, got)
				}
			}
		}
		for i, from := range admitted {
			for j := i; j < len(admitted); j++ {
				if span := admitted[j] - from; (int64(j-i+1)-l.Count())*l.Period() > span*l.Count() {
					t.Fatalf("%v admitted %d requests within %d ms", l, j-i+1, span)
				}
			}
		}
		if level := m.drained(l, now+m.reset()).level; level != 0 {
			t.Fatalf("after the reset %d are left", level)
		}
	})
}
