package sessions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"tenantry/internal/rate"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/limits"
	"tenantry/tenants/redisconn"
)

// ErrThrottled: too many attempts to sign in. The error is a *ThrottledError.
var ErrThrottled = errors.New("too many attempts to sign in")

// ThrottledError says when the next attempt makes sense.
type ThrottledError struct{ RetryAfter time.Duration }

func (e *ThrottledError) Error() string { return ErrThrottled.Error() }

// Unwrap returns ErrThrottled.
func (e *ThrottledError) Unwrap() error { return ErrThrottled }

// Throttle slows wrong attempts down. It locks nobody out: each wait ends by itself, and none
// that strangers cause reaches an address from which the person has signed in before.
type Throttle struct {
	// Free attempts of one address at one person come without a wait; then each one that
	// fails doubles it, from a second to a minute. 0: 5
	Free int64
	// PerAddress is how many attempts an address has at once, over all persons and
	// organizations, and then one every nine seconds. 0: 100
	PerAddress int64
	// PerPerson is how many attempts at one person all addresses have at once from which
	// that person has not signed in before, and then one every 30 seconds. 0: 100
	PerPerson int64
}

const (
	longestWait  = time.Minute
	addressEvery = 9 * time.Second
	personEvery  = 30 * time.Second
	// forgottenAfter is how long the attempts of an address at a person count after the last.
	forgottenAfter = 15 * time.Minute
	// familiarFor is how long an address is known for a person's after a sign-in.
	familiarFor = 30 * 24 * time.Hour
)

func (t Throttle) withDefaults() Throttle {
	for value, def := range map[*int64]int64{&t.Free: 5, &t.PerAddress: 100, &t.PerPerson: 100} {
		if *value <= 0 {
			*value = def
		}
	}
	return t
}

// attemptScript counts an attempt on everything that governs it, or on nothing where one of
// them asks for a wait, which it answers in milliseconds; and then whether it was counted
// against the person. KEYS are the meters of the address and the person, the address's tries
// at the person, and what says that the address is familiar; or the meter of the address alone.
const attemptScript = `
local tries, familiar = KEYS[meters + 1], KEYS[meters + 2]
local free, limit, forget = tonumber(ARGV[2 * meters + 3]), tonumber(ARGV[2 * meters + 4]), tonumber(ARGV[2 * meters + 5])
local counted = meters
if familiar and redis.call('EXISTS', familiar) == 1 then
  counted = 1
end
local longest, tried = 0, 0
for i = 1, counted do
  longest = math.max(longest, wait(i))
end
if tries then
  local n, at = string.match(redis.call('GET', tries) or '', '^(%d+) (%d+)$')
  tried = tonumber(n or 0)
  longest = math.max(longest, math.min(tonumber(at or now) - now, limit))
end
for i = 1, counted do
  count(i, longest > 0)
end
if longest > 0 then
  return {longest, 0}
end
if tries then
  local rest = 0
  tried = math.min(tried + 1, free + 30)
  if tried >= free then
    rest = math.min(1000 * 2 ^ (tried - free), limit)
  end
  redis.call('SET', tries, string.format('%.0f %.0f', tried, now + rest), 'PX', string.format('%.0f', forget))
end
return {0, counted - 1}
`

// unseenScript takes a try back, of an address at a person, that nobody has looked at.
const unseenScript = `
local n = tonumber(string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) ') or 0)
local left = redis.call('PTTL', KEYS[1])
if n > 1 and left > 0 then
  redis.call('SET', KEYS[1], string.format('%.0f %s', n - 1, ARGV[1]), 'PX', string.format('%.0f', left))
else
  redis.call('DEL', KEYS[1])
end
return 0
`

// attempt is one that was counted.
type attempt struct {
	s                                *Service
	address, person, tries, familiar string // names in Redis
	placed                           bool   // the caller has an address
	counted                          bool   // against the person
}

// attempt counts an attempt of the address to sign in as who has the e-mail address, before
// anything is looked at. Names are made from what the caller sent alone: known and unknown
// organizations and people have the same kind. All of them have one hash tag, so that one
// script decides. Errors: ErrThrottled, tenants.ErrUnavailable.
func (s *Service) attempt(ctx context.Context, t *tenants.Tenant, email string, remote netip.Addr) (*attempt, error) {
	a := s.named(t, email, remote)
	return a, a.count(ctx, true)
}

func (s *Service) named(t *tenants.Tenant, email string, remote netip.Addr) *attempt {
	sum := sha256.Sum256([]byte(t.RedisPrefix() + identity.EmailKey(email)))
	prefix, who, from := s.dir.RedisPrefix()+"signin:", hex.EncodeToString(sum[:]), limits.Network(remote).String()
	return &attempt{
		s: s, placed: remote.IsValid(), address: prefix + "a:" + from, person: prefix + "u:" + who,
		tries: prefix + "t:" + who + ":" + from, familiar: prefix + "f:" + who + ":" + from,
	}
}

// count counts the attempt on its address, and, where it is one at a person, on what governs that.
func (a *attempt) count(ctx context.Context, atPerson bool) error {
	names, args := a.meters(atPerson)
	if atPerson {
		names = append(names, a.tries, a.familiar)
	}
	args = append(args, a.s.throttle.Free, longestWait.Milliseconds(), forgottenAfter.Milliseconds())
	answer, err := a.s.redis.Run(ctx, a.s.attempts, names, args...)
	if err == nil && len(answer) != 2 {
		err = errors.New("the answer is of another shape")
	}
	if err != nil {
		return unavailable("counting attempts to sign in", err)
	}
	if wait := time.Duration(answer[0]) * time.Millisecond; wait > 0 {
		return fmt.Errorf("sign-in: %w", &ThrottledError{RetryAfter: max(wait, time.Second)})
	}
	a.counted = answer[1] == 1
	return nil
}

// succeeded takes the attempt back and makes the address familiar, where there is one: callers without share a name,
// and one of them must not vouch for the others. It may fail: then the attempt counts until it is forgotten.
func (a *attempt) succeeded(ctx context.Context) {
	a.takeBack(ctx)
	commands := []redisconn.Command{{"del", a.tries}}
	if a.placed {
		commands = append(commands, redisconn.Command{"set", a.familiar, 1, "px", familiarFor.Milliseconds()})
	}
	_, _ = a.s.redis.Pipeline(ctx, commands...)
}

// unseen takes the attempt back where the password could not be looked at: who has the right
// one must not wait for longer because many ask at once. It may fail, as succeeded may.
func (a *attempt) unseen(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // its own time may be over
	defer cancel()
	a.takeBack(ctx)
	_, _ = a.s.redis.Run(ctx, a.s.unseens, []string{a.tries}, a.s.now().UnixMilli())
}

// takeBack gives the address, and the person, the attempt back.
func (a *attempt) takeBack(ctx context.Context) {
	names, args := a.meters(a.counted)
	_, _ = a.s.redis.Run(ctx, a.s.givenBack, names, args...)
}

// meters returns the names of the meters, with or without the person's, and the first arguments of a script over them.
func (a *attempt) meters(ofPerson bool) (names []string, args []any) {
	names, bounds := []string{a.address}, []rate.Limit{rate.Burst(a.s.throttle.PerAddress, addressEvery)}
	if ofPerson {
		names, bounds = append(names, a.person), append(bounds, rate.Burst(a.s.throttle.PerPerson, personEvery))
	}
	return names, limits.Meters(a.s.now().UnixMilli(), bounds...)
}
