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
	// repeatEvery is the minimum time between equal messages. The client logs one for each connection to a server that
	// is down.
	repeatEvery = 10 * time.Second
	maxEntries  = 256
)

// LogTo sends the messages of the Redis client, such as lost connections, to log as warnings. Equal messages are logged
// at most every 10 seconds, with the number suppressed since the last one. The client has one logger for the whole
// process.
func LogTo(log *slog.Logger) { redis.SetLogger(newLogger(log, time.Now)) }

type logger struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	entries map[string]entry // by format
}

type entry struct {
	at         time.Time
	suppressed int
}

func newLogger(log *slog.Logger, now func() time.Time) *logger {
	return &logger{log: log, now: now, entries: map[string]entry{}}
}

// Printf implements the client's interface.
func (l *logger) Printf(ctx context.Context, format string, args ...any) {
	if ok, suppressed := l.allow(format); ok {
		l.log.WarnContext(ctx, "the Redis client reports a problem", "message", fmt.Sprintf(format, args...), "suppressed",
			suppressed)
	}
}

func (l *logger) allow(format string) (ok bool, suppressed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	e, known := l.entries[format]
	if age := now.Sub(e.at); known && age >= 0 && age < repeatEvery {
		e.suppressed++
		l.entries[format] = e
		return false, 0
	}
	if !known && len(l.entries) >= maxEntries {
		clear(l.entries)
	}
	l.entries[format] = entry{at: now}
	return true, e.suppressed
}
