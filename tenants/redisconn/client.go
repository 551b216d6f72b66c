package redisconn

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis identifies scripts by their SHA-1
	"encoding/hex"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNil is returned if an entry is missing, or the condition of a write is not met.
var ErrNil error = redis.Nil

// Client is a Redis client. Its methods use no types of the library, because every package that mentions those compiles
// the 1,500 methods of the library's clients again, which took more than a second in each of twelve packages. It is
// safe for concurrent use.
type Client interface {
	// Get returns the value of a key. Error: ErrNil.
	Get(ctx context.Context, key string) ([]byte, error)
	// GetEx is Get, and sets the lifetime of the entry.
	GetEx(ctx context.Context, key string, lifetime time.Duration) ([]byte, error)
	// Set stores a value. With a lifetime of 0 it does not expire.
	Set(ctx context.Context, key string, value any, lifetime time.Duration) error
	// SetNX is Set if there is no value, and reports whether it stored the value.
	SetNX(ctx context.Context, key string, value any, lifetime time.Duration) (bool, error)
	// Replace stores a value if there is one, and keeps its lifetime. Error: ErrNil if there is none.
	Replace(ctx context.Context, key string, value any) error
	Del(ctx context.Context, keys ...string) error
	// ZRevRange returns the members of a sorted set by rank, the highest score first.
	ZRevRange(ctx context.Context, key string, from, to int64) ([]string, error)
	// Run runs a script that returns an integer or a list of integers. Any other result is dropped.
	Run(ctx context.Context, script *Script, keys []string, args ...any) ([]int64, error)
	// Pipeline sends the commands together and returns their results in order: values of the Redis protocol, or an
	// error, such as ErrNil. Its own error is that of the first command that failed other than with ErrNil.
	Pipeline(ctx context.Context, commands ...Command) ([]any, error)
	// Transaction is Pipeline within MULTI and EXEC.
	Transaction(ctx context.Context, commands ...Command) ([]any, error)
	Publish(ctx context.Context, channel string, message any) error
	Ping(ctx context.Context) error
	// Describe returns the server's version and its maxmemory-policy, which are empty if the user may not query them.
	Describe(ctx context.Context) (version, eviction string)
	// Subscribe subscribes to a channel until the Subscription is closed.
	Subscribe(ctx context.Context, channel string) (Subscription, error)
	Close() error
}

// Command is the name of a Redis command, followed by its arguments.
type Command []any

// Subscription receives what is published on a channel. Receive may be called by one goroutine at a time.
type Subscription interface {
	// Receive waits for the next event. If there is none within the duration, the error is a net.Error whose Timeout
	// method returns true.
	Receive(ctx context.Context, within time.Duration) (Received, error)
	// Ping sends a ping, whose reply Receive returns.
	Ping(ctx context.Context) error
	Close() error
}

// Received is an event of a subscription: its confirmation, a message, or the reply to a ping if it is neither.
type Received struct {
	Begun, Published bool
	Message          string
}

// ErrUnsubscribed is returned by Receive if the server ended the subscription.
var ErrUnsubscribed = errors.New("the subscription was ended")

// WrongType reports whether a command failed because the value under its key has another type.
func WrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// Script is a Lua script that Redis caches by its hash. It is immutable.
type Script struct{ source, hash string }

// NewScript returns the script with that source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	return &Script{source, hex.EncodeToString(sum[:])}
}

// Of returns a Client that uses a client of the library.
func Of(client redis.UniversalClient) Client { return &universal{c: client} }

type universal struct{ c redis.UniversalClient }

func (u *universal) Get(ctx context.Context, key string) ([]byte, error) {
	return u.c.Get(ctx, key).Bytes()
}

func (u *universal) GetEx(ctx context.Context, key string, lifetime time.Duration) ([]byte, error) {
	return u.c.GetEx(ctx, key, lifetime).Bytes()
}

func (u *universal) Set(ctx context.Context, key string, value any, lifetime time.Duration) error {
	return u.c.Set(ctx, key, value, lifetime).Err()
}

func (u *universal) SetNX(ctx context.Context, key string, value any, lifetime time.Duration) (bool, error) {
	return u.c.SetNX(ctx, key, value, lifetime).Result()
}

func (u *universal) Replace(ctx context.Context, key string, value any) error {
	return u.c.SetArgs(ctx, key, value, redis.SetArgs{Mode: "XX", KeepTTL: true}).Err()
}

func (u *universal) Del(ctx context.Context, keys ...string) error {
	return u.c.Del(ctx, keys...).Err()
}

func (u *universal) ZRevRange(ctx context.Context, key string, from, to int64) ([]string, error) {
	return u.c.ZRevRange(ctx, key, from, to).Result()
}

// Run sends the script's hash, and its source if the server does not have the script, as after a restart.
func (u *universal) Run(ctx context.Context, script *Script, keys []string, args ...any) ([]int64, error) {
	answer := u.c.EvalSha(ctx, script.hash, keys, args...)
	if redis.HasErrorPrefix(answer.Err(), "NOSCRIPT") {
		answer = u.c.Eval(ctx, script.source, keys, args...)
	}
	switch v := answer.Val().(type) {
	case int64:
		return []int64{v}, nil
	case []any:
		return answer.Int64Slice()
	}
	return nil, answer.Err()
}

func (u *universal) Pipeline(ctx context.Context, commands ...Command) ([]any, error) {
	return run(ctx, u.c.Pipeline(), commands)
}

func (u *universal) Transaction(ctx context.Context, commands ...Command) ([]any, error) {
	return run(ctx, u.c.TxPipeline(), commands)
}

func run(ctx context.Context, pipe redis.Pipeliner, commands []Command) ([]any, error) {
	if len(commands) == 0 {
		return nil, nil
	}
	sent := make([]*redis.Cmd, len(commands))
	for i, c := range commands {
		sent[i] = pipe.Do(ctx, c...)
	}
	_, err := pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	answers := make([]any, len(sent))
	for i, c := range sent {
		var failed error
		if answers[i], failed = c.Result(); failed != nil {
			answers[i] = failed
			if err == nil && !errors.Is(failed, redis.Nil) {
				err = failed
			}
		}
	}
	return answers, err
}

func (u *universal) Ping(ctx context.Context) error { return u.c.Ping(ctx).Err() }

func (u *universal) Describe(ctx context.Context) (version, eviction string) {
	const policy = "maxmemory-policy"
	if info, err := u.c.InfoMap(ctx, "server").Result(); err == nil {
		version = info["Server"]["redis_version"]
	}
	if settings, err := u.c.ConfigGet(ctx, policy).Result(); err == nil {
		eviction = settings[policy]
	}
	return version, eviction
}

func (u *universal) Close() error { return u.c.Close() }

func (u *universal) Publish(ctx context.Context, channel string, message any) error {
	return u.c.Publish(ctx, channel, message).Err()
}

func (u *universal) Subscribe(ctx context.Context, channel string) (Subscription, error) {
	s := u.c.Subscribe(ctx)
	if err := s.Subscribe(ctx, channel); err != nil {
		_ = s.Close() // the first error is the cause
		return nil, err
	}
	return subscription{s}, nil
}

type subscription struct{ s *redis.PubSub }

func (s subscription) Receive(ctx context.Context, within time.Duration) (Received, error) {
	received, err := s.s.ReceiveTimeout(ctx, within)
	if err != nil {
		return Received{}, err
	}
	switch m := received.(type) {
	case *redis.Subscription:
		if m.Kind != "subscribe" {
			return Received{}, ErrUnsubscribed
		}
		return Received{Begun: true}, nil
	case *redis.Message:
		return Received{Published: true, Message: m.Payload}, nil
	}
	return Received{}, nil
}

func (s subscription) Ping(ctx context.Context) error { return s.s.Ping(ctx) }

func (s subscription) Close() error { return s.s.Close() }
