package limits

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/internal/maintest"
	"tenantry/internal/rate"
	"tenantry/tenants/localredis"
	"tenantry/tenants/redisconn"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

// redisURL names a Redis server to test against, beside the in-process one.
const redisURL = "TENANTRY_TEST_REDIS_URL"

// onRedis runs a test on the in-process Redis and on the server.
func onRedis(t *testing.T, test func(*testing.T, redis.UniversalClient)) {
	t.Helper()
	t.Run("in process", func(t *testing.T) {
		t.Parallel()
		test(t, inProcess(t))
	})
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		test(t, server(t))
	})
}

func inProcess(t testing.TB) redis.UniversalClient {
	t.Helper()
	s, err := localredis.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	client, err := localredis.Dial(s, redisconn.Options{Timeout: time.Minute}) // who asks again counts twice
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// patient lets a limiter wait for a Redis that a busy machine keeps from answering:
// where every request counts, luck must not.
func patient(o Options) *Limiter {
	o.Timeout = time.Minute
	return New(o)
}

func server(t testing.TB) redis.UniversalClient {
	t.Helper()
	url := os.Getenv(redisURL)
	if url == "" {
		t.Skip(redisURL + " is not set")
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.ContextTimeoutEnabled = true
	o.MaxRetries, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = -1, time.Minute, time.Minute, time.Minute
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func mustParse(t testing.TB, text string) rate.Limit {
	t.Helper()
	l, err := rate.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
