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

// LogTo sets the logger of the Redis client, of which the process has one, to a Logger.
func LogTo(log *slog.Logger) { redis.SetLogger(NewLogger(log, time.Now)) }

// Logger sends the messages of the Redis client, such as lost connections, to a log as warnings. Equal messages are
// logged at most every 10 seconds, with the number suppressed since the last one.
type Logger struct {
	log *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	entries map[string]entry // by format
}

type entry struct {
	at         time.Time
	suppressed int
}

// NewLogger returns a Logger; now is the clock.
func NewLogger(log *slog.Logger, now func() time.Time) *Logger {
	return &Logger{log: log, now: now, entries: map[string]entry{}}
}

// Printf implements the client's interface.
func (l *Logger) Printf(ctx context.Context, format string, args ...any) {
	if ok, suppressed := l.allow(format); ok {
		l.log.WarnContext(ctx, "the Redis client reports a problem", "message", fmt.Sprintf(format, args...), "suppressed",
			suppressed)
	}
}

func (l *Logger) allow(format string) (ok bool, suppressed int) {
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
