package limits

import (
	"context"
	"errors"
	"fmt"

	"tenantry/internal/rate"
	"tenantry/tenants/redisconn"
)

// meterScript is the beginning of every Script: it reads the meters as meter.drained does.
const meterScript = `
local now, meters = tonumber(ARGV[1]), tonumber(ARGV[2])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local levels, counts, periods, stale = {}, {}, {}, {}
for i = 1, meters do
  local count, period = tonumber(ARGV[2 * i + 1]), tonumber(ARGV[2 * i + 2])
  local level = 0
  local stored = redis.call('GET', KEYS[i])
  if stored then
    local l, at, c, p = string.match(stored, '^(%d+) (%d+) (%d+) (%d+)$')
    if l then
      l, at, c, p = tonumber(l), tonumber(at), tonumber(c), tonumber(p)
      local elapsed = math.max(now - at, 0)
      if elapsed < p then
        level = math.max(l - elapsed * c, 0)
      end
      local changed = c ~= count or p ~= period
      stale[i] = changed or now < at
      if level > 0 and changed then
        level = math.min(math.ceil(level / p) * period, count * period)
      end
    end
  end
  levels[i], counts[i], periods[i] = level, count, period
end
local function store(i)
  if levels[i] <= 0 then
    redis.call('DEL', KEYS[i])
    return
  end
  local value = string.format('%.0f %.0f %.0f %.0f', levels[i], now, counts[i], periods[i])
  redis.call('SET', KEYS[i], value, 'PX', string.format('%.0f', math.ceil(levels[i] / counts[i]) + 1000))
end
local function wait(i)
  return math.max(math.ceil((levels[i] + periods[i] - counts[i] * periods[i]) / counts[i]), 0)
end
-- count counts one on a meter unless refused. Draining can be repeated later, but a change of the limit or of the clock
-- must be stored, because otherwise it would be applied each time.
local function count(i, refused)
  if not refused then
    levels[i] = levels[i] + periods[i]
  end
  if not refused or stale[i] then
    store(i)
  end
end
`

// takeScript does what the function decide does. It returns refused, the index of the tightest limit, its remaining
// requests, its milliseconds until reset, the wait, and the time.
const takeScript = `
local refused = false
for i = 1, meters do
  refused = refused or wait(i) > 0
end
local tightest, remaining, reset, longest = 1, 0, 0, 0
for i = 1, meters do
  count(i, refused)
  local left = math.floor((counts[i] * periods[i] - levels[i]) / periods[i])
  if (refused and wait(i) > longest) or (not refused and (i == 1 or left < remaining)) then
    tightest, remaining, reset = i, left, math.ceil(levels[i] / counts[i])
    if refused then
      longest = wait(i)
    end
  end
end
return {refused and 1 or 0, tightest - 1, remaining, reset, longest, now}
`

// giveBackScript does what the function giveBack does.
const giveBackScript = `
for i = 1, meters do
  levels[i] = levels[i] - periods[i]
  store(i)
end
return now
`

// Script returns a script of meters that ends with body. The first keys are the meters, on one node of a cluster; the
// first arguments are those that Meters returns. In body, now is the time and meters the number of meters. For the
// meter at i, wait(i) returns the milliseconds until it has room for one more; count(i, refused) counts one unless
// refused, and stores the meter.
func Script(body string) *redisconn.Script { return redisconn.NewScript(meterScript + body) }

// GiveBack returns the script that removes one from its meters.
func GiveBack() *redisconn.Script { return Script(giveBackScript) }

// Meters returns the first arguments of a Script: the time in Unix milliseconds, and the limits of its meters. The time
// 0 stands for that of the server, because the clocks of replicas may differ.
func Meters(now int64, limits ...rate.Limit) []any {
	args := make([]any, 0, 2+2*len(limits))
	args = append(args, now, len(limits))
	for _, l := range limits {
		args = append(args, l.Count(), l.Period())
	}
	return args
}

// shared counts in Redis. One script applies all limits of a request in one round trip, and counts on none of them if
// one refuses. (github.com/go-redis/redis_rate takes a round trip for each limit, and counts on the others if the last
// one refuses.) The keys of an organization's meters have its hash tag, which puts them on one node of a cluster.
type shared struct {
	redis          redisconn.Client
	take, giveBack *redisconn.Script
}

func newShared(client redisconn.Client) *shared {
	return &shared{redis: client, take: Script(takeScript), giveBack: GiveBack()}
}

func arguments(rules []rule) (keys []string, args []any) {
	keys = make([]string, len(rules))
	limits := make([]rate.Limit, len(rules))
	for i, r := range rules {
		keys[i], limits[i] = r.holder+r.suffix, r.limit
	}
	return keys, Meters(0, limits...)
}

// decide runs takeScript.
func (s *shared) decide(ctx context.Context, rules []rule) (verdict, error) {
	keys, args := arguments(rules)
	v, err := s.redis.Run(ctx, s.take, keys, args...)
	if err != nil {
		return verdict{}, fmt.Errorf("counting a request in Redis: %w", err)
	}
	if len(v) != 6 || v[1] < 0 || v[1] >= int64(len(rules)) {
		return verdict{}, errors.New("counting a request in Redis: unexpected form of the answer")
	}
	return verdict{refused: v[0] == 1, index: int(v[1]), remaining: v[2], reset: v[3], wait: v[4], now: v[5]}, nil
}

func (s *shared) refund(ctx context.Context, rules []rule) error {
	keys, args := arguments(rules)
	if _, err := s.redis.Run(ctx, s.giveBack, keys, args...); err != nil {
		return fmt.Errorf("giving a request back in Redis: %w", err)
	}
	return nil
}
