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

// spent remembers in Redis which challenges have been answered, for all replicas.
type spent struct{ redis redisconn.Client }

// Begin implements forms.Spent. Error: store.ErrUnavailable.
func (s spent) Begin(ctx context.Context, t *tenants.Tenant) error {
	_, err := s.redis.SetNX(ctx, since(t), time.Now().Unix(), 0)
	return unremembered(err)
}

// Spend implements forms.Spent. A Redis that lost what was remembered has also lost since when: that is read after the
// challenge is noted. Error: store.ErrUnavailable.
func (s spent) Spend(ctx context.Context, t *tenants.Tenant, challenge string, issued time.Time, keep time.Duration) (bool, error) {
	first, err := s.redis.SetNX(ctx, t.RedisPrefix()+"challenge:"+challenge, 1, max(keep, time.Second))
	if err != nil || !first {
		return false, unremembered(err)
	}
	raw, err := s.redis.Get(ctx, since(t))
	if errors.Is(err, redisconn.ErrNil) {
		return false, nil
	}
	if err != nil {
		return false, unremembered(err)
	}
	begun, err := strconv.ParseInt(string(raw), 10, 64)
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
