package redisconn

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogTo sends what the Redis client says by itself, such as connections it lost, to log as
// warnings. The client has one logger for the whole process.
func LogTo(log *slog.Logger) { redis.SetLogger(logger{log}) }

type logger struct{ log *slog.Logger }

// Printf implements the client's interface.
func (l logger) Printf(ctx context.Context, format string, args ...any) {
	l.log.WarnContext(ctx, "redis", "says", fmt.Sprintf(format, args...))
}
