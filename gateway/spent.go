package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"

	"github.com/redis/go-redis/v9"
)

// spent remembers in Redis which challenges have been answered, for all replicas.
type spent struct{ redis redis.UniversalClient }

// Begin implements forms.Spent. Error: store.ErrUnavailable.
func (s spent) Begin(ctx context.Context, t *tenants.Tenant) error {
	return unremembered(s.redis.SetNX(ctx, since(t), time.Now().Unix(), 0).Err())
}

// Spend implements forms.Spent. A Redis that lost what was remembered has also lost since when: that is read after the
// challenge is noted. Error: store.ErrUnavailable.
func (s spent) Spend(ctx context.Context, t *tenants.Tenant, challenge string, issued time.Time, keep time.Duration) (bool, error) {
	first, err := s.redis.SetNX(ctx, t.RedisPrefix()+"challenge:"+challenge, 1, max(keep, time.Second)).Result()
	if err != nil || !first {
		return false, unremembered(err)
	}
	begun, err := s.redis.Get(ctx, since(t)).Int64()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil && begun <= issued.Unix(), unremembered(err)
}

// since names what says from when on, in seconds, challenges that are answered have been remembered.
func since(t *tenants.Tenant) string { return t.RedisPrefix() + "challenges-since" }

func unremembered(err error) error {
	if err != nil {
		err = fmt.Errorf("remembering a challenge in Redis: %w: %w", store.ErrUnavailable, err)
	}
	return err
}
