package redisconn

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Trace begins tracing commands that are sent together. It gets their names, without arguments. The function it returns
// is called with their error when they have ended.
type Trace func(ctx context.Context, commands ...string) (end func(error))

// traceHook traces the commands that the client sends.
type traceHook struct{ trace Trace }

// DialHook implements redis.Hook.
func (traceHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (h traceHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		end := h.trace(ctx, cmd.FullName())
		err := next(ctx, cmd)
		end(failure(err))
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (h traceHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		names := make([]string, len(commands))
		for i, cmd := range commands {
			names[i] = cmd.FullName()
		}
		end := h.trace(ctx, names...)
		err := next(ctx, commands)
		end(failure(err))
		return err
	}
}

// failure returns the error, or nil if it only says that an entry is missing.
func failure(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
