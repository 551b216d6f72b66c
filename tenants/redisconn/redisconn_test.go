package redisconn_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"tenantry/crypto/secret"
	"tenantry/tenants/redisconn"

	"github.com/redis/go-redis/v9"
)

func TestOpenRefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]redisconn.Options{
		"no address":     {},
		"no port":        {Addrs: []string{"localhost"}},
		"no host":        {Addrs: []string{":6379"}},
		"cluster and db": {Addrs: []string{"a:1", "b:1"}, DB: 2},
		"negative db":    {Addrs: []string{"a:1"}, DB: -1},
	} {
		if client, err := redisconn.Dial(o); err == nil {
			_ = client.Close()
			t.Errorf("%s was taken", name)
		}
	}
}

// TestBlackHoledRedisIsBounded covers a server that accepts connections and says nothing.
func TestBlackHoledRedisIsBounded(t *testing.T) {
	t.Parallel()
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	client, err := redisconn.Dial(redisconn.Options{Addrs: []string{hole.Addr().String()}, Password: secret.New("hunter2")})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	begin := time.Now()
	err = client.Get(t.Context(), "x").Err()
	if took := time.Since(begin); err == nil || took > 8*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error holds the password: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin = time.Now()
	err = client.Get(ctx, "x").Err()
	if took := time.Since(begin); err == nil || took > 8*time.Second {
		t.Errorf("with a deadline of 50 ms after %v: %v", took, err)
	}
	if c, ok := client.(*redis.Client); !ok || !c.Options().ContextTimeoutEnabled {
		t.Error("callers' deadlines are not kept")
	}
	var netErr net.Error
	if !errors.Is(err, context.DeadlineExceeded) && !(errors.As(err, &netErr) && netErr.Timeout()) {
		t.Errorf("not a timeout: %v", err)
	}
}
