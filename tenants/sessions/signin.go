package sessions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/tenants"
	"tenantry/tenants/people"
)

// ErrThrottled: too many attempts to sign in. The error is a *ThrottledError.
var ErrThrottled = errors.New("too many attempts to sign in")

// ThrottledError says when the next attempt makes sense.
type ThrottledError struct{ RetryAfter time.Duration }

func (e *ThrottledError) Error() string { return ErrThrottled.Error() }

// Unwrap returns ErrThrottled.
func (e *ThrottledError) Unwrap() error { return ErrThrottled }

// Throttle bounds the attempts to sign in that fail within a window that begins with the
// first of them.
type Throttle struct {
	PerUser    int64         // 0: 10
	PerAddress int64         // 0: 100; IPv6 by /64
	Window     time.Duration // 0: 15 minutes
}

func (t Throttle) withDefaults() Throttle {
	if t.PerUser <= 0 {
		t.PerUser = 10
	}
	if t.PerAddress <= 0 {
		t.PerAddress = 100
	}
	if t.Window <= 0 {
		t.Window = 15 * time.Minute
	}
	return t
}

// SignIn returns the active user with this address and password. An attempt is counted
// before the password is looked at, so that many at once cannot pass the bound. Known
// and unknown addresses answer alike, in what they say and how long they take. Errors:
// tenants.ErrDenied, ErrThrottled, tenants.ErrUnavailable; with the first two comes, for the
// audit log alone, the user whose address was given, nil where there is none.
func (s *Service) SignIn(ctx context.Context, t *tenants.Tenant, email string, password secret.String, remote netip.Addr) (*people.User, error) {
	prefix := t.RedisPrefix() + "signin:"
	address := prefix + "a:" + tenants.NetworkOf(remote)
	if err := s.count(ctx, address, s.throttle.PerAddress); err != nil {
		return nil, err
	}
	u, err := s.people.FindUserByEmail(ctx, t, email)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, unavailable("signing in", err)
	}
	user := prefix + "u:" + emailName(t.Org.OrgID, email)
	if err := s.count(ctx, user, s.throttle.PerUser); err != nil {
		return u, err
	}
	ok, err := s.people.VerifyPassword(ctx, t, u, password)
	if err != nil {
		return nil, unavailable("signing in", err)
	}
	if !ok {
		return u, fmt.Errorf("sign-in refused: %w", tenants.ErrDenied)
	}
	// Forgetting the failures may fail: then they count until the window ends.
	_ = s.redis.Del(ctx, user).Err()
	_, _, _ = s.add(ctx, address, -1)
	return u, nil
}

// count adds an attempt and refuses it where it is one too many.
func (s *Service) count(ctx context.Context, key string, limit int64) error {
	n, rest, err := s.add(ctx, key, 1)
	if err != nil {
		return unavailable("counting attempts to sign in", err)
	}
	if n > limit {
		return &ThrottledError{RetryAfter: max(rest, time.Second)}
	}
	return nil
}

// add changes a counter, which lives for one window from its first use, and returns its
// value and how long it lives on. One transaction: a counter without an end would lock a
// person out for ever.
func (s *Service) add(ctx context.Context, key string, delta int64) (int64, time.Duration, error) {
	pipe := s.redis.TxPipeline()
	pipe.SetNX(ctx, key, 0, s.throttle.Window)
	n := pipe.IncrBy(ctx, key, delta)
	rest := pipe.PTTL(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, 0, err
	}
	return n.Val(), rest.Val(), nil
}

// emailName names the counter of an e-mail address without telling it. Known and unknown
// addresses have the same kind of name, and none shares its counter: otherwise attempts
// for one address would tell whether another is known. How many counters there are is
// bounded by their end and by the attempts that a network address has.
func emailName(org int64, email string) string {
	sum := sha256.Sum256([]byte(strconv.FormatInt(org, 10) + ":" + people.EmailKey(email)))
	return hex.EncodeToString(sum[:])
}
