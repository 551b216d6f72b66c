package redisconn

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// sayEvery is how often the client may say the same; of a server that is away it speaks
	// once a connection.
	sayEvery = 10 * time.Second
	maxSaid  = 256
)

// LogTo sends what the Redis client says by itself, such as connections it lost, to log as
// warnings: the same at most every 10 seconds, with how often it was said in between. The
// client has one logger for the whole process.
func LogTo(log *slog.Logger) { redis.SetLogger(newLogger(log, time.Now)) }

type logger struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	said map[string]saying // by what was said, without its particulars
}

type saying struct {
	at        time.Time
	swallowed int
}

func newLogger(log *slog.Logger, now func() time.Time) *logger {
	return &logger{log: log, now: now, said: map[string]saying{}}
}

// Printf implements the client's interface.
func (l *logger) Printf(ctx context.Context, format string, args ...any) {
	if say, swallowed := l.may(format); say {
		l.log.WarnContext(ctx, "redis", "says", fmt.Sprintf(format, args...), "said_before", swallowed)
	}
}

func (l *logger) may(format string) (say bool, swallowed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s, known := l.said[format]
	if age := now.Sub(s.at); known && age >= 0 && age < sayEvery {
		s.swallowed++
		l.said[format] = s
		return false, 0
	}
	if !known && len(l.said) >= maxSaid {
		clear(l.said)
	}
	l.said[format] = saying{at: now}
	return true, s.swallowed
}
