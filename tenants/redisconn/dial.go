package redisconn

import (
	"context"
	"errors"
	"net"

	"github.com/redis/go-redis/v9"
)

// dialHook keeps failed connections from looking like missing entries, because the client reports an unknown master of
// the sentinels as redis.Nil.
type dialHook struct{}

type unreachableError struct{ text string }

func (e *unreachableError) Error() string { return e.text }

// DialHook implements redis.Hook.
func (dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if errors.Is(err, redis.Nil) {
			err = &unreachableError{"connecting to Redis: the sentinels do not know the master; " +
				"compare redis.master_name with theirs: " + err.Error()}
		}
		return conn, err
	}
}

// ProcessHook implements redis.Hook.
func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
