// Package redisconn connects to Redis. Its Client is the only interface to Redis that the rest of the program uses.
package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"tenantry/crypto/secret"
)

// Timeout bounds every step of a call: dialling, waiting for a connection, writing, reading. It is short because Redis
// is
// an index of the store, and waiting for it longer than for the store would be pointless.
const Timeout = 200 * time.Millisecond

// Options say where Redis is. One address means a single server and several a cluster; with MasterName they are the
// addresses of sentinels.
type Options struct {
	Addrs            []string
	Username         string
	Password         secret.String
	SentinelUsername string
	SentinelPassword secret.String
	DB               int
	MasterName       string
	TLS              *tls.Config   // nil: no TLS
	PoolSize         int           // connections to each server; 0: ten per processor
	Timeout          time.Duration // of each step of a call; 0: Timeout
	Trace            Trace         // nil: nothing is traced

	// Dialer replaces the network, for an in-process server.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Open returns a client, which connects on the first call. The caller must close it.
func Open(o Options) (Client, error) {
	client, err := Dial(o)
	if err != nil {
		return nil, err
	}
	return Of(client), nil
}

// Dial is Open for callers that need the library's own client, such as tests.
func Dial(o Options) (redis.UniversalClient, error) {
	if len(o.Addrs) == 0 {
		return nil, errors.New("no Redis address is given")
	}
	for _, addr := range o.Addrs {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("the Redis address %q is not host:port", addr)
		}
	}
	if o.DB != 0 && len(o.Addrs) > 1 && o.MasterName == "" {
		return nil, errors.New("a Redis cluster has database 0 only")
	}
	if o.DB < 0 {
		return nil, fmt.Errorf("there is no Redis database %d", o.DB)
	}
	timeout := cmp.Or(o.Timeout, Timeout)
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: o.Addrs, MasterName: o.MasterName, DB: o.DB,
		Username: o.Username, Password: o.Password.Reveal(),
		SentinelUsername: o.SentinelUsername, SentinelPassword: o.SentinelPassword.Reveal(),
		TLSConfig: o.TLS, Dialer: o.Dialer,
		ContextTimeoutEnabled: true, // otherwise the client ignores the caller's deadline
		DialTimeout:           timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
		DialerRetries: 1, MaxRetries: 1, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: 10 * time.Millisecond,
		PoolSize: o.PoolSize, PipelinePoolSize: -1, ConnMaxIdleTime: 5 * time.Minute,
		ReadBufferSize: 8 << 10, WriteBufferSize: 4 << 10, // values are small
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(dialHook{})
	if o.Trace != nil {
		client.AddHook(traceHook{o.Trace})
	}
	return client, nil
}
