package gateway

import (
	"context"
	"fmt"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"

	"github.com/redis/go-redis/v9"
)

// spent remembers in Redis which challenges have been answered, for all replicas.
type spent struct{ redis redis.UniversalClient }

// Spend implements forms.Spent. Error: store.ErrUnavailable.
func (s spent) Spend(ctx context.Context, t *tenants.Tenant, challenge string, keep time.Duration) (bool, error) {
	first, err := s.redis.SetNX(ctx, t.RedisPrefix()+"challenge:"+challenge, 1, max(keep, time.Second)).Result()
	if err != nil {
		return false, fmt.Errorf("remembering a challenge in Redis: %w: %w", store.ErrUnavailable, err)
	}
	return first, nil
}
