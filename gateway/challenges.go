package gateway

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/redisconn"
)

// spentChallenges records in Redis which challenges have been answered, for all replicas.
type spentChallenges struct{ redis redisconn.Client }

// Begin implements forms.Spent. Error: store.ErrUnavailable.
func (s spentChallenges) Begin(ctx context.Context, t *tenants.Tenant) error {
	_, err := s.redis.SetNX(ctx, sinceKey(t), time.Now().Unix(), 0)
	return challengeError(err)
}

// Spend implements forms.Spent. If Redis lost the answered challenges, it also lost the time since which they are
// recorded. A challenge issued before that time is refused, because it may have been answered before. The time is read
// after the challenge is recorded, so that a loss between the two is noticed. Error: store.ErrUnavailable.
func (s spentChallenges) Spend(
	ctx context.Context, t *tenants.Tenant, challenge, by string, issued time.Time, keep time.Duration,
) (bool, error) {
	name := t.RedisPrefix() + "challenge:" + challenge
	first, err := s.redis.SetNX(ctx, name, "by "+by, max(keep, time.Second))
	if err != nil {
		return false, challengeError(err)
	}
	if !first {
		spent, err := s.redis.Get(ctx, name)
		if errors.Is(err, redisconn.ErrNil) { // it has expired meanwhile
			err = nil
		}
		if by == "" || err != nil || string(spent) != "by "+by {
			return false, challengeError(err)
		}
	}
	raw, err := s.redis.Get(ctx, sinceKey(t))
	if errors.Is(err, redisconn.ErrNil) {
		return false, nil
	}
	if err != nil {
		return false, challengeError(err)
	}
	begun, err := strconv.ParseInt(string(raw), 10, 64)
	return err == nil && begun <= issued.Unix(), challengeError(err)
}

// sinceKey names the Redis key with the time, in Unix seconds, since which answered challenges are recorded.
func sinceKey(t *tenants.Tenant) string { return t.RedisPrefix() + "challenges-sinceKey" }

func challengeError(err error) error {
	if err != nil {
		err = fmt.Errorf("recording a challenge in Redis: %w: %w", store.ErrUnavailable, err)
	}
	return err
}
