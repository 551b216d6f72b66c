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

// ThrottledError says when to try again.
type ThrottledError struct{ RetryAfter time.Duration }

func (e *ThrottledError) Error() string { return ErrThrottled.Error() }

// Unwrap returns ErrThrottled.
func (e *ThrottledError) Unwrap() error { return ErrThrottled }

// Throttle configures how wrong attempts are slowed down. It locks nobody out: every wait ends by itself, and waits
// caused by others do not apply at an address from which the person has signed in before.
type Throttle struct {
	// Free is how many attempts of one address at one person come without a wait. Each further failure doubles the
	// wait, from a second to a minute. 0: 5
	Free int64
	// PerAddress is how many attempts an address has at once, for all persons and organizations together. One more is
	// added every nine seconds. 0: 100
	PerAddress int64
	// PerPerson is how many attempts at one person all addresses together have at once, except addresses from which the
	// person has signed in before. One more is added every 30 seconds. 0: 100
	PerPerson int64
}

const (
	longestWait  = time.Minute
	addressEvery = 9 * time.Second
	personEvery  = 30 * time.Second
	// forgottenAfter is how long the attempts of an address at a person count after the last one.
	forgottenAfter = 15 * time.Minute
	// familiarFor is how long an address counts as the person's after a sign-in.
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

// attemptScript counts an attempt against all limits, or against none of them if one requires a wait. It returns that
// wait in milliseconds, and whether the attempt was counted against the person. KEYS are the meters of the address and
// the person, the tries of the address at the person, and the mark of a familiar address; or the meter of the address
// only.
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

// undoScript removes one try of an address at a person whose password was not checked.
const undoScript = `
local n = tonumber(string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) ') or 0)
local left = redis.call('PTTL', KEYS[1])
if n > 1 and left > 0 then
  redis.call('SET', KEYS[1], string.format('%.0f %s', n - 1, ARGV[1]), 'PX', string.format('%.0f', left))
else
  redis.call('DEL', KEYS[1])
end
return 0
`

// attempt is an attempt to sign in.
type attempt struct {
	s                                *Service
	address, person, tries, familiar string // names in Redis
	hasAddress                       bool   // the caller has a valid address
	counted                          bool   // against the person
}

// countAttempt counts an attempt of the address to sign in with the e-mail address, before anything is looked up. The
// Redis keys depend only on what the caller sent, so that unknown organizations and people are treated like known ones.
// All keys have one hash tag, because one script uses them. Errors: ErrThrottled, tenants.ErrUnavailable.
func (s *Service) countAttempt(
	ctx context.Context, t *tenants.Tenant, email string, remote netip.Addr,
) (*attempt, error) {
	a := s.newAttempt(t, email, remote)
	return a, a.count(ctx, true)
}

func (s *Service) newAttempt(t *tenants.Tenant, email string, remote netip.Addr) *attempt {
	sum := sha256.Sum256([]byte(t.RedisPrefix() + identity.EmailKey(email)))
	prefix, who, from := s.dir.RedisPrefix()+"signin:", hex.EncodeToString(sum[:]), limits.Network(remote).String()
	return &attempt{
		s: s, hasAddress: remote.IsValid(), address: prefix + "a:" + from, person: prefix + "u:" + who,
		tries: prefix + "t:" + who + ":" + from, familiar: prefix + "f:" + who + ":" + from,
	}
}

// count counts the attempt against its address and, if atPerson is set, against the limits of the person.
func (a *attempt) count(ctx context.Context, atPerson bool) error {
	names, args := a.meters(atPerson)
	if atPerson {
		names = append(names, a.tries, a.familiar)
	}
	args = append(args, a.s.throttle.Free, longestWait.Milliseconds(), forgottenAfter.Milliseconds())
	answer, err := a.s.redis.Run(ctx, a.s.attempts, names, args...)
	if err == nil && len(answer) != 2 {
		err = errors.New("unexpected form of the answer")
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

// succeeded gives the attempt back and marks the address as familiar, if there is one: callers without an address share
// a key and must not vouch for each other. Errors are ignored: the attempt then counts until it is forgotten.
func (a *attempt) succeeded(ctx context.Context) {
	a.refund(ctx)
	commands := []redisconn.Command{{"del", a.tries}}
	if a.hasAddress {
		commands = append(commands, redisconn.Command{"set", a.familiar, 1, "px", familiarFor.Milliseconds()})
	}
	_, _ = a.s.redis.Pipeline(ctx, commands...)
}

// undo gives the attempt back if the password could not be checked, because an overloaded server must not make callers
// with the right password wait. Errors are ignored, as in succeeded.
func (a *attempt) undo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // the call's deadline may have passed
	defer cancel()
	a.refund(ctx)
	_, _ = a.s.redis.Run(ctx, a.s.undos, []string{a.tries}, a.s.now().UnixMilli())
}

// refund gives the attempt back to the address, and to the person.
func (a *attempt) refund(ctx context.Context) {
	names, args := a.meters(a.counted)
	_, _ = a.s.redis.Run(ctx, a.s.refunds, names, args...)
}

// meters returns the names of the meters, with or without that of the person, and the first arguments of a script that
// uses them.
func (a *attempt) meters(ofPerson bool) (names []string, args []any) {
	names, bounds := []string{a.address}, []rate.Limit{rate.Burst(a.s.throttle.PerAddress, addressEvery)}
	if ofPerson {
		names, bounds = append(names, a.person), append(bounds, rate.Burst(a.s.throttle.PerPerson, personEvery))
	}
	return names, limits.Meters(a.s.now().UnixMilli(), bounds...)
}
