package limits

import (
	"context"
	"errors"
	"fmt"

	"tenantry/tenants/redisconn"
)

// drainScript reads the meters as meter.drained does. KEYS are the meters, ARGV the count and the period of each. It
// uses the server's time, because the clocks of replicas may differ.
const drainScript = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local levels, counts, periods, stale = {}, {}, {}, {}
for i, key in ipairs(KEYS) do
  local count, period = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local level = 0
  local stored = redis.call('GET', key)
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
`

// takeScript does what the function decide does. It returns refused, the index of the tightest limit, its remaining
// requests, its milliseconds until reset, the wait, and the time.
const takeScript = drainScript + `
local refused = false
for i in ipairs(KEYS) do
  if levels[i] + periods[i] > counts[i] * periods[i] then
    refused = true
  end
end
local tightest, remaining, reset, longest = 1, 0, 0, 0
for i in ipairs(KEYS) do
  local full = counts[i] * periods[i]
  if not refused then
    levels[i] = levels[i] + periods[i]
  end
  -- What was only drained can be drained again later; a change of the limit or of the
  -- clock must be noted, or it would be met anew each time.
  if not refused or stale[i] then
    store(i)
  end
  local left = math.floor((full - levels[i]) / periods[i])
  local wait = math.max(math.ceil((levels[i] + periods[i] - full) / counts[i]), 0)
  if (refused and wait > longest) or (not refused and (i == 1 or left < remaining)) then
    tightest, remaining, reset = i, left, math.ceil(levels[i] / counts[i])
    if refused then
      longest = wait
    end
  end
end
return {refused and 1 or 0, tightest - 1, remaining, reset, longest, now}
`

// giveBackScript does what the function giveBack does.
const giveBackScript = drainScript + `
for i in ipairs(KEYS) do
  levels[i] = levels[i] - periods[i]
  store(i)
end
return now
`

// shared counts in Redis. One script applies all limits of a request in one round trip, and counts on none of them if
// one refuses. (github.com/go-redis/redis_rate takes a round trip for each limit, and counts on the others if the last
// one refuses.) The keys of an organization's meters have its hash tag, which puts them on one node of a cluster.
type shared struct {
	redis          redisconn.Client
	take, giveBack *redisconn.Script
}

func newShared(client redisconn.Client) *shared {
	return &shared{redis: client, take: redisconn.NewScript(takeScript), giveBack: redisconn.NewScript(giveBackScript)}
}

func arguments(rules []rule) (keys []string, args []any) {
	keys, args = make([]string, len(rules)), make([]any, 0, 2*len(rules))
	for i, r := range rules {
		keys[i] = r.holder + r.suffix
		args = append(args, r.limit.Count(), r.limit.Period())
	}
	return keys, args
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
